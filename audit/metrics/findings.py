"""What a honesty check is: a function of the evidence and of what the run itself knows, which finds something or could not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from audit.evidence import Bools, Evidence, EvidenceKey, EvidenceStore, Predictions
from audit.vocabulary import Threat

# More ids than these would hide what else was found; the report's table of examples has them all.
_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the run itself knows and no evidence holds.

    `self_test` is what each attack needs of the bundled linear model, in multiples of the closed-form optimum; `unavailable` says
    why evidence is missing.
    """

    threats: tuple[Threat, ...]
    repeat_difference: float
    outputs: str
    outputs_clear: bool
    device_asked: str
    device: str
    has_gradients: bool = True
    gradients_lost_in: tuple[str, ...] = ()
    labels_only: bool = False
    averaged: int = 1
    averaged_difference: float = 0.0
    self_test: Mapping[str, float] = field(default_factory=dict)
    unavailable: Mapping[EvidenceKey, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one check; `raised` is None when it was not run."""

    raised: bool | None
    found: str


Check = Callable[[EvidenceStore, RunFacts], Finding]


def not_run(because: str) -> Finding:
    """The check could not be made."""
    return Finding(raised=None, found=because)


def predictions_of(store: EvidenceStore) -> Predictions:
    """The clean predictions."""
    return store.get_as(Predictions, EvidenceKey(kind=Evidence.PREDICTIONS))


def named(store: EvidenceStore, rows: Bools) -> str:
    """The ids of the examples `rows` (n,) in brackets, or nothing where there are none."""
    ids = [str(text) for text in predictions_of(store).ids[rows]]
    more = ", …" if len(ids) > _NAMED else ""
    return f" ({', '.join(ids[:_NAMED])}{more})" if ids else ""
