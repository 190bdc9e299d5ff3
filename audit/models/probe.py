"""One look at a freshly loaded model, before any number is taken from it.

It shows how many classes there are, whether two calls agree (dropout left on), and whether rows influence each other (batch
normalisation left in train mode), neither of which can be switched off in an exported graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

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


def probe(run: Callable[[torch.Tensor], torch.Tensor], image_shape: tuple[int, int, int], rows: int, who: str) -> Probe:
    """Run noise through the model three times.

    Args:
        run: images (rows, c, h, w) in [0, 1] on the CPU -> scores.
        image_shape: (c, h, w).
        rows: rows per block.
        who: the model's name, for messages.

    Raises:
        ModelError: the outputs are not (rows, K) with K >= 2.
    """
    images = torch.rand(rows, *image_shape, generator=torch.Generator().manual_seed(0))
    given = run(images)
    first = check_scores(given, rows, who)
    cautions = []
    if not torch.equal(torch.nan_to_num(first), torch.nan_to_num(check_scores(run(images), rows, who))):
        cautions.append(
            "Two calls on the same images differ: the model is random, as with dropout left on when it was exported. "
            "Every number below is a draw; call eval() before exporting or logging."
        )
    elif rows > 1:
        alone = check_scores(run(images[:1].expand(rows, *image_shape).contiguous()), rows, who)[0]
        scale = float(first[0].abs().max().clamp(min=1))
        if float((alone - first[0]).abs().max()) > NEIGHBOUR_TOLERANCE * scale:
            cautions.append(
                "An image's outputs change with the other images of its batch, as with batch normalisation left in train mode. "
                "Numbers depend on the order of the data; call eval() before exporting or logging."
            )
    return Probe(classes=int(first.shape[1]), one_value=is_one_value(given, rows), cautions=tuple(cautions))


def outputs_before_a_look(spec: InputSpec, found: Probe) -> str:
    """What is known of the outputs before real images have been seen, for `ModelIdentity.outputs`."""
    if found.one_value:
        return ONE_VALUE
    return spec.outputs if spec.outputs != "auto" else NOT_SETTLED
