"""Do gradients say what the model does? Measured at the clean images, by asking the model along and across its gradients.

Rounding, saturation and randomness inside a model leave gradients that are zero or lead nowhere: attacks that follow them fail,
and the model looks robust.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from audit.attacks.ball import Ball
from audit.attacks.l1_ball import row_sum
from audit.attacks.losses import logit_margin, margin
from audit.attacks.randomness import generators
from audit.attacks.run import Batch, Oracle
from audit.evidence import Bools, Floats
from audit.vocabulary import Threat

# Multiples of epsilon. The promise is believed if it is kept at one of them: small steps drown in float32 rounding, and in large
# ones every network bends.
STEP_SIZES = (1 / 16, 1 / 8, 1 / 4)
RANDOM_TRIES = 4
# A change of the margin below this share of the logits' size is rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Health:
    """Columns (n,) of `evidence.GradientProbe`; `promise_kept` (n, S)."""

    zero_gradient: Bools
    moves: Bools
    promise_kept: Floats
    step_gain: Floats
    random_gain: Floats


NOTHING = Health(
    zero_gradient=np.zeros(0, dtype=np.bool_),
    moves=np.zeros(0, dtype=np.bool_),
    promise_kept=np.zeros((0, len(STEP_SIZES))),
    step_gain=np.zeros(0),
    random_gain=np.zeros(0),
)


def health(oracle: Oracle, batch: Batch, threat: Threat, *, seed: int, purpose: str) -> Health:
    """Compare the margin's gradient at the images of `batch` with the margin around them; what is not answered counts as 0.

    Args:
        oracle: a model with gradients.
        batch: clean images and labels.
        threat: any norm, epsilon > 0.
        seed: of the audit.
        purpose: names the random directions.
    """
    x = batch.images
    logits, gradient = oracle.gradient(batch, x, logit_margin)
    before, zero = margin(logits, batch.labels).double(), (gradient == 0).flatten(1).all(dim=1)

    def margin_at(points: torch.Tensor) -> torch.Tensor:
        return margin(oracle.logits(batch, points), batch.labels).double()

    kept = []
    for size in STEP_SIZES:
        ball = Ball.around(x, threat.at(size * threat.epsilon))
        along, against = ball.farthest(gradient), ball.farthest(-gradient)
        promised = row_sum(gradient.double() * (along.double() - against.double()))
        kept.append(torch.where(promised > 0, (margin_at(along) - margin_at(against)) / promised, torch.zeros_like(promised)))
    ball, sources = Ball.around(x, threat), generators(seed, batch.ids, purpose)
    step_gain = margin_at(ball.farthest(gradient)) - before
    tries = torch.stack([margin_at(ball.random_points(sources, on_edge=True)) - before for _ in range(RANDOM_TRIES)])
    scale = (logits - logits.mean(dim=1, keepdim=True)).double().norm(dim=1)

    def column(values: torch.Tensor) -> Floats:
        found: Floats = values.nan_to_num(nan=0.0).cpu().numpy()
        return found

    return Health(
        zero_gradient=zero.cpu().numpy(),
        moves=(zero & (tries.nan_to_num(nan=0.0).abs().amax(dim=0) > _ROUNDING * scale)).cpu().numpy(),
        promise_kept=column(torch.stack(kept, dim=1)),
        step_gain=column(step_gain),
        random_gain=column(tries.amax(dim=0)),
    )
