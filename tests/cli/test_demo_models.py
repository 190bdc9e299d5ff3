"""The training code of `audit demo`, for one epoch: it learns, it repeats itself, and what it registers is found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from audit import data
from audit.cli import demo_models
from audit.errors import InputError
from audit.evidence import Images, Ints
from audit.vocabulary import Threat


@pytest.fixture(scope="module")
def digits() -> tuple[Images, Ints]:
    dataset = data.load("digits:train")
    return dataset.images(range(len(dataset.labels))), dataset.labels


def loss_under_attack(model: torch.nn.Module, images: Images, labels: Ints, epsilon: float) -> float:
    """The mean loss after one signed gradient step, written out here once more."""
    x, y = torch.from_numpy(images).requires_grad_(True), torch.from_numpy(labels)
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), y), x)
    with torch.no_grad():
        moved = (x + epsilon * gradient.sign()).clamp(0, 1)
        return float(torch.nn.functional.cross_entropy(model(moved), y))


def test_one_epoch_learns_and_repeats_itself_without_touching_global_state(digits: tuple[Images, Ints]) -> None:
    images, labels = digits
    torch.manual_seed(123)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, second, other = (demo_models.train(images, labels, epochs=1, adversarial_threat=None, seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    x = torch.from_numpy(images)
    assert not first.training
    assert torch.equal(first(x), second(x))
    assert not torch.equal(first(x), other(x))
    assert float((first(x).argmax(1).numpy() == labels).mean()) > 0.5


def test_adversarial_training_lowers_the_loss_under_attack(digits: tuple[Images, Ints]) -> None:
    images, labels = digits
    threat = Threat.parse("linf:0.15")
    plain = demo_models.train(images, labels, epochs=4, adversarial_threat=None, seed=0)
    hardened = demo_models.train(images, labels, epochs=4, adversarial_threat=threat, seed=0)
    losses = [loss_under_attack(model, images, labels, threat.epsilon) for model in (plain, hardened)]
    assert losses[1] < losses[0]


def test_the_training_attack_stays_in_the_ball_and_raises_the_loss(digits: tuple[Images, Ints]) -> None:
    images, labels = digits
    model = demo_models.train(images, labels, epochs=1, adversarial_threat=None, seed=0)
    x, y = torch.from_numpy(images[:50]), torch.from_numpy(labels[:50])
    moved = demo_models._moved(model, x, y, 0.15, 5, torch.Generator().manual_seed(0))
    assert float((moved - x).abs().max()) <= 0.15 + 1e-6
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
    before, after = (torch.nn.functional.cross_entropy(model(batch), y).detach() for batch in (x, moved))
    assert float(after) > float(before)


def test_only_linf_is_trained_against(digits: tuple[Images, Ints]) -> None:
    with pytest.raises(InputError, match="L∞ only"):
        demo_models.train(*digits, epochs=1, adversarial_threat=Threat.parse("l2:0.5"), seed=0)


def test_models_are_registered_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: tuple[Images, Ints]
) -> None:
    import mlflow

    folder = tmp_path / "a store"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(demo_models, "_RECIPES", tuple(replace(recipe, epochs=1) for recipe in demo_models._RECIPES))
    store = f"sqlite:///{folder}/mlflow.db"
    mlflow.set_tracking_uri(None)  # what another test chose in this process is no default
    before = mlflow.get_tracking_uri()
    place = tmp_path / "artifacts"
    assert demo_models.register_demo_models(store, "digits-demo", place) == ("models:/digits-demo/1", "models:/digits-demo/2")
    assert demo_models.register_demo_models(store, "digits-demo", place) == ("models:/digits-demo/1", "models:/digits-demo/2")
    assert mlflow.get_tracking_uri() == before

    client = mlflow.MlflowClient(store, store)
    assert len(client.search_model_versions("name = 'digits-demo'")) == 2
    second = client.get_model_version("digits-demo", "2")
    assert second.tags["audit.demo"] == "1"
    assert second.tags["intended_use"]
    assert second.tags["not_for"]
    assert "PGD" in second.description

    client.delete_model_version_tag("digits-demo", "2", "audit.demo")
    assert demo_models.register_demo_models(store, "digits-demo", place) == ("models:/digits-demo/1", "models:/digits-demo/3")

    with demo_models.current_store(store):
        loaded = mlflow.pytorch.load_model("models:/digits-demo/1")
    images, labels = digits
    trained = demo_models.train(images, labels, epochs=1, adversarial_threat=None, seed=0)
    batch = torch.from_numpy(images[:5])  # not the number of rows it was logged with
    np.testing.assert_allclose(loaded(batch).detach(), trained(batch).detach(), atol=1e-5)
