"""What is concluded from the metrics: a policy's verdict on a model, and rankings of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class RuleOutcome:
    """One policy line judged: a line passes only on a measured value.

    `kind` says what the line is: a pin (what the verdict rests on), a bound, a comparison with another model, or honesty checks;
    `key` names what it reads (a metric's key, `score/adversarial/linf_8-255`, `requires/threats`), and `limit` is the bound or the
    margin as a number. Results of earlier versions have none of the three.
    """

    requirement: str
    status: Literal["pass", "fail", "undecided"]
    required: str
    measured: str
    because: str
    kind: Literal["pin", "bound", "non_inferiority", "checks"] | None = None
    key: str | None = None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The policy's judgement of one model; `pass` only if every line passed."""

    policy: str
    policy_digest: str
    status: Literal["pass", "fail", "undecided"]
    sentence: str
    rules: tuple[RuleOutcome, ...]


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """One model in one ranking: a rank interval, 1 + (significantly better) to K - (significantly worse)."""

    model: int
    rank_low: int
    rank_high: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """A paired exact McNemar test of two models on the same examples; counts and the Holm-adjusted p-value."""

    first: int
    second: int
    both_right: int
    only_first: int
    only_second: int
    both_wrong: int
    p_value: float
    adjusted_p_value: float


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A model that a ranking could not take in, and why."""

    model: int
    because: str


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The ranking of one dimension; `smallest_detectable` in share of images; `left_out` says why there are no `rows`."""

    dimension: str
    metric: str
    samples: int
    rows: tuple[RankRow, ...]
    tests: tuple[PairTest, ...]
    smallest_detectable: float | None
    left_out: tuple[LeftOut, ...] = ()
