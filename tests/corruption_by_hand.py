"""Evidence of corruptions written down instead of measured."""

from __future__ import annotations

import numpy as np

from audit.corruptions.parameters import BENCHMARK_KINDS
from audit.evidence import Corruptions


def corruptions(correct, kinds=None, confidence=None, probabilities=None, positions=None, **given) -> Corruptions:
    """`correct` (m, c, 5); confidences are 0.9 unless they are given, and nothing is changed."""
    correct = np.asarray(correct, dtype=bool)
    m, c, _ = correct.shape
    confidence = np.full(correct.shape, 0.9) if confidence is None else np.asarray(confidence, dtype=float)
    return Corruptions(
        positions=np.arange(m) if positions is None else np.asarray(positions),
        kinds=tuple(BENCHMARK_KINDS[:c]) if kinds is None else kinds,
        correct=correct,
        predicted=np.where(correct, 0, 1),
        confidence=confidence,
        true_confidence=np.where(correct, confidence, 1 - confidence),
        probabilities=np.zeros((0, c, 5, 2), dtype=np.float32) if probabilities is None else probabilities,
        distance=np.zeros(correct.shape),
        **{"source": "made here", **given},
    )


def random_corruptions(seed: int, share: float, m: int = 60, c: int = 15, **given) -> Corruptions:
    """Right answers with probability `share`, rarer at larger severities."""
    generator = np.random.default_rng(seed)
    return corruptions(generator.random((m, c, 5)) < share - 0.05 * np.arange(5), **given)
