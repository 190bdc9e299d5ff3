"""Logits or probabilities: settled once, by looking.

A softmax that is applied twice hides gradients and flattens confidences, so probabilities are turned into log p, whose
softmax is p again. One value per image becomes two classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import torch

from audit.errors import ModelError
from audit.models import Classifier, RowLoss
from audit.models.around import Around
from audit.models.onnx_file import OnnxClassifier, freed_if_equal
from audit.models.probe import ONE_VALUE
from audit.result import ModelIdentity
from audit.vocabulary import Capability

# Far below what a float32 softmax resolves beside 1, far above where 1 / p would overflow.
PROBABILITY_FLOOR = 1e-30
# Sums of float16 probabilities miss 1 by up to about 1e-3; logits of more than one image never come that close.
SUM_TOLERANCE = 1e-3
# Where the user says that they are probabilities: those in steps of 1/256, or of bfloat16, miss 1 by a few per cent.
STATED_SUM_TOLERANCE = 0.05
NEGATIVE_TOLERANCE = 1e-6
# The largest bound that anyone clamps probabilities to; scores between wider bounds are something else.
LARGEST_CLAMP = 0.05


class Outputs(StrEnum):
    """What the scores are; the value is the word for a reader."""

    LOGITS = "logits"
    PROBABILITIES = "probabilities"
    ONE_LOGIT = "one logit for two classes"
    ONE_PROBABILITY = "the probability of the second of two classes"

    @property
    def stated_as(self) -> str:
        """The word for it in an input spec."""
        return "probabilities" if self in (Outputs.PROBABILITIES, Outputs.ONE_PROBABILITY) else "logits"


def resolve_outputs(classifier: Classifier, images: torch.Tensor) -> ResolvedClassifier:
    """Settle once what the outputs are, and give back a classifier that returns logits or log p.

    A user's statement (`outputs=logits|probabilities`) wins over the look of the outputs, and is checked. An ONNX graph with a
    fixed batch is run with larger ones from here on, where these images show that it makes no difference.

    Args:
        classifier: as loaded; its `identity.input_spec["outputs"]` is auto, logits or probabilities.
        images: (n, c, h, w) in [0, 1], a few dozen real ones.

    Raises:
        ModelError: probabilities were stated, but the outputs are none; anything was stated of a model that answers with labels.
    """
    if Capability.SCORES in classifier.lacks:
        stated = classifier.identity.input_spec.get("outputs", "auto")
        if stated != "auto":
            raise ModelError(
                f"{classifier.identity.label}: outputs={stated} was stated, but it answers with labels; leave outputs out"
            )
        return ResolvedClassifier(classifier, classifier.identity, outputs=Outputs.LOGITS)
    if isinstance(classifier, OnnxClassifier):
        classifier = freed_if_equal(classifier, images)
    identity = classifier.identity
    stated = identity.input_spec.get("outputs", "auto")
    scores = classifier.logits(images)
    seen, cautions = look(scores, one_value=identity.outputs == ONE_VALUE)
    outputs, how = seen, "detected"
    if stated == seen.stated_as:
        how = "stated"
        cautions = cautions if seen is Outputs.PROBABILITIES else ()
    elif stated == "probabilities" and seen is Outputs.LOGITS and _nearly_shares(scores):
        outputs, how = Outputs.PROBABILITIES, "stated"
        cautions = ("The model rounds its probabilities: they do not quite sum to 1, and small ones are not told apart.",)
    elif stated == "probabilities":
        raise ModelError(
            f"{identity.label}: outputs=probabilities was stated, but the outputs on {scores.shape[0]} images are not "
            f"(smallest {float(scores.min()):.3g}, row sums {float(scores.sum(1).min()):.3g} to {float(scores.sum(1).max()):.3g}); "
            "state outputs=logits or leave it out"
        )
    elif stated == "logits":
        one = seen is Outputs.ONE_PROBABILITY
        outputs, how = (Outputs.ONE_LOGIT if one else Outputs.LOGITS), "stated"
        looks = "output lies between 0 and 1" if one else "output row sums to 1"
        cautions = (f"outputs=logits was stated, but every {looks}, as probabilities do: softmax is applied twice.",)
    identity = replace(identity, outputs=f"{outputs} ({how})", cautions=(*identity.cautions, *cautions))
    exact = outputs is Outputs.PROBABILITIES and seen is Outputs.PROBABILITIES and not cautions
    return ResolvedClassifier(classifier, identity, outputs=outputs, sums_to_one=exact)


def check_still_shares(scores: torch.Tensor, outputs: Outputs, who: str, *, sums_to_one: bool) -> None:
    """Make sure that what was taken for probabilities are some on these images too: a logarithm would hide it.

    With `sums_to_one` a row must sum to 1; rounded and clamped ones need not, and a flat row may be far from it.

    Raises:
        ModelError: they are not.
    """
    if outputs.stated_as != "probabilities" or not len(scores):
        return
    values = scores[:, 1:] if outputs is Outputs.ONE_PROBABILITY else scores
    low, high = float(values.min()), float(values.max())
    words = f"{low:.3g} to {high:.3g}"
    good = low >= -NEGATIVE_TOLERANCE and high <= 1 + SUM_TOLERANCE
    if good and sums_to_one:
        sums = scores.sum(dim=1)
        good = bool(((sums - 1).abs() <= STATED_SUM_TOLERANCE).all())
        words += f", row sums {float(sums.min()):.3g} to {float(sums.max()):.3g}"
    if not good:
        raise ModelError(
            f"{who}: its outputs were taken for probabilities on the first images, but on others they are none ({words}); state "
            "outputs=logits if they are logits, and check the model if they are not"
        )


def look(scores: torch.Tensor, *, one_value: bool) -> tuple[Outputs, tuple[str, ...]]:
    """What the scores (n, K) look like, and what to be careful about; `one_value` as `is_one_value` says of what was given."""
    shares = bool((scores >= -NEGATIVE_TOLERANCE).all()) and bool((scores <= 1 + SUM_TOLERANCE).all())
    if one_value:
        if not shares:
            return Outputs.ONE_LOGIT, ()
        return Outputs.ONE_PROBABILITY, (
            "The model gives one value per image, between 0 and 1 on real images: it was taken for the probability of class 1; if "
            "it is a logit, state outputs=logits.",
        )
    sums = scores.sum(dim=1)
    if shares and bool(((sums - 1).abs() <= SUM_TOLERANCE).all()):
        return Outputs.PROBABILITIES, ()
    if not shares:
        return Outputs.LOGITS, ()
    if (name := _rounded_to(scores, sums)) is not None:
        return Outputs.PROBABILITIES, (
            f"The model rounds its probabilities to {name}: they do not quite sum to 1, and close ones are not told apart.",
        )
    # Clamped to [low, 1 - low]: a value at a bound stands for one up to `low` beyond it, so a row's own sum lies in an interval.
    low = float(scores.min())
    at_low, at_high = (scores == low).sum(dim=1), (scores >= 1 - low - NEGATIVE_TOLERANCE).sum(dim=1)
    around = (sums - at_low * low <= 1 + SUM_TOLERANCE) & (sums + at_high * low >= 1 - SUM_TOLERANCE)
    if 0 < low <= LARGEST_CLAMP and int(at_low.sum()) > 1 and bool(around.all()):
        return Outputs.PROBABILITIES, (
            f"The model clamps its probabilities at {low:.2g}: they do not sum to 1, gradients are 0 where it clamps, and "
            "confidences beyond it are not told apart.",
        )
    if _nearly_shares(scores):
        return Outputs.LOGITS, (
            "Every output lies between 0 and 1, and rows nearly sum to 1: they were taken as logits, whose softmax is flat. "
            "If they are rounded probabilities, state outputs=probabilities; else export the model without its last activation.",
        )
    return Outputs.LOGITS, (
        "Every output lies between 0 and 1, but rows do not sum to 1, as with one sigmoid per class: they were taken for logits, "
        "whose softmax is nearly flat. Export the model without its last activation.",
    )


def _rounded_to(scores: torch.Tensor, sums: torch.Tensor) -> str | None:
    """The short float type that these values (n, K) lie on, if the row sums are those of a softmax that was computed in it."""
    if bool((scores * 256 == (scores * 256).round()).all()):
        return None  # a coarse grid, as of 8-bit integers, has small values that no float rounds so
    for dtype in (torch.bfloat16, torch.float16):
        info = torch.finfo(dtype)
        if torch.equal(scores.to(dtype).to(scores.dtype), scores):
            # The exponential, its sum and their quotient are rounded, each by up to half a step.
            step = info.eps * scores.clamp(min=info.tiny)
            if bool(((sums - 1).abs() <= 1.5 * step.sum(dim=1)).all()):
                return str(dtype).removeprefix("torch.")
    return None


def _nearly_shares(scores: torch.Tensor) -> bool:
    within = bool((scores >= -NEGATIVE_TOLERANCE).all()) and bool((scores <= 1 + SUM_TOLERANCE).all())
    return within and bool(((scores.sum(dim=1) - 1).abs() <= STATED_SUM_TOLERANCE).all())


def as_logits(scores: torch.Tensor, outputs: Outputs) -> torch.Tensor:
    """Logits as they are, probabilities as log max(p, floor), (n, K)."""
    return _shares(scores, outputs).clamp(min=PROBABILITY_FLOOR).log() if outputs.stated_as == "probabilities" else scores


def slopes_as_logits(slopes: torch.Tensor, scores: torch.Tensor, outputs: Outputs) -> torch.Tensor:
    """Slopes of `as_logits` from those of the scores themselves, (n, K, m); 0 at the floor."""
    if outputs is Outputs.ONE_PROBABILITY:
        slopes = torch.cat((-slopes[:, 1:], slopes[:, 1:]), dim=1)
    if outputs.stated_as != "probabilities":
        return slopes
    p = _shares(scores, outputs)
    factors = torch.where(p > PROBABILITY_FLOOR, 1 / p.clamp(min=PROBABILITY_FLOOR), torch.zeros_like(p))
    return slopes * factors[:, :, None]


def _shares(scores: torch.Tensor, outputs: Outputs) -> torch.Tensor:
    """Probabilities (n, K); of one value they are 1 - p and p."""
    return torch.cat((1 - scores[:, 1:], scores[:, 1:]), dim=1) if outputs is Outputs.ONE_PROBABILITY else scores


class ResolvedClassifier(Around):
    """A classifier whose outputs are known: logits as they are, probabilities as log max(p, floor)."""

    def __init__(self, inner: Classifier, identity: ModelIdentity, *, outputs: Outputs, sums_to_one: bool = False) -> None:
        """With `sums_to_one`, rows of probabilities that do not are refused."""
        super().__init__(inner, identity)
        self._sums_to_one = sums_to_one
        self._outputs = outputs

    @property
    def outputs(self) -> Outputs:
        """What the model gives."""
        return self._outputs

    @property
    def probabilities(self) -> bool:
        """Whether the model gives probabilities, of which this classifier returns the logarithm."""
        return self._outputs.stated_as == "probabilities"

    @property
    def inner(self) -> Classifier:
        """The classifier that gives the outputs as they are."""
        return self._inner

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits or log-probabilities (n, K).

        Raises:
            ModelError: the model gives probabilities, but none on these images.
        """
        return self._as_logits(self._inner.logits(images))

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits or log-probabilities (n, K), loss (n,) and its gradient (n, c, h, w)."""
        scores, values, gradient = self._inner.loss_gradient(images, lambda given, rows: loss(self._as_logits(given), rows))
        return as_logits(scores, self._outputs), values, gradient

    def jacobian(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits or log-probabilities (n, K) and their Jacobian (n, K, c*h*w); rows at the floor are 0."""
        scores, jacobian = self._inner.jacobian(images)
        return self._as_logits(scores), slopes_as_logits(jacobian, scores, self._outputs)

    def jvp(self, images: torch.Tensor, directions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits or log-probabilities (n, K) and their derivatives (n, K) along `directions`; those at the floor are 0."""
        scores, slopes = self._inner.jvp(images, directions)
        return self._as_logits(scores), slopes_as_logits(slopes[:, :, None], scores, self._outputs)[:, :, 0]

    def activations(self, images: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Neurons (n, units) of each layer."""
        return self._inner.activations(images)

    def _as_logits(self, scores: torch.Tensor) -> torch.Tensor:
        check_still_shares(scores.detach(), self._outputs, self._identity.label, sums_to_one=self._sums_to_one)
        return as_logits(scores, self._outputs)
