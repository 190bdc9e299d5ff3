"""What imagecorruptions makes of images: statistics of the change, a classifier's answers, and processor time, as one `.npz` file.

    PEERS/imagecorruptions/bin/python tests/benchmarks/peers/run_corruptions.py INPUT.npz OUTPUT.npz

INPUT holds `tables` (JSON: published parameters of 32 pixels by kind), `photos_SIZE` and `fashion_SIZE` (n, h, w, 3) uint8. OUTPUT
holds for every kind KIND and SIZE `KIND_SIZE_change` (5, 3): mean and standard deviation of the change and its mean size, in grey
levels, by severity; `KIND_SIZE_seconds`, per image; `KIND_SIZE_black`, how many photos it lost; and `KIND_SIZE_answers` (n, 5), the
classes of the Fashion-MNIST images.

The library has the parameters of 224 pixels only. For 32 pixels the rows of CIFAR-10-C are written into its functions, its
photographs of ice are shrunk by five and its layers of flakes cut in the middle, as CIFAR-10-C's code does. Two things make it
run with libraries of today: scikit-image's `gaussian` names its channels in another way, and NumPy has no `float_`.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import skimage.filters
import torch
from PIL import Image

sys.path.append(str(Path(__file__).parents[1]))
from attack_models import load_model
from imagecorruptions import corruptions as peer

KINDS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow", "frost",
    "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression", "speckle_noise", "gaussian_blur",
    "spatter", "saturate",
)  # fmt: skip
# It walks over the pixels one by one.
FEW_GLASS = 3
# Kinds that draw one shape per image, which varies a lot from image to image; how often each photograph is taken.
REPEATS = dict.fromkeys(("motion_blur", "snow", "fog", "spatter"), 6)


def size_for(kind: str, size: int) -> int:
    """The library's elastic transform is the one for sizes that nothing is published for."""
    return size + 1 if kind == "elastic_transform" else size


def gaussian(image: np.ndarray, sigma: float, multichannel: bool = False, **more: object) -> np.ndarray:
    return skimage.filters.gaussian(image, sigma, channel_axis=-1 if multichannel else None, **more)


def with_parameters(kind: str, rows: list[list[float]]) -> None:
    """Replace the table at the beginning of one of the library's functions."""
    tree = ast.parse(inspect.getsource(getattr(peer, kind)))
    values = (
        f"[np.arange(1, *row) for row in {rows}]" if kind == "zoom_blur" else str([r[0] if len(r) == 1 else tuple(r) for r in rows])
    )
    table = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "c"
    )
    table.value = ast.parse(f"({values})[severity - 1]", mode="eval").body
    exec(compile(ast.fix_missing_locations(tree), kind, "exec"), vars(peer))


def small_ice() -> None:
    read = cv2.imread
    changed = {name: getattr(cv2, name) for name in dir(cv2) if not name.startswith("__")}
    changed["imread"] = lambda name: cv2.resize(read(name), (0, 0), fx=0.2, fy=0.2)
    peer.cv2 = SimpleNamespace(**changed)


def cut_in_the_middle() -> None:
    enlarged = peer.clipped_zoom

    def zoomed(image: np.ndarray, factor: float) -> np.ndarray:
        found = enlarged(image, factor)
        top, left = (max(0, (found.shape[axis] - image.shape[axis]) // 2) for axis in (0, 1))
        return found[top : top + image.shape[0], left : left + image.shape[1]]

    peer.clipped_zoom = zoomed


def corrupted(image: np.ndarray, kind: str, severity: int) -> np.ndarray:
    """As `imagecorruptions.corrupt` does it."""
    return np.uint8(getattr(peer, kind)(Image.fromarray(image), severity))


def main(given: Path, written: Path) -> None:
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    peer.gaussian, np.float_ = gaussian, np.float64
    with np.load(given) as arrays:
        images = dict(arrays)
    found: dict[str, object] = {"input": hashlib.sha256(given.read_bytes()).hexdigest()}
    model = load_model("fashion-cnn")
    for size in (224, 32):
        if size == 32:
            small_ice()
            cut_in_the_middle()
            for kind, rows in json.loads(str(images["tables"])).items():
                if kind != "elastic_transform":
                    with_parameters(kind, rows)
        for kind in KINDS:
            photos = images[f"photos_{size_for(kind, size)}"]
            if kind == "glass_blur" and size == 224:
                photos = photos[:FEW_GLASS]
            photos = np.tile(photos, (REPEATS.get(kind, 1), 1, 1, 1))
            np.random.seed(0)
            corrupted(photos[0], kind, 1)
            started = time.process_time()
            changed = np.stack([[corrupted(image, kind, severity) for image in photos] for severity in range(1, 6)])
            seconds = (time.process_time() - started) / (5 * len(photos))
            # A division by zero gives black images; they are left out.
            kept = changed.any(axis=(2, 3, 4)) | ~photos.any(axis=(1, 2, 3))
            change = [changed[place][kept[place]].astype(float) - photos[kept[place]] for place in range(5)]
            name = f"{kind}_{size}"
            found[f"{name}_change"] = [[each.mean(), each.std(), np.abs(each).mean()] for each in change]
            found[f"{name}_seconds"], found[f"{name}_black"] = seconds, (~kept).sum()
            if size == 32:
                answers = []
                for severity in range(1, 6):
                    made = np.stack([corrupted(image, kind, severity) for image in images[f"fashion_{size_for(kind, size)}"]])
                    grey = torch.from_numpy(made[:, 2:30, 2:30]).float().mean(dim=3)[:, None] / 255
                    with torch.no_grad():
                        answers.append(model(grey).argmax(dim=1).numpy())
                found[f"{name}_answers"] = np.stack(answers, axis=1)
            print(name, f"{1000 * seconds:.1f} ms", (~kept).sum(), flush=True)
    np.savez(written, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
