"""A time budget bounds the number of examples: it stops adding some, and never cuts an attack short."""

from __future__ import annotations

import time
from collections.abc import Callable

from audit.engine.journal import Journal
from audit.engine.measure import Gathered
from audit.evidence import ON_EVERY_EXAMPLE, Ints
from audit.settings import Settings

# The first chunk is a random part of the sample, but its cost is only an estimate of the others'.
SPENT = 0.85
_DECISION = "samples"


def affordable(
    seconds: float, measure: Callable[[Ints], list[Gathered]], indices: Ints, settings: Settings, journal: Journal
) -> Ints:
    """The beginning of the sample that fits the budget, at least one chunk; decided once, also for an audit that is resumed.

    The first chunk is measured with every model and timed; thanks to the journal it is not measured again. What does not grow with
    the sample (the probe and Fisher evidence, on its first examples only) is paid once more when the whole sample is known.

    Args:
        seconds: the budget.
        measure: gathers the evidence of every model on a part of the sample.
        indices: the whole sample in canonical order.
        settings: the audit's settings.
        journal: remembers the decision.
    """
    decided = journal.recall(_DECISION)
    if decided is not None:
        return indices[: int(decided)]
    started = time.monotonic()
    first = indices[: settings.chunk_rows]
    spent = [(key, taken) for gathered in measure(first) for key, taken in gathered.seconds.items()]
    growing = sum(taken for key, taken in spent if key.kind in ON_EVERY_EXAMPLE)
    fixed = sum(taken for key, taken in spent if key.kind not in ON_EVERY_EXAMPLE)
    left = SPENT * seconds - (time.monotonic() - started) - fixed
    more = int(left / (growing / len(first))) if growing > 0 else len(indices)
    kept = indices[: len(first) + max(0, more) // settings.chunk_rows * settings.chunk_rows]
    journal.remember(_DECISION, str(len(kept)))
    return kept
