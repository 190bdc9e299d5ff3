"""The digits network in every form, with every input and output: the same predictions, the right words, the same gradients.

    form            logits  probabilities  labels
    torch module      x          x         refused: a module that returns class numbers holds no scores
    torch pickle      x          x         refused, as above
    torch export      x          x         refused, as above
    ONNX file         x          x         refused: a graph that gives class numbers only
    ONNX flavour      x          x         refused, as above
    pyfunc            x          x         labels only
    scikit-learn      -          x         labels only; it is asked for predict_proba, which is never logits
    scoring server    x          x         labels only
    v2 server         x          x         labels only
    function          x          x         labels only

each with pixels in 0-1, 0-255 and normalised, as NCHW and as NHWC. What costs milliseconds (module, ONNX file, servers, function)
is tested in all 18 cells. What MLflow has to log is tested in 9 that hold every pair of range, layout and outputs; the benchmark
`model_matrix.py` takes all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pytest
import torch
from model_cells import CELLS, COVERING, FORMS, LAYOUTS, MEAN, OUTPUTS, RANGES, STD, Cell, Workshop, as_option, exists, refused
from scripted_server import serving

from audit import data
from audit.cli.demo_models import train
from audit.errors import ModelError
from audit.models import Classifier, ModelRef, load, resolve_outputs
from audit.models.input_spec import from_options
from audit.models.torch_module import wrap
from audit.vocabulary import Capability

SHAPE = (1, 8, 8)
NAMES = tuple(f"digit {k}" for k in range(10))
CHEAP = ("ONNX file", "scoring server", "v2 server", "function")
CLASS_NUMBERS = "gives only class numbers"
WHITE: set[Capability] = set()
BLACK = {Capability.ACTIVATIONS, Capability.GRADIENTS}


@dataclass(frozen=True, kw_only=True)
class Words:
    """What the identity of a form says, and what the form lacks."""

    flavour: str
    runtime: str
    lacks: set[Capability]
    trusted: bool = False
    gradients: str = ""


CONVERTED = "from the graph, converted to torch"
WORDS = {
    "torch pickle": Words(flavour="pytorch (pickle)", runtime="torch 2", lacks=WHITE, trusted=True),
    "torch export": Words(flavour="pytorch (pt2)", runtime="torch 2", lacks=WHITE),
    "ONNX file": Words(flavour="onnx file", runtime="ONNX Runtime", lacks=WHITE, gradients=CONVERTED),
    "ONNX flavour": Words(flavour="onnx", runtime="ONNX Runtime", lacks=WHITE, gradients=CONVERTED),
    "pyfunc": Words(flavour="python_function", runtime="mlflow.pyfunc", lacks=BLACK, trusted=True),
    "scikit-learn": Words(flavour="python_function", runtime="scikit-learn", lacks=BLACK, trusted=True),
    "scoring server": Words(flavour="endpoint (MLflow scoring server)", runtime="MLflow scoring server, 32 images", lacks=BLACK),
    "v2 server": Words(flavour="endpoint (v2 inference protocol)", runtime="v2 inference server (scripted)", lacks=BLACK),
    "function": Words(flavour="Python function", runtime="called in this process", lacks=BLACK, trusted=True),
}


def cells_of(form: str) -> list[Cell]:
    return [cell for cell in (CELLS if form in CHEAP else COVERING) if exists(form, cell)]


EVERY = [pytest.param(form, cell, id=f"{form}-{cell.name}") for form in FORMS for cell in cells_of(form)]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """100 digits, and what the plain network says of them: its logits, and the gradient of its loss with respect to pixels."""

    images: torch.Tensor
    labels: torch.Tensor
    logits: torch.Tensor
    gradient: torch.Tensor

    def loss(self, scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(scores, self.labels[rows], reduction="none")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    digits = data.load("digits:train")
    images = digits.images(range(len(digits.labels)))
    network = train(images, digits.labels, epochs=4, adversarial_threat=None, seed=0)
    folder = tmp_path_factory.mktemp("cells")
    sys.path.append(str(folder))
    workshop = Workshop(network=network, images=images[:8], folder=folder)
    with serving(workshop.respond) as server:
        workshop.server = server.url
        yield workshop
    sys.path.remove(str(folder))
    sys.modules.pop("functions_of_cells", None)


@pytest.fixture(scope="module")
def truth(shop: Workshop) -> Truth:
    digits = data.load("digits:test")
    images, labels = torch.from_numpy(digits.images(range(100))), torch.from_numpy(digits.labels[:100].astype(np.int64))
    x = images.clone().requires_grad_(True)
    logits = shop.network(x)
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"), x)
    logits = logits.detach()
    top = logits.topk(2, dim=1).values
    assert float((top[:, 0] - top[:, 1]).min()) > 1e-3, "a tie would make equal predictions a matter of rounding"
    assert len(logits.argmax(1).unique()) == 10
    return Truth(images=images, labels=labels, logits=logits, gradient=gradient)


def opened(shop: Workshop, form: str, cell: Cell, **options: object) -> Classifier:
    built = shop.built(form, cell)
    options = {"spec": built.input_spec, "trust": built.trust, "class_names": NAMES, **options}
    ref = ModelRef.parse(built.reference)
    return load(ref, image_shape=SHAPE, device="cpu", tracking_uri=shop.store, **options)  # type: ignore[arg-type]


def agrees(classifier: Classifier, cell: Cell, truth: Truth) -> None:
    """The scores are those of the network, as far as its outputs let them be known; the gradients too, where there are any."""
    scores = classifier.logits(truth.images)
    assert torch.equal(scores.argmax(1), truth.logits.argmax(1))
    if cell.outputs == "labels":
        assert torch.equal(scores, torch.nn.functional.one_hot(truth.logits.argmax(1), 10).float())
    else:
        expected = truth.logits if cell.outputs == "logits" else truth.logits.log_softmax(1)
        torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-5)
    if Capability.GRADIENTS not in classifier.lacks:
        # With respect to pixels in [0, 1], whatever the network takes.
        gradient = classifier.loss_gradient(truth.images, truth.loss)[2]
        torch.testing.assert_close(gradient, truth.gradient, atol=1e-5, rtol=1e-3)
    said = classifier.identity.outputs
    assert said == ("labels only" if cell.outputs == "labels" else f"{cell.outputs} (detected)")
    assert (classifier.classes, classifier.identity.input_shape) == (10, SHAPE)


@pytest.mark.parametrize(("form", "cell"), EVERY)
def test_every_form_of_a_network_predicts_the_same(form: str, cell: Cell, shop: Workshop, truth: Truth) -> None:
    words = WORDS[form]
    if refused(form, cell):
        with pytest.raises(ModelError) as error:
            opened(shop, form, cell)
        assert (
            CLASS_NUMBERS in str(error.value) and "needs one score per class" in str(error.value) and "\n" not in str(error.value)
        )
        return
    classifier = resolve_outputs(opened(shop, form, cell), truth.images)
    agrees(classifier, cell, truth)
    identity = classifier.identity
    # Without predict_proba, scikit-learn is asked like any other pyfunc model.
    runtime = "mlflow.pyfunc" if (form, cell.outputs) == ("scikit-learn", "labels") else words.runtime
    assert identity.flavour == words.flavour and identity.runtime.startswith(runtime)
    assert identity.trusted is words.trusted and identity.gradients.startswith(words.gradients)
    assert bool(identity.gradients) is bool(words.gradients)
    assert set(classifier.lacks) == words.lacks | ({Capability.SCORES} if cell.outputs == "labels" else set())
    low_high = "0 to 255" if cell.range == "0-255" else "0 to 1"
    mean, std = (str(MEAN), str(STD)) if cell.range == "normalised" else ("0", "1")
    assert {key: identity.input_spec[key] for key in ("layout", "range", "mean", "std")} == {
        "layout": cell.layout,
        "range": low_high,
        "mean": mean,
        "std": std,
    }


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_a_module_in_memory_predicts_the_same(cell: Cell, shop: Workshop, truth: Truth) -> None:
    spec = from_options([as_option(cell)]).complete()
    if cell.outputs == "labels":
        with pytest.raises(ModelError, match=CLASS_NUMBERS):
            wrap(shop.wrapped(cell), image_shape=SHAPE, spec=spec, device="cpu")
        return
    classifier = wrap(shop.wrapped(cell), image_shape=SHAPE, spec=spec, device="cpu")
    agrees(resolve_outputs(classifier, truth.images), cell, truth)
    assert (set(classifier.lacks), classifier.identity.flavour) == (WHITE, "torch module")


def test_the_covering_cells_hold_every_pair() -> None:
    levels = {"range": tuple(RANGES), "layout": LAYOUTS, "outputs": OUTPUTS}
    for one, other in combinations(levels, 2):
        pairs = {(getattr(cell, one), getattr(cell, other)) for cell in COVERING}
        assert pairs == set(product(levels[one], levels[other]))
    assert len(COVERING) == 9 and len(set(CELLS)) == 18


@pytest.mark.parametrize("form", CHEAP)
def test_a_wrong_statement_does_not_pass_for_the_right_one(form: str, shop: Workshop, truth: Truth) -> None:
    """Otherwise the matrix would show nothing."""
    takes = {cell.range: cell for cell in CELLS if (cell.layout, cell.outputs) == ("NCHW", "logits")}
    for cell in (takes["0-255"], takes["normalised"]):
        wrong = resolve_outputs(opened(shop, form, cell, spec="range=0-1"), truth.images)
        assert not torch.allclose(wrong.logits(truth.images), truth.logits, atol=0.1)
    with pytest.raises(ModelError) as error:
        opened(shop, form, takes["0-1"], spec="layout=NHWC")
    assert "\n" not in str(error.value)


def test_the_input_is_stated_beside_the_model_in_half_of_the_cells(shop: Workshop) -> None:
    for form in ("ONNX file", "ONNX flavour"):
        beside = [cell for cell in cells_of(form) if shop.built(form, cell).input_spec is None]
        assert {cell.range for cell in beside} == set(RANGES) == {cell.range for cell in set(cells_of(form)) - set(beside)}
