"""The models of `audit demo`: a small CNN on scikit-learn's digits and its adversarially trained twin.

This is training code, the kind a user brings; no audit depends on it. It lives in the package because an installed wheel has no
examples/. It imports mlflow, an exception among the commands, to log and register what it trained. Heavy imports wait inside the
functions, so that `audit --help` stays fast.

Trained on `digits:train` and meant to be audited on `digits:test`. Measured there (896 images, 40 steps of PGD, 2 starts): the
standard model is right on 97.5 % of the clean images and on 16.7 % within `linf:0.15`, its twin on 96.8 % and 68.5 %.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from audit.environment import variables
from audit.errors import InputError
from audit.evidence import Images
from audit.vocabulary import Norm, Threat

if TYPE_CHECKING:
    import torch

DEMO_THREAT = Threat.parse("linf:0.15")
_BATCH_ROWS = 64
_LEARNING_RATE = 2e-3
_ATTACK_STEPS = 5
TRAINING_EXPERIMENT = "digits-training"
AUDIT_EXPERIMENT = "digits-audit"
_DEMO_TAG = "audit.demo"
_TRAINING_TAG = "audit.demo.training"


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    training: str
    epochs: int
    threat: Threat | None
    description: str


_RECIPES = (
    _Recipe(
        training="standard",
        epochs=20,
        threat=None,
        description="Small CNN for 8 x 8 digits, trained on clean images of the training half of scikit-learn's digits.",
    ),
    _Recipe(
        training="adversarial",
        epochs=20,
        threat=DEMO_THREAT,
        description=f"The same CNN, trained on the same images changed by PGD within {DEMO_THREAT.label} while it learned.",
    ),
)


def digits_cnn() -> torch.nn.Module:
    """Two convolutions and two linear layers, (n, 1, 8, 8) in [0, 1] to 10 logits, with torch's current random numbers."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(
    images: Images, labels: npt.NDArray[np.integer], *, epochs: int, adversarial_threat: Threat | None, seed: int
) -> torch.nn.Module:
    """A `digits_cnn` trained on images (n, 1, 8, 8) in [0, 1] and labels (n,), in eval mode; equal calls give equal weights.

    Raises:
        InputError: the threat is not of the Linf norm.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = digits_cnn()
    return fit(model, images, labels, epochs=epochs, adversarial_threat=adversarial_threat, seed=seed)


def fit(
    model: torch.nn.Module,
    images: Images,
    labels: npt.NDArray[np.integer],
    *,
    epochs: int,
    adversarial_threat: Threat | None,
    seed: int,
    batch_rows: int = _BATCH_ROWS,
    attack_steps: int = _ATTACK_STEPS,
) -> torch.nn.Module:
    """Train `model` in place with Adam and a falling learning rate, on one CPU thread; returns it in eval mode.

    With a threat every batch is first moved by `attack_steps` of PGD from a random start (Madry et al. 2018).

    Raises:
        InputError: the threat is not of the Linf norm.
    """
    import torch

    if adversarial_threat is not None and adversarial_threat.norm is not Norm.LINF:
        raise InputError(f"adversarial training is written for L∞ only, not for {adversarial_threat.label}")
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small layers are faster so, and sums keep their order on every machine
    try:
        optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
        batches = -(-len(x) // batch_rows)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=_LEARNING_RATE, total_steps=epochs * batches)
        model.train()
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(x), generator=generator), batch_rows):
                batch = x[rows]
                if adversarial_threat is not None:
                    batch = _moved(model, batch, y[rows], adversarial_threat.epsilon, attack_steps, generator)
                loss = torch.nn.functional.cross_entropy(model(batch), y[rows])
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                schedule.step()
    finally:
        torch.set_num_threads(threads)
    return model.eval()


def _moved(
    model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, epsilon: float, steps: int, generator: torch.Generator
) -> torch.Tensor:
    """PGD on the cross-entropy within [x - epsilon, x + epsilon] and [0, 1], from a uniform random start."""
    import torch

    low, high = (x - epsilon).clamp(min=0), (x + epsilon).clamp(max=1)
    moved = low + (high - low) * torch.rand(x.shape, generator=generator)
    for _ in range(steps):
        moved.requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(model(moved), y)
        (gradient,) = torch.autograd.grad(loss, moved)
        moved = (moved.detach() + 2.5 * epsilon / steps * gradient.sign()).clamp(low, high)
    return moved


def log_version(
    model: torch.nn.Module,
    name: str,
    example: Images,
    *,
    description: str,
    tags: Mapping[str, str],
    run_name: str,
    experiment_id: str | None = None,
) -> str:
    """Log a trained model to the current MLflow store and register it; returns `models:/name/version`.

    It is serialised as an exported program, so that loading it later runs no pickle. `example` (n > 1, c, h, w) fixes the input's
    shape with a free number of rows; None of `experiment_id` takes MLflow's current experiment.
    """
    import mlflow
    import torch
    from mlflow import MlflowClient

    version = torch.__version__.partition("+")[0]
    with mlflow.start_run(run_name=run_name, experiment_id=experiment_id):
        info = mlflow.pytorch.log_model(
            model.eval(),
            name=name,
            input_example=example,
            registered_model_name=name,
            pip_requirements=[f"torch=={version}"],
        )
    number = str(info.registered_model_version)
    client = MlflowClient()
    client.update_model_version(name, number, description=description)
    for key, value in tags.items():
        client.set_model_version_tag(name, number, key, value)
    return f"models:/{name}/{number}"


def register_demo_models(tracking_uri: str, name: str, artifacts: Path) -> tuple[str, str]:
    """The URIs of the standard model and of its adversarially trained twin in that store, versions 1 and 2 of a fresh one.

    Versions of an earlier demo, known by their tags, are used again when they can still be found; otherwise they are trained. Their
    files go below `artifacts`: MLflow's own default would be a folder wherever the command was typed.
    """
    with current_store(tracking_uri):
        # The audit's own experiment, so that its files lie beside the models'.
        experiment(AUDIT_EXPERIMENT, artifacts)
        standard, adversarial = (_existing(name, recipe) or _trained(name, recipe, artifacts) for recipe in _RECIPES)
    return standard, adversarial


def _existing(name: str, recipe: _Recipe) -> str | None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.models import get_model_info

    versions = MlflowClient().search_model_versions(f"name = '{name}'")
    for version in sorted(versions, key=lambda version: int(version.version)):
        if version.tags.get(_DEMO_TAG) != "1" or version.tags.get(_TRAINING_TAG) != recipe.training:
            continue
        uri = f"models:/{name}/{version.version}"
        try:
            get_model_info(uri)
        except (MlflowException, OSError):  # the registry outlived the files
            continue
        return uri
    return None


@contextmanager
def current_store(uri: str) -> Iterator[None]:
    """Make `uri` MLflow's store and registry for a while.

    Its setters also write the environment, and the environment is what says what was set before: putting back what its getters
    return would pin a default that was never chosen.
    """
    import mlflow

    tracking, registry = os.environ.get("MLFLOW_TRACKING_URI"), os.environ.get("MLFLOW_REGISTRY_URI")
    with variables({"MLFLOW_TRACKING_URI": uri, "MLFLOW_REGISTRY_URI": uri}):
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
        try:
            yield
        finally:
            # None is how both are unset, whatever their annotations say.
            mlflow.set_tracking_uri(tracking)  # type: ignore[arg-type]
            mlflow.set_registry_uri(registry)  # type: ignore[arg-type]


def experiment(name: str, artifacts: Path) -> str:
    """The id of the experiment called `name` in the current store; a new one keeps its files below `artifacts`."""
    import mlflow

    found = mlflow.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    return str(mlflow.create_experiment(name, artifact_location=(artifacts / name).resolve().as_uri()))


def _trained(name: str, recipe: _Recipe, artifacts: Path) -> str:
    from audit import data

    digits = data.load("digits:train")
    images = digits.images(range(len(digits.labels)))
    model = train(images, digits.labels, epochs=recipe.epochs, adversarial_threat=recipe.threat, seed=0)
    tags = {
        _DEMO_TAG: "1",
        _TRAINING_TAG: recipe.training,
        "intended_use": "shows what an audit looks like, on 8 x 8 grey digits",
        "not_for": "reading real handwriting; any decision about people",
    }
    return log_version(
        model,
        name,
        images[:8],
        description=recipe.description,
        tags=tags,
        run_name=f"{name}, {recipe.training}",
        experiment_id=experiment(TRAINING_EXPERIMENT, artifacts),
    )
