"""A hundred malformed data sets through the command line: one sentence each, exit code 2, no stack trace."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from PIL import Image

from audit.cli import cli

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 255, (12, 8, 8)).astype(np.uint8)
LABELS = np.arange(12) % 10
Make = Callable[[Path], Path]


def png(pixels: np.ndarray = IMAGES[0]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def npz(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def parquet(**columns: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def idx(array: np.ndarray, magic: int | None = None, shape: tuple[int, ...] | None = None) -> bytes:
    dims = array.shape if shape is None else shape
    return struct.pack(f">I{len(dims)}I", 0x0800 + len(dims) if magic is None else magic, *dims) + array.tobytes()


GOOD = {
    "data.npz": npz(images=IMAGES, labels=LABELS),
    "images.npy": npy(IMAGES),
    "data.parquet": parquet(image=[{"bytes": png(), "path": "a.png"}] * 12, label=LABELS.tolist()),
    "t10k-images-idx3-ubyte": idx(IMAGES),
    "t10k-images-idx3-ubyte.gz": gzip.compress(idx(IMAGES), mtime=0),
    "0/a.png": png(),
    "data.csv": b"path,label\n0/a.png,0\n",
}


def written(name: str, content: bytes, beside: dict[str, bytes] | None = None) -> Make:
    def make(folder: Path) -> Path:
        for other, text in {**(beside or {}), name: content}.items():
            path = folder / other
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return folder if "/" in name or name.startswith("t10k") else folder / name

    return make


def damaged() -> Iterator[tuple[str, Make]]:
    """Every format cut short in many places, emptied, or replaced by something else."""
    labels = {"labels.npy": npy(LABELS), "t10k-labels-idx1-ubyte": idx(LABELS.astype(np.uint8)), "0/a.png": png(), "1/b.png": png()}
    # Bytes that one format can lose without harm are left alone: zip and Parquet read from the end, the others from the start.
    for name, content in GOOD.items():
        beside = {key: text for key, text in labels.items() if key != name}
        if name.endswith("npz") or name.endswith("parquet"):
            beside = {}
        for share in (0.0, 0.02, 0.3, 0.6, 0.9):
            if name == "data.csv" and share not in (0.0, 0.3, 0.6):
                continue
            yield f"{name} cut to {share:.0%}", written(name, content[: int(share * len(content))], beside)
        for what, other in (("html", b"<!doctype html><p>404</p>"), ("zeros", bytes(500)), ("pickle", b"\x80\x04K\x01.")):
            yield f"{name} is {what}", written(name, other, beside)


def wrong() -> Iterator[tuple[str, Make]]:
    """Well-formed files with contents that are no labelled images."""
    floats = IMAGES / 255.0
    arrays: dict[str, dict[str, object]] = {
        "no labels": {"images": IMAGES},
        "no images": {"labels": LABELS},
        "too few labels": {"images": IMAGES, "labels": LABELS[:5]},
        "negative labels": {"images": IMAGES, "labels": LABELS - 1},
        "float labels": {"images": IMAGES, "labels": LABELS + 0.5},
        "text labels": {"images": IMAGES, "labels": LABELS.astype(str)},
        "2-D labels": {"images": IMAGES, "labels": np.eye(12)},
        "labels beyond the model": {"images": IMAGES, "labels": LABELS + 90},
        "NaN pixels": {"images": np.where(floats > 0.5, np.nan, floats), "labels": LABELS},
        "infinite pixels": {"images": floats / 0.0 + 1, "labels": LABELS},
        "pixels above one": {"images": floats * 300, "labels": LABELS},
        "negative pixels": {"images": floats - 2, "labels": LABELS},
        "int32 pixels": {"images": IMAGES.astype(np.int32) * 1000, "labels": LABELS},
        "complex pixels": {"images": IMAGES.astype(complex), "labels": LABELS},
        "text pixels": {"images": IMAGES.astype(str), "labels": LABELS},
        "no examples": {"images": IMAGES[:0], "labels": LABELS[:0]},
        "flat images": {"images": IMAGES[:, 0], "labels": LABELS},
        "five axes": {"images": IMAGES[:, None, None], "labels": LABELS},
        "seven channels": {"images": np.zeros((12, 7, 8, 8), dtype=np.uint8), "labels": LABELS},
        "empty images": {"images": np.zeros((12, 0, 8), dtype=np.uint8), "labels": LABELS},
        "another size": {"images": np.zeros((12, 9, 9), dtype=np.uint8), "labels": LABELS},
        "objects": {"images": np.array([None] * 12), "labels": LABELS},
    }
    for name, content in arrays.items():
        with np.errstate(all="ignore"):
            yield f"npz: {name}", written("data.npz", npz(**content))
    image = [{"bytes": png(), "path": "a.png"}] * 12
    tables: dict[str, dict[str, object]] = {
        "no image column": {"label": LABELS.tolist()},
        "no label column": {"image": image},
        "image is a number": {"image": [1.5] * 12, "label": LABELS.tolist()},
        "bytes are no image": {"image": [{"bytes": b"x", "path": "a.png"}] * 12, "label": LABELS.tolist()},
        "a missing image": {"image": [None, *image[1:]], "label": LABELS.tolist()},
        "a missing label": {"image": image, "label": [None, *LABELS[1:].tolist()]},
        "negative labels": {"image": image, "label": (LABELS - 1).tolist()},
        "float labels": {"image": image, "label": (LABELS + 0.5).tolist()},
        "no rows": {"image": image[:0], "label": LABELS[:0].tolist()},
        "two sizes": {"image": [*image[1:], {"bytes": png(IMAGES[0, :4]), "path": "b.png"}], "label": LABELS.tolist()},
    }
    for name, columns in tables.items():
        yield f"parquet: {name}", written("data.parquet", parquet(**columns))
    for name, text in {
        "no header": "a.png,0\n",
        "header only": "path,label\n",
        "missing file": "path,label\nabsent.png,0\n",
        "missing label": "path,label\n0/a.png\n",
        "outside": "path,label\n../../../etc/passwd,0\n",
        "binary": "path,label\n\x00\x01,0\n",
        "twice": "path,label\n0/a.png,0\n0/a.png,1\n",
        "negative": "path,label\n0/a.png,-1\n",
    }.items():
        yield f"csv: {name}", written("data.csv", text.encode(), {"0/a.png": png()})
    label_file = {"t10k-labels-idx1-ubyte": idx(LABELS.astype(np.uint8))}
    for name, content in {
        "wrong magic": idx(IMAGES, magic=0x0D03),
        "huge header": idx(IMAGES, shape=(2**31 - 1, 2**15, 2**15)),
        "more than there is": idx(IMAGES, shape=(13, 8, 8)),
        "fewer than labels": idx(IMAGES[:3]),
    }.items():
        yield f"idx: {name}", written("t10k-images-idx3-ubyte", content, label_file)
    header = npy(IMAGES).replace(b"(12, 8, 8)", b"(9**9,8,8)")
    yield "npy: code in the header", written("images.npy", header, {"labels.npy": npy(LABELS)})
    yield "npy: pickled objects", written("images.npy", npy(np.array([{}] * 12), allow_pickle=True), {"labels.npy": npy(LABELS)})


def places() -> Iterator[tuple[str, Make]]:
    """Folders and names that lead nowhere or astray."""

    def cycle(folder: Path) -> Path:
        (folder / "0").mkdir()
        (folder / "0" / "again").symlink_to(folder)
        (folder / "1").symlink_to(folder / "1")
        return folder

    def hostile(folder: Path) -> Path:
        for name in ("a\nb", "\u202egnp.exe", "\x1b[31mred", "x" * 200):
            (folder / name).mkdir()
            (folder / name / "a.png").write_bytes(b"no image")
        return folder

    def empty(folder: Path) -> Path:
        return folder

    def class_without_images(folder: Path) -> Path:
        (folder / "0").mkdir()
        return folder

    def images_without_classes(folder: Path) -> Path:
        (folder / "a.png").write_bytes(png())
        return folder

    def single_image(folder: Path) -> Path:
        (folder / "a.png").write_bytes(png())
        return folder / "a.png"

    def dangling(folder: Path) -> Path:
        (folder / "gone").symlink_to(folder / "nowhere")
        return folder / "gone"

    def two_sizes(folder: Path) -> Path:
        for name, pixels in (("0/a.png", IMAGES[0]), ("1/b.png", IMAGES[0, :4])):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(png(pixels))
        return folder

    for make in (cycle, hostile, empty, class_without_images, images_without_classes, single_image, dangling, two_sizes):
        yield make.__name__, make


CASES = [*damaged(), *wrong(), *places()]


def test_there_are_a_hundred():
    assert len(CASES) >= 100
    assert len({name for name, _ in CASES}) == len(CASES)


@pytest.mark.parametrize("make", [make for _, make in CASES], ids=[name for name, _ in CASES])
def test_malformed_data_are_one_sentence(make, digits_store, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    reference = str(make(folder))
    arguments = [
        "run",
        str(digits_store.onnx_standard),
        "--data",
        reference,
        "--no-mlflow",
        "--out",
        str(tmp_path / "out"),
        "--quiet",
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    (error,) = [line for line in done.output.splitlines() if line.strip()]
    assert error.startswith("Error: ")
    assert "\x1b" not in error
    assert "\u202e" not in error
    assert not (tmp_path / "out" / "result.json").exists()
