"""One look at a freshly loaded model, before any number is taken from it.

It shows how many classes there are, whether two calls agree (dropout left on), and whether rows influence each other (batch
normalisation left in train mode), neither of which can be switched off in an exported graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from audit.errors import ModelError
from audit.models.input_spec import InputSpec
from audit.models.scores import check_scores, is_one_value

# How far a row may move with its neighbours' values; rounding moves it by about 1e-6, live batch statistics by far more.
NEIGHBOUR_TOLERANCE = 1e-3
# What `identity.outputs` says until `resolve_outputs` has looked at real images.
NOT_SETTLED = "not settled"
ONE_VALUE = "one value per image, not settled"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The number of classes, whether they come from one value per image, and what to be careful about."""

    classes: int
    one_value: bool
    cautions: tuple[str, ...]


def noise(rows: int, image_shape: tuple[int, int, int]) -> torch.Tensor:
    """The images that a model is first looked at with, (rows, c, h, w) in [0, 1]; always the same ones."""
    return torch.rand(rows, *image_shape, generator=torch.Generator().manual_seed(0))


def probe(
    run: Callable[[torch.Tensor], torch.Tensor], image_shape: tuple[int, int, int], rows: int, who: str, *, places: bool = False
) -> Probe:
    """Run noise through the model three times.

    Args:
        run: images (rows, c, h, w) in [0, 1] on the CPU -> scores.
        image_shape: (c, h, w).
        rows: rows per block.
        who: the model's name, for messages.
        places: run it a fourth time, every image in another place of the batch: what answers from outside may mix up the order.

    Raises:
        ModelError: the outputs are not (rows, K) with K >= 2, or belong to other images.
    """
    images = noise(rows, image_shape)
    given = run(images)
    first = check_scores(given, rows, who)
    cautions = []
    again = check_scores(run(images), rows, who)
    # From outside, rounding may differ from call to call; in one process it does not.
    if not (_close(again, first) if places else torch.equal(torch.nan_to_num(first), torch.nan_to_num(again))):
        cautions.append(
            "Two calls on the same images differ: the model is random, as with dropout left on when it was exported. "
            "Every number below is a draw; call eval() before exporting or logging."
        )
    elif rows > 1:
        alone = check_scores(run(images[:1].expand(rows, *image_shape).contiguous()), rows, who)[0]
        if not _close(alone, first[0]):
            cautions.append(
                "An image's outputs change with the other images of its batch, as with batch normalisation left in train mode. "
                "Numbers depend on the order of the data; call eval() before exporting or logging."
            )
        if places and not _close(check_scores(run(images.roll(1, dims=0)), rows, who).roll(-1, dims=0), first):
            raise ModelError(
                f"{who}: answers differently for the same image at another place of a batch, so its answers come out of order, or "
                "an image's answer depends on the others; serve the model so that every answer belongs to its own image"
            )
    return Probe(classes=int(first.shape[1]), one_value=is_one_value(given, rows), cautions=tuple(cautions))


def outputs_before_a_look(spec: InputSpec, found: Probe) -> str:
    """What is known of the outputs before real images have been seen, for `ModelIdentity.outputs`."""
    if found.one_value:
        return ONE_VALUE
    return spec.outputs if spec.outputs != "auto" else NOT_SETTLED


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two answers differ by rounding at most; where both are no number they agree."""
    scale = float(other.nan_to_num().abs().max().clamp(min=1))
    return float((one.nan_to_num() - other.nan_to_num()).abs().max()) <= NEIGHBOUR_TOLERANCE * scale
