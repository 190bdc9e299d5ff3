"""One audit as data: a schema-versioned document that is rendered, gated and logged without the model, the data or torch.

A result folder holds `result.json` (an AuditResult), `examples.parquet` (one row per model and example) and `failures/*.png`.
Every record repeats symbol, unit, direction and source, so that later code reads old results as they were meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from audit.vocabulary import Better, Threat

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA_VERSION = 1
RESULT_FILE, TABLE_FILE = "result.json", "examples.parquet"
FAILURES_FOLDER = "failures"


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


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Accuracy at one epsilon of the accuracy-epsilon curve; shares in [0, 1]."""

    epsilon: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The accuracy-epsilon curve of one threat's norm; `arm` says which attacks it rests on."""

    norm: str
    threat: str
    arm: str
    samples: int
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, kw_only=True)
class AttackStage:
    """One attack of a cascade: it sees only the survivors of the one before. Passes are means per image it saw."""

    attack: str
    images_in: int
    broken: int


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """Which attack broke how many at one threat; `arm` is white-box or black-box, `escalated` why gradients were not believed."""

    arm: str
    threat: str
    samples: int
    natural_errors: int
    unknown: int
    survivors: int
    forward_passes_per_image: float
    backward_passes_per_image: float
    stages: tuple[AttackStage, ...]
    escalated: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """Clean and worst-case accuracy of one class or slice; shares in [0, 1]. `robust` is None when no arm was measured."""

    name: str
    samples: int
    clean: float | None
    robust: float | None
    robust_low: float | None
    robust_high: float | None
    taken_for: str | None


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """One inner layer: its neurons, how many never moved in the profile, and its part in NS (first threat) and NU.

    Relative to the layer's own size, and absolute; None where the layer is silent or nothing was attacked.
    """

    name: str
    neurons: int
    dead: int
    sensitivity: float | None
    sensitivity_absolute: float | None
    uncertainty: float | None
    uncertainty_absolute: float | None


@dataclass(frozen=True, kw_only=True)
class FailureExample:
    """One broken example; image paths relative to the result folder, None under `--no-images`, confidences None without scores."""

    example_id: str
    label: str
    clean_confidence: float | None
    adversarial_label: str
    adversarial_confidence: float | None
    attack: str
    arm: str
    threat: str
    norm: str
    distance: float
    clean_image: str | None = None
    adversarial_image: str | None = None


@dataclass(frozen=True, kw_only=True)
class CorruptionRow:
    """Shares of wrong answers under one kind at severities 1 to 5 with their intervals; `averaged` when it enters the means."""

    kind: str
    averaged: bool
    errors: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CorruptionTable:
    """Errors under corruptions on `samples` images, whose clean error is `clean_error`; `source` says who corrupted them."""

    samples: int
    clean_error: float
    source: str
    rows: tuple[CorruptionRow, ...]


