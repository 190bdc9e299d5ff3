"""What a model's outputs mean: one unit, clamped probabilities, dataclasses; each against torch written out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from small_models import Returns, Small, images

from audit.errors import InputError, ModelError
from audit.models import Classifier, resolve_outputs
from audit.models.input_spec import InputSpec
from audit.models.outputs import Outputs, check_still_shares, look
from audit.models.torch_module import wrap

SHAPE = (3, 8, 8)


def resolved(shape: Callable[[torch.Tensor], object], **options: object) -> Classifier:
    return resolve_outputs(wrap(Returns(shape), image_shape=SHAPE, device="cpu", **options), images(32))  # type: ignore[arg-type]


def plain(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return Small().eval()(x)


def unit(z: torch.Tensor) -> torch.Tensor:
    """Shifted and scaled, so that both signs occur."""
    return (z[:, 0] - z[:, 1] - 0.11) * 50


@pytest.mark.parametrize("shape", [lambda z: unit(z), lambda z: unit(z)[:, None], lambda z: unit(z)[:, None, None, None]])
def test_a_single_logit_is_two_classes(shape: Callable[[torch.Tensor], torch.Tensor]) -> None:
    classifier, x = resolved(shape), images(20, seed=3)
    assert (classifier.classes, classifier.identity.outputs) == (2, "one logit for two classes (detected)")
    assert bool((unit(plain(images(32))) < 0).any())
    expected = torch.sigmoid(unit(plain(x)))
    torch.testing.assert_close(classifier.logits(x).softmax(1)[:, 1], expected, rtol=1e-3, atol=1e-5)
    assert classifier.identity.cautions == ()


def test_a_single_sigmoid_is_two_classes_and_has_the_slope_of_log_p() -> None:
    classifier, x = resolved(lambda z: torch.sigmoid(unit(z))[:, None]), images(5, seed=3)
    assert classifier.identity.outputs == "the probability of the second of two classes (detected)"
    assert any("state outputs=logits" in text for text in classifier.identity.cautions)
    p = torch.sigmoid(unit(plain(x)))
    torch.testing.assert_close(classifier.logits(x), torch.stack((1 - p, p), dim=1).log(), rtol=1e-3, atol=1e-5)
    scores, jacobian = classifier.jacobian(x)
    network = Small().eval()

    def both(image: torch.Tensor) -> torch.Tensor:
        share = torch.sigmoid(unit(network(image[None])))
        return torch.cat((1 - share, share)).log()

    for row in range(len(x)):
        expected = torch.autograd.functional.jacobian(both, x[row]).flatten(1)
        torch.testing.assert_close(jacobian[row], expected, rtol=1e-3, atol=1e-4)
    z, _, gradient = classifier.loss_gradient(x, lambda outputs, _: outputs[:, 1])
    torch.testing.assert_close(gradient.flatten(1), jacobian[:, 1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(scores, z)
    direction = images(5, seed=4)
    slopes = (jacobian * direction.flatten(1)[:, None]).sum(dim=2)
    torch.testing.assert_close(classifier.jvp(x, direction)[1], slopes, rtol=1e-3, atol=1e-4)


def test_one_value_that_was_stated() -> None:
    stated = resolved(lambda z: torch.sigmoid(unit(z)), spec=InputSpec(outputs="probabilities"))
    assert stated.identity.outputs.endswith("two classes (stated)") and stated.identity.cautions == ()
    as_logit = resolved(lambda z: torch.sigmoid(unit(z)), spec=InputSpec(outputs="logits"))
    assert as_logit.identity.outputs == "one logit for two classes (stated)"
    assert any("softmax is applied twice" in text for text in as_logit.identity.cautions)
    with pytest.raises(ModelError, match="outputs=probabilities was stated"):
        resolved(unit, spec=InputSpec(outputs="probabilities"))


@pytest.mark.parametrize("bound", [1e-7, 1e-3, 0.01])
def test_clamped_probabilities_are_probabilities(bound: float) -> None:
    classifier, x = resolved(lambda z: (z * 200).softmax(1).clamp(bound, 1 - bound)), images(8, seed=4)
    assert classifier.identity.outputs == "probabilities (detected)"
    assert any("clamps its probabilities" in text for text in classifier.identity.cautions) == (bound > 1e-4)
    expected = (plain(x) * 200).softmax(1).clamp(bound, 1 - bound).log()
    torch.testing.assert_close(classifier.logits(x), expected, rtol=1e-3, atol=1e-3)


def test_sigmoids_per_class_are_no_probabilities_and_say_so() -> None:
    classifier = resolved(lambda z: torch.sigmoid(z * 5))
    assert classifier.identity.outputs == "logits (detected)"
    assert any("one sigmoid per class" in text for text in classifier.identity.cautions)


@dataclass
class Answer:
    loss: torch.Tensor | None
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()


class ModelOutput(OrderedDict[str, object]):
    """As transformers has it: a dictionary that is a dataclass as well."""


@pytest.mark.parametrize(
    "shape", [lambda z: Answer(loss=None, logits=z, hidden=(z,)), lambda z: ModelOutput(logits=z, hidden_states=(z, z))]
)
def test_objects_with_logits(shape: Callable[[torch.Tensor], object]) -> None:
    classifier = resolved(shape)
    torch.testing.assert_close(classifier.logits(images(3)), plain(images(3)), rtol=1e-5, atol=1e-6)
    assert any("its entry 'logits' was used" in text for text in classifier.identity.cautions)


def test_an_output_is_chosen_by_name_or_position() -> None:
    named = resolved(lambda z: {"logits": z, "auxiliary": -z}, output="auxiliary")
    placed = resolved(lambda z: (z, -z), output="1")
    for classifier in (named, placed):
        torch.testing.assert_close(classifier.logits(images(3)), -plain(images(3)), rtol=1e-5, atol=1e-6)
        assert classifier.identity.cautions == ()
    assert named.identity.input_spec["output"] == "auxiliary"
    with pytest.raises(InputError, match=r"has no output 'logit'; did you mean 'logits'\? \(it has 'logits', 'auxiliary'\)"):
        resolved(lambda z: {"logits": z, "auxiliary": -z}, output="logit")
    with pytest.raises(InputError, match="returns one tensor, which has no name"):
        resolved(lambda z: z, output="logits")


def test_rounded_probabilities_are_taken_where_they_are_stated() -> None:
    def rounded(z: torch.Tensor) -> torch.Tensor:
        return ((z * 5).softmax(1) * 256).round() / 256

    sums = rounded(plain(images(32))).sum(1)
    assert 1e-3 < float((sums - 1).abs().max()) < 0.05
    assert resolved(rounded).identity.outputs == "logits (detected)"
    stated, x = resolved(rounded, spec=InputSpec(outputs="probabilities")), images(20, seed=3)
    assert stated.identity.outputs == "probabilities (stated)" and "do not quite sum to 1" in stated.identity.cautions[-1]
    torch.testing.assert_close(stated.logits(x).exp(), rounded(plain(x)), rtol=1e-5, atol=1e-6)
    # One sigmoid per class is no distribution over them, whatever is stated.
    with pytest.raises(ModelError, match="outputs=probabilities was stated"):
        resolved(torch.sigmoid, spec=InputSpec(outputs="probabilities"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("classes", [5, 200])
def test_probabilities_in_a_short_float_are_found_without_being_stated(dtype: torch.dtype, classes: int) -> None:
    logits = torch.randn(64, classes, generator=torch.Generator().manual_seed(0)) * 4
    once = logits.softmax(1).to(dtype).float()
    rounded = (logits - logits.amax(1, keepdim=True)).exp().to(dtype)
    in_steps = (rounded / rounded.sum(1, keepdim=True)).float()
    for scores in (once, in_steps):
        outputs, cautions = look(scores, one_value=False)
        assert outputs is Outputs.PROBABILITIES
        off = float((scores.sum(1) - 1).abs().max()) > 1e-3
        assert any(f"rounds its probabilities to {str(dtype)[6:]}" in text for text in cautions) == off


def test_sigmoids_in_a_short_float_are_no_probabilities() -> None:
    logits = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    assert look(logits.sigmoid().bfloat16().float(), one_value=False)[0] is Outputs.LOGITS
    # Sums that are off by more than the type explains: nothing says that these are probabilities.
    nearly = (logits.softmax(1) * 1.03).bfloat16().float()
    outputs, (caution,) = look(nearly, one_value=False)
    assert outputs is Outputs.LOGITS and "If they are rounded probabilities, state outputs=probabilities" in caution


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (lambda z: z.softmax(1), "on others they are none"),
        (lambda z: torch.sigmoid(z[:, :1]), "on others they are none"),
    ],
)
def test_what_only_looks_like_probabilities_at_first_is_an_error(first: Callable[[torch.Tensor], torch.Tensor], says: str) -> None:
    class Switches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = self.inner(x)
            shares = first(z)
            return torch.where(x.mean((1, 2, 3))[:, None] > 0.9, z[:, : shares.shape[1]] * 50, shares)

    classifier, bright = resolve_outputs(wrap(Switches(), image_shape=SHAPE, device="cpu"), images(32)), torch.ones(3, *SHAPE)
    assert "probabilit" in classifier.identity.outputs
    classifier.logits(images(9, seed=5))
    for call in (
        lambda: classifier.logits(bright),
        lambda: classifier.jacobian(bright),
        lambda: classifier.loss_gradient(bright, lambda z, _: z[:, 0]),
    ):
        with pytest.raises(ModelError, match=says):
            call()


def test_row_sums_are_checked_later_too() -> None:
    off = torch.tensor([[0.2, 0.4], [0.6, 0.6]])
    check_still_shares(torch.tensor([[0.5, 0.52]]), Outputs.PROBABILITIES, "m", sums_to_one=True)
    check_still_shares(off, Outputs.PROBABILITIES, "m", sums_to_one=False)  # rounded to few digits, or clamped
    with pytest.raises(ModelError, match=r"m: .*\(0.2 to 0.6, row sums 0.6 to 1.2\)"):
        check_still_shares(off, Outputs.PROBABILITIES, "m", sums_to_one=True)

    class Drifts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).softmax(1) * torch.where(x.mean((1, 2, 3)) > 0.9, 0.5, 1.0)[:, None]

    classifier = resolve_outputs(wrap(Drifts(), image_shape=SHAPE, device="cpu"), images(32))
    with pytest.raises(ModelError, match=r"row sums 0\.5 to 0\.5"):
        classifier.logits(torch.ones(3, *SHAPE))
