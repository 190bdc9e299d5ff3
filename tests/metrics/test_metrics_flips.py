"""Flip rates by hand, against a plain loop, and of a model against itself."""

from __future__ import annotations

import numpy as np
import pytest

from audit.errors import Undefined
from audit.evidence import Sequences
from audit.metrics import flips


def sequences(counts, positions=None) -> Sequences:
    """`counts` (m, f) of changed answers among 30 comparisons."""
    counts = np.asarray(counts)
    names = ("tilt", "snow", "scale")[: counts.shape[1]]
    return Sequences(
        positions=np.arange(len(counts)) if positions is None else np.asarray(positions), families=names, frames=31, flips=counts
    )


def test_flip_probabilities_by_hand():
    own, other = sequences([[3, 0], [0, 6]]), sequences([[6, 3], [6, 0]])
    assert flips.mean_flip_probability(sequences=own).value == pytest.approx(9 / 120)
    assert flips.flip_probability(sequences=own, variant="snow").value == pytest.approx(6 / 60)
    # (3 / 12 + 6 / 3) / 2.
    assert flips.mean_flip_rate(sequences=own, reference_sequences=other).value == pytest.approx(1.125)


def test_flip_rate_against_a_plain_loop():
    generator = np.random.default_rng(0)
    own, other = (sequences(generator.integers(0, 31, (40, 3))) for _ in range(2))
    expected = np.mean([np.mean(own.flips[:, f] / 30) / np.mean(other.flips[:, f] / 30) for f in range(3)])
    found = flips.mean_flip_rate(sequences=own, reference_sequences=other)
    assert found.value == pytest.approx(expected) and found.interval.low < expected < found.interval.high


def test_a_model_against_itself_is_exactly_one():
    own = sequences(np.random.default_rng(1).integers(0, 5, (30, 3)))
    found = flips.mean_flip_rate(sequences=own, reference_sequences=own)
    assert found.value == 1.0 and (found.interval.low, found.interval.high) == (1.0, 1.0)


def test_a_steady_reference_leaves_no_rate():
    with pytest.raises(Undefined, match="never changes its answer along snow"):
        flips.mean_flip_rate(sequences=sequences([[1, 1]]), reference_sequences=sequences([[1, 0]]))
    with pytest.raises(Undefined, match="different sequences"):
        flips.mean_flip_rate(sequences=sequences([[1, 1]]), reference_sequences=sequences([[1, 1]], positions=[4]))
    with pytest.raises(Undefined, match="no example"):
        flips.mean_flip_probability(sequences=sequences(np.zeros((0, 2), dtype=int)))
