"""How long an audit will take, from what its first examples took."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from audit.collect.costs import examples_at_most
from audit.engine.measure import Gathered
from audit.engine.summary import counted_passes
from audit.evidence import EvidenceKey, Ints
from audit.settings import Settings

CALIBRATED = 64


def calibration_part(indices: Ints, settings: Settings) -> Ints:
    """The examples to measure: the first of the sample, which is drawn at random, in whole blocks."""
    return indices[: max(CALIBRATED, settings.block_rows)]


def forecast(gathered: Gathered, settings: Settings, measured: int, samples: int) -> Mapping[EvidenceKey, float]:
    """Seconds that each stage will take on `samples` examples, from what `measured` of them took.

    A stage that counts passes per example grows with the blocks it will ask for: an attack goes on with what still stands, and the
    few survivors of few examples fill their blocks worse than those of many. The others grow with the examples that enter them.
    """
    return {key: taken * _growth(gathered, key, settings, measured, samples) for key, taken in gathered.seconds.items()}


def _growth(gathered: Gathered, key: EvidenceKey, settings: Settings, measured: int, samples: int) -> float:
    most = examples_at_most(key.kind, settings)
    passes = counted_passes(gathered.store[key]) if key in gathered.store else None
    if passes is None or not passes.any():
        entering = (samples, measured) if most is None else (min(most, samples), min(most, measured))
        return entering[0] / entering[1]
    entered = samples
    if most is not None:
        entered = min(most, round(samples * float((passes > 0).mean())))
        passes = passes[passes > 0]
    return blocks(passes, entered, settings) / blocks(passes, len(passes), settings)


def blocks(passes: Ints, examples: int, settings: Settings) -> int:
    """Blocks that are asked for when `examples` need as many passes as those with `passes` (m,) did, in chunks of the audit.

    >>> from dataclasses import replace
    >>> settings = replace(Settings.of("quick"), block_rows=32, chunk_rows=64)
    >>> blocks(np.array([1] * 63 + [10]), 64, settings), blocks(np.array([1] * 63 + [10]), 640, settings)
    (11, 110)
    """
    standing = np.array([(passes > done).mean() for done in range(int(passes.max()))])
    whole, rest = divmod(examples, settings.chunk_rows)

    def of(rows: int) -> int:
        return int(np.ceil(standing * rows / settings.block_rows - 1e-9).sum())

    return whole * of(settings.chunk_rows) + of(rest)
