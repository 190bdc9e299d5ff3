from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from small_models import Small, images

from audit.cli.demo_models import current_store
from audit.errors import InputError, ModelError, UntrustedError
from audit.models import Classifier, ModelRef, load, resolve_outputs
from audit.models.loading import opened
from audit.models.located import located
from audit.vocabulary import Capability

SHAPE = (1, 8, 8)
NAMES = tuple(f"digit {k}" for k in range(10))


@dataclass(frozen=True, kw_only=True)
class Flavours:
    uri: str
    run_id: str
    pixels: np.ndarray
    labels: np.ndarray
    logistic: LogisticRegression
    ridge: RidgeClassifier


@pytest.fixture(scope="module")
def flavours(tmp_path_factory: pytest.TempPathFactory) -> Flavours:
    """Classifiers of digits in a run of a store: scikit-learn's with and without probabilities, and functions of our own."""
    import mlflow
    from mlflow import MlflowClient
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import Schema, TensorSpec

    class Network(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        """A small network over (n, 8, 8, 1) that keeps its weights in a file and reads them whenever it is asked."""

        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
            weights = np.load(context.artifacts["weights"])
            return model_input.reshape(len(model_input), -1) @ weights

    class Sorting(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        """Names every score, the largest first, as services do; alone in a batch, an image decides the order."""

        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
            scores = model_input.reshape(len(model_input), -1) @ np.load(context.artifacts["weights"])
            order = (-scores[0]).argsort()
            return pd.DataFrame(scores[:, order], columns=[NAMES[k] for k in order])

    class Failing(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
            raise RuntimeError("out of order\nsecond line")

    folder = tmp_path_factory.mktemp("flavours")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.create_experiment("flavours", artifact_location=(folder / "artefacts").as_uri())
    x, labels = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    logistic = LogisticRegression(max_iter=30).fit(x, labels)
    table = pd.DataFrame(x.astype(np.float64), columns=[f"p{index}" for index in range(64)])
    named = LogisticRegression(max_iter=30).fit(table, np.array(NAMES)[labels])
    ridge = RidgeClassifier().fit(x, labels)
    np.save(folder / "weights.npy", logistic.coef_.T.astype(np.float32))
    tensor = lambda *shape: ModelSignature(inputs=Schema([TensorSpec(np.dtype("float64"), (-1, *shape))]))  # noqa: E731
    own = {"artifacts": {"weights": str(folder / "weights.npy")}, "pip_requirements": ["numpy"]}
    with current_store(uri), warnings.catch_warnings(), mlflow.start_run(experiment_id=experiment) as run:
        warnings.simplefilter("ignore")
        needs = {"pip_requirements": ["scikit-learn"], "serialization_format": "cloudpickle"}
        mlflow.sklearn.log_model(logistic, name="logistic", **needs)
        mlflow.sklearn.log_model(named, name="named", signature=infer_signature(table, np.array(NAMES)[labels]), **needs)
        mlflow.sklearn.log_model(ridge, name="ridge", signature=infer_signature(table, labels), **needs)
        mlflow.pyfunc.log_model(name="network", python_model=Network(), signature=tensor(8, 8, 1), **own)
        mlflow.pyfunc.log_model(name="plain", python_model=Network(), **own)
        whole = ModelSignature(inputs=Schema([TensorSpec(np.dtype("int64"), (-1, 8, 8, 1))]))
        mlflow.pyfunc.log_model(name="whole", python_model=Network(), signature=whole, **own)
        mlflow.pyfunc.log_model(name="sorting", python_model=Sorting(), **own)
        mlflow.pyfunc.log_model(name="failing", python_model=Failing(), pip_requirements=["numpy"])
        mlflow.pyfunc.log_model(name="wide", python_model=Network(), signature=tensor(100), **own)
    return Flavours(uri=uri, run_id=run.info.run_id, pixels=x, labels=labels, logistic=logistic, ridge=ridge)


def open_flavour(store: Flavours, name: str, **options: object) -> Classifier:
    options = {"image_shape": SHAPE, "trust": True, "block_rows": 16, "tracking_uri": store.uri, **options}
    return load(ModelRef.parse(f"runs:/{store.run_id}/{name}"), **options)  # type: ignore[arg-type]


def digits(store: Flavours, count: int = 40) -> torch.Tensor:
    return torch.from_numpy(store.pixels[:count].reshape(-1, *SHAPE))


def test_what_scikit_learn_gives_as_probabilities_becomes_log_probabilities(flavours: Flavours) -> None:
    x = digits(flavours)
    classifier = resolve_outputs(open_flavour(flavours, "logistic"), x)
    expected = np.log(flavours.logistic.predict_proba(flavours.pixels[:40]))
    np.testing.assert_allclose(classifier.logits(x).numpy(), expected, rtol=1e-4, atol=1e-5)
    identity = classifier.identity
    assert identity.outputs == "probabilities (detected)" and identity.runtime.startswith("scikit-learn ")
    assert (identity.flavour, identity.trusted, identity.opaque, identity.class_names) == ("python_function", True, False, ())
    assert set(classifier.lacks) == {Capability.GRADIENTS, Capability.ACTIVATIONS}


def test_a_table_with_named_columns_and_named_classes(flavours: Flavours) -> None:
    x = digits(flavours)
    classifier = open_flavour(flavours, "named")
    assert classifier.identity.class_names == tuple(sorted(NAMES))
    assert torch.equal(classifier.logits(x).argmax(1), torch.tensor(flavours.logistic.predict(flavours.pixels[:40])))


def test_a_classifier_without_probabilities_gives_labels_only(flavours: Flavours) -> None:
    x = digits(flavours)
    with pytest.raises(ModelError, match="nothing says how many classes"):
        open_flavour(flavours, "ridge")
    classifier = resolve_outputs(open_flavour(flavours, "ridge", class_names=NAMES), x)
    assert torch.equal(classifier.logits(x).argmax(1), torch.tensor(flavours.ridge.predict(flavours.pixels[:40])))
    assert Capability.SCORES in classifier.lacks and classifier.identity.runtime.startswith("mlflow.pyfunc ")


def test_a_model_of_its_own_is_given_what_its_signature_asks_for(flavours: Flavours) -> None:
    x = digits(flavours)
    expected = flavours.pixels[:40] @ flavours.logistic.coef_.T
    for name in ("network", "plain"):
        np.testing.assert_allclose(
            open_flavour(flavours, name, spec="layout=NHWC").logits(x).numpy(), expected, rtol=1e-3, atol=1e-3
        )
    with pytest.raises(ModelError, match="takes images of 8x8x1, but the data are 1x4x16"):
        open_flavour(flavours, "network", image_shape=(1, 4, 16))
    with pytest.raises(ModelError, match="takes 100 values per image, but the data have 64"):
        open_flavour(flavours, "wide")
    with pytest.raises(ModelError, match="takes 64 values per image, but the data have 192"):
        open_flavour(flavours, "logistic", image_shape=(3, 8, 8))


def test_whole_numbers_are_rounded_to_and_no_other_output_is_chosen(flavours: Flavours) -> None:
    whole = np.arange(256, dtype=np.float32).reshape(4, *SHAPE)
    between = torch.from_numpy((whole[:, :, ::-1] - np.float32(0.4)).clip(0) / np.float32(255))
    scores = open_flavour(flavours, "whole", spec="layout=NHWC,range=0-255").logits(between)
    expected = whole[:, :, ::-1].reshape(4, -1) @ flavours.logistic.coef_.T
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-4, atol=1e-2)
    with pytest.raises(InputError, match="--output is for ONNX graphs and torch modules"):
        open_flavour(flavours, "plain", spec="layout=NHWC", output="second")


def test_columns_in_the_order_of_an_answer_are_put_into_one_order(flavours: Flavours) -> None:
    x = digits(flavours)
    classifier = open_flavour(flavours, "sorting", class_names=NAMES)
    expected = flavours.pixels[:40] @ flavours.logistic.coef_.T
    np.testing.assert_allclose(classifier.logits(x).numpy(), expected, rtol=1e-3, atol=1e-3)
    assert classifier.identity.class_names == NAMES
    ref = ModelRef.parse(f"runs:/{flavours.run_id}/sorting")
    # As an inspection asks it, before it is looked at.
    with located(ref, spec=None, tracking_uri=flavours.uri, registry_uri=None) as found:
        for names in (NAMES, ()):
            model = opened(found, trust=True, device="cpu", block_rows=16, class_names=names)
            scores = torch.cat([model.scores(x[k : k + 1]) for k in range(40)])
            order = list(range(10)) if names else (-expected[0]).argsort()
            np.testing.assert_allclose(scores.numpy(), expected[:, order], rtol=1e-3, atol=1e-3)


def test_what_the_model_raises_is_one_sentence(flavours: Flavours) -> None:
    with pytest.raises(ModelError, match="refuses images of 1x8x8") as error:
        open_flavour(flavours, "failing")
    assert "out of order" in str(error.value) and "second line" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("logistic", "the loader module mlflow.sklearn"),
        ("network", "the pickle python_model.pkl"),
        ("ridge", "for the flavour sklearn"),
    ],
)
def test_nothing_runs_without_trust(flavours: Flavours, name: str, runs: str) -> None:
    with pytest.raises(UntrustedError, match=re.escape(runs)):
        open_flavour(flavours, name, trust=False)


def test_a_pytorch_or_onnx_flavour_comes_first(store: object) -> None:
    ref = f"runs:/{store.run_id}/pt2"  # type: ignore[attr-defined]
    classifier = load(ModelRef.parse(ref), image_shape=(3, 8, 8), trust=True, tracking_uri=store.uri)  # type: ignore[attr-defined]
    assert classifier.identity.flavour == "pytorch (pt2)"
    torch.testing.assert_close(classifier.logits(images(3)), Small().eval()(images(3)).detach(), rtol=1e-4, atol=1e-5)


def test_the_size_of_an_image_comes_with_the_data(flavours: Flavours) -> None:
    with pytest.raises(InputError, match="does not declare the size of its images"):
        open_flavour(flavours, "logistic", image_shape=None)
