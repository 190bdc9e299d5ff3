"""Small trained digits models in a real store, built once per test session: version 1 standard, version 2 adversarially trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mlflow
import torch

from audit import data
from audit.cli.demo_models import current_store, log_version, train
from audit.vocabulary import Threat

THREAT = Threat.parse("linf:0.15")


@dataclass(frozen=True, kw_only=True)
class DigitsStore:
    """A SQLite store with `digits/1` and `digits/2`, and the same two models as ONNX files."""

    uri: str
    standard: str
    adversarial: str
    onnx_standard: Path
    onnx_adversarial: Path


def build(folder: Path) -> DigitsStore:
    """Train, register and export both models."""
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    with current_store(uri):
        training = mlflow.create_experiment("training", artifact_location=(folder / "artifacts").as_uri())
        digits = data.load("digits:train")
        images = digits.images(range(len(digits.labels)))
        uris, files = [], []
        for name, threat, epochs in (("standard", None, 8), ("adversarial", THREAT, 8)):
            model = train(images, digits.labels, epochs=epochs, adversarial_threat=threat, seed=0)
            uris.append(
                log_version(
                    model, "digits", images[:8], description=f"{name} training", tags={}, run_name=name, experiment_id=training
                )
            )
            files.append(folder / f"{name}.onnx")
            torch.onnx.export(
                model,
                (torch.from_numpy(images[:2]),),
                files[-1],
                input_names=["image"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                external_data=False,
                verbose=False,
            )
    return DigitsStore(uri=uri, standard=uris[0], adversarial=uris[1], onnx_standard=files[0], onnx_adversarial=files[1])
