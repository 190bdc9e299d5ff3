"""The gate opens for sound gradients only, and each thing that speaks against them is said."""

import numpy as np
import pytest
from evidence_by_hand import LINF, gradient_probe

from audit.collect.gradient_health import fit_gradient_health
from audit.evidence import Evidence, EvidenceKey, EvidenceStore


def judged(**columns):
    evidence = gradient_probe(**columns)
    return fit_gradient_health(EvidenceStore({EvidenceKey(kind=Evidence.GRADIENT_PROBE, threat=LINF): evidence}), LINF)


def test_sound_gradients_are_believed():
    health = judged()
    assert health.believed and health.reasons == () and health.examples == 100 and health.relied_on is True


def first(count: int, odd: float, usual: float) -> np.ndarray:
    return np.where(np.arange(100) < count, odd, usual)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"zero_gradient": (3,)}, "1 of 100 gradients are zero"),
        ({"zero_gradient": (3, 4), "moves": (4,)}, "2 of 100 gradients are zero, though the output moves on 1 of them"),
        ({"promise_kept": np.full((100, 2), 0.89)}, "changes the margin by 0.89 times"),
        ({"promise_kept": np.full((100, 2), 1.11)}, "changes the margin by 1.11 times"),
        ({"random_gain": first(2, 99.0, 1.0)}, "beats random steps on 98% of the examples only"),
        ({"step_gain": np.full(100, 2.9)}, "raises the loss by 2.9, random steps by 1"),
        ({"step_gain": np.full(100, -0.5), "random_gain": np.full(100, -1.0)}, "raises the loss by -0.5, random steps by -1"),
        ({"unconfirmed": (7,)}, "1 broken examples are not broken when asked again"),
        ({"queried": (7,), "standing": range(20)}, "Square-200 breaks 1 of the 20 examples"),
    ],
)
def test_what_speaks_against_them_is_said(columns, said):
    health = judged(**columns)
    assert not health.believed and len(health.reasons) == 1 and said in health.reasons[0]


@pytest.mark.parametrize(
    "columns",
    [
        # Right at one of the step sizes is right; one example of a hundred may be an exception; random steps may lower the loss.
        {"promise_kept": np.stack([np.full(100, 3.0), np.full(100, 0.91)], axis=1)},
        {"promise_kept": np.repeat(first(40, 5.0, 1.0)[:, None], 2, axis=1)},
        {"random_gain": first(1, 99.0, 1.0)},
        {"step_gain": np.full(100, 3.0)},
        {"random_gain": np.full(100, -1.0), "step_gain": np.full(100, 0.1)},
    ],
)
def test_what_is_within_bounds_is_not(columns):
    assert judged(**columns).believed


def test_without_an_example_nothing_speaks_against_them():
    health = judged(n=0)
    assert health.believed and health.examples == 0