@dataclass(frozen=True, kw_only=True)
class CorruptionExample:
    """One image that is right as it is and wrong when corrupted; paths and confidence are None as in a `FailureExample`."""

    example_id: str
    label: str
    kind: str
    severity: int
    answered: str
    confidence: float | None
    clean_image: str | None = None
    corrupted_image: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Answers of similar confidence: their mean confidence, and how many of them are right, with an interval."""

    confidence: float
    accuracy: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """A reliability diagram; `images` says of which: clean, corrupted, or adversarial with the threat."""

    images: str
    bins: tuple[ReliabilityBin, ...]


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """What was audited, so precisely that it can be found again.

    `digest` is sha256 over the sorted (path, sha256) pairs of `files`. `trusted` is true when code of the model was allowed to
    run. `input_spec` and `runtime` are plain words for the manifest. `tags` are the registry's. `class_names` are those that the
    model's tags or metadata state, by class index. `opaque` is true where no digest proves the weights (an endpoint, a function).
    `gradients` says where they come from if not from the model as it is deployed, `gradients_lost_in` names the operators of its
    graph between image and output that have no useful one. `averaged` is how many calls each answer is the mean of (`--eot`),
    `surrogate` the name and the beginning of the digest of the model that transfer attacks were crafted on.
    """

    reference: str
    uri: str
    name: str
    flavour: str
    digest: str
    classes: int
    runtime: str
    device: str
    outputs: str
    input_shape: tuple[int, ...]
    version: str | None = None
    model_id: str | None = None
    run_id: str | None = None
    description: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    input_spec: dict[str, str] = field(default_factory=dict)
    trusted: bool = False
    opaque: bool = False
    class_names: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    gradients: str = ""
    gradients_lost_in: tuple[str, ...] = ()
    averaged: int = 1
    surrogate: str = ""

    @property
    def label(self) -> str:
        """`name, version 3` (with a no-break space) or the name alone."""
        return self.name if self.version is None else f"{self.name}, version\u00a0{self.version}"


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """How many sampled examples a class has."""

    name: str
    count: int


@dataclass(frozen=True, kw_only=True)
class DataIdentity:
    """The data an audit rests on. `digest` is sha256 of the source's content, `sample_digest` of the sampled ids and labels."""

    reference: str
    source: str
    digest: str
    sample_digest: str
    total: int
    samples: int
    sampling: str
    seed: int
    image_shape: tuple[int, ...]
    classes: tuple[ClassCount, ...]
    cautions: tuple[str, ...] = ()


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


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """Everything measured on one model."""

    identity: ModelIdentity
    is_reference: bool
    metrics: tuple[MetricRecord, ...]
    scores: tuple[ScoreRecord, ...]
    overall: OverallScore
    checks: tuple[CheckRecord, ...]
    verdict: Verdict | None
    curves: tuple[Curve, ...]
    cascades: tuple[Cascade, ...]
    classes: tuple[ClassRow, ...]
    failures: tuple[FailureExample, ...]
    failures_total: int
    skipped: dict[str, str]
    forward_passes: int
    backward_passes: int
    seconds: float
    slices: dict[str, tuple[ClassRow, ...]] = field(default_factory=dict)
    layers: tuple[LayerRow, ...] = ()
    corruptions: CorruptionTable | None = None
    corruption_examples: tuple[CorruptionExample, ...] = ()
    reliability: tuple[Reliability, ...] = ()

    def metric(self, key: str) -> MetricRecord | None:
        """The record with this key, or None."""
        return next((record for record in self.metrics if record.key == key), None)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """How to get these numbers again. `command` is redacted; `settings` and `versions` are plain words."""

    command: str
    tool_version: str
    python: str
    platform: str
    device: str
    threads: int
    seed: int
    settings: dict[str, str]
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """One audit. `id` is random and identifies the result everywhere; `created` is ISO 8601 in UTC."""

    id: str
    created: str
    profile: str
    threats: tuple[str, ...]
    data: DataIdentity
    models: tuple[ModelResult, ...]
    rankings: tuple[Ranking, ...]
    manifest: Manifest
    images_kept: bool = True
    schema_version: int = SCHEMA_VERSION

    @property
    def subjects(self) -> tuple[ModelResult, ...]:
        """The audited models without the reference."""
        return tuple(model for model in self.models if not model.is_reference)


@cache
def _adapter() -> TypeAdapter[AuditResult]:
    from pydantic import TypeAdapter

    return TypeAdapter(AuditResult)


def to_json(result: AuditResult) -> bytes:
    """The result as indented UTF-8 JSON; it never contains NaN or infinity."""
    return _adapter().dump_json(result, indent=2) + b"\n"


def from_json(text: bytes | str) -> AuditResult:
    """Read what `to_json` wrote.

    Raises:
        pydantic.ValidationError: the text is not a result of a known schema.
    """
    return _adapter().validate_json(text)


def write(result: AuditResult, folder: Path) -> Path:
    """Write `result.json` into `folder` so that it is either whole or absent; returns its path."""
    path = folder / RESULT_FILE
    partial = path.with_suffix(".json.partial")
    partial.write_bytes(to_json(result))
    return partial.replace(path)
