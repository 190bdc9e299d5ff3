"""What a metric, a dimension or a check came to: measured, undefined, not applicable or failed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from audit.vocabulary import Better, Threat


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval and how it was made; `level` is 0.95."""

    low: float
    high: float
    method: str
    level: float = 0.95


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A value, the number of examples it rests on, and its interval or why it has none."""

    value: float
    samples: int
    interval: Interval | None = None
    why_no_interval: str | None = None
    kind: Literal["measured"] = "measured"

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a measured value must be finite, not {self.value}")
        if self.interval is None and self.why_no_interval is None:
            raise ValueError("a measured value without an interval must say why it has none")


@dataclass(frozen=True, kw_only=True)
class Undefined:
    """Measured, but the definition gives no value here: "undefined, because ..."."""

    because: str
    kind: Literal["undefined"] = "undefined"


@dataclass(frozen=True, kw_only=True)
class NotApplicable:
    """This model or this run cannot support the metric: "not applicable, because ..."."""

    because: str
    kind: Literal["not_applicable"] = "not_applicable"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The tool failed to measure it: "failed, because ..."."""

    error: str
    kind: Literal["failed"] = "failed"


Outcome = Measured | Undefined | NotApplicable | Failed


@dataclass(frozen=True, kw_only=True)
class MetricRecord:
    """One catalogue value for one model. `key` is `id[/variant][/threat]`, the same in JSON, MLflow, the gate and the report."""

    key: str
    id: str
    name: str
    symbol: str
    family: str
    unit: str
    better: Better
    definition: str
    source: str
    outcome: Outcome
    variant: str | None = None
    threat: str | None = None
    paper_row: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScoreRecord:
    """One dimension, 0 to 100: `clean`, `adversarial`, `corruption`, `local margin` or `stability`."""

    dimension: str
    means: str
    outcome: Outcome
    threat: str | None = None

    @property
    def key(self) -> str:
        """`score/<dimension>[/<threat>]`, the same in MLflow and in a verdict."""
        where = "" if self.threat is None else f"/{Threat.parse(self.threat).key}"
        return f"score/{self.dimension.replace(' ', '_')}{where}"


@dataclass(frozen=True, kw_only=True)
class OverallScore:
    """The weakest dimension; "at most" that while `undetermined` names dimensions not measured; None when nothing was."""

    value: float | None
    weakest: str | None
    undetermined: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """One honesty check of METRICS: Raised if / Means / Do."""

    number: int
    title: str
    status: Literal["pass", "warn", "not_run"]
    found: str
    raised_if: str
    means: str
    do: str
