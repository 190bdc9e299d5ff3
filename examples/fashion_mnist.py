"""Two classifiers of Fashion-MNIST to audit: one trained on clean images, its twin trained against an attack of 8 grey levels.

    python examples/fashion_mnist.py                  about five minutes on one CPU core
    python examples/fashion_mnist.py --smoke          under a minute, models good for nothing but trying the commands

Both are registered in MLflow as new versions of `fashion-classifier` and written as ONNX files with a free batch size. The data are
the idx files that Debian and Ubuntu install with `apt install dataset-fashion-mnist`; without them `--smoke` makes a stand-in.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import mlflow
import numpy as np
import torch
from torch import nn

from audit import data
from audit.cli.demo_models import fit, log_version
from audit.data import Dataset
from audit.errors import AuditError
from audit.evidence import Images
from audit.vocabulary import Threat

NAME = "fashion-classifier"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
THREAT = Threat.parse("linf:8/255")
TAGS = {"intended_use": "shows an audit of two real classifiers", "not_for": "any product; the images are 28 x 28 pixels"}


def fashion_cnn() -> nn.Module:
    """Build the classifier (n, 1, 28, 28) in [0, 1] -> 10 logits, about 200,000 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def write_stand_in(folder: Path, seed: int) -> None:
    """Write idx files of the same format: class k is a bright square at its own place on a noisy ground."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    for part, count in (("train", 2000), ("t10k", 500)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = generator.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            top, left = 2 + 13 * (label // 5), 1 + 5 * (label % 5)
            image[top : top + 9, left : left + 5] += 120
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            b"\0\0\x08\x03" + b"".join(length.to_bytes(4, "big") for length in images.shape) + images.tobytes()
        )
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + count.to_bytes(4, "big") + labels.tobytes())


def accuracy(model: nn.Module, test: Dataset) -> float:
    """Measure the share of test images classified correctly."""
    with torch.inference_mode():
        logits = model(torch.from_numpy(test.images(range(len(test.labels)))))
    return float((logits.argmax(dim=1).numpy() == test.labels).mean())


def export(model: nn.Module, path: Path, example: Images) -> None:
    """Write the model as one ONNX file whose batch size is free."""
    torch.onnx.export(
        model,
        (torch.from_numpy(example),),
        path,
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        verbose=False,
    )


def main(arguments: list[str] | None = None) -> int:
    """Train, register and export both classifiers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DEBIAN_FOLDER, help="folder of the idx files (default: %(default)s)")
    parser.add_argument("--tracking-uri", default="sqlite:///mlflow.db", help="MLflow store (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("fashion-mnist"), help="folder of the ONNX files (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="few images, one epoch; a synthetic stand-in if there are no data")
    options = parser.parse_args(arguments)

    options.out.mkdir(parents=True, exist_ok=True)
    folder: Path = options.data
    if options.smoke and not folder.exists():
        folder = options.out / "stand-in"
        write_stand_in(folder, options.seed)
        print(f"There is no {options.data}, so this trains on a synthetic stand-in in {folder}: it is not Fashion-MNIST.")
    try:
        train, test = data.load(f"{folder}#train"), data.load(str(folder))
    except AuditError as error:
        print(f"{error} (apt install dataset-fashion-mnist, or name the folder with --data)", file=sys.stderr)
        return 2
    count = min(2000, len(train.labels)) if options.smoke else len(train.labels)
    images, labels = train.images(range(count)), train.labels[:count]

    mlflow.set_tracking_uri(options.tracking_uri)
    uris, files = [], []
    for training, threat, epochs in (("standard", None, 8), ("adversarial", THREAT, 7)):
        torch.manual_seed(options.seed)
        model = fit(
            fashion_cnn(),
            images,
            labels,
            epochs=1 if options.smoke else epochs,
            adversarial_threat=threat,
            seed=options.seed,
            batch_rows=128,
            attack_steps=3,
        )
        print(f"{training}: clean accuracy {accuracy(model, test):.3f} on {len(test.labels)} test images", flush=True)
        meaning = "on clean images" if threat is None else f"on images changed by PGD within {threat.label}"
        uris.append(
            log_version(
                model,
                NAME,
                images[:8],
                description=f"Small CNN for Fashion-MNIST, trained {meaning}.",
                tags={**TAGS, "training": training},
                run_name=f"{NAME}, {training}",
            )
        )
        files.append(options.out / f"fashion-{training}.onnx")
        export(model, files[-1], images[:8])

    print(f"\nRegistered {' and '.join(uris)} in {options.tracking_uri}; written {files[0]} and {files[1]}. Audit them:\n")
    common = ["--data", str(folder), "--samples", "500"]
    print("  " + shlex.join(["audit", "run", *uris, *common, "--tracking-uri", options.tracking_uri]))
    print("  " + shlex.join(["audit", "run", *map(str, files), *common]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
