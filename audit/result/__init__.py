"""One audit as data: a schema-versioned document that is rendered, gated and logged without the model, the data or torch.

A result folder holds `result.json` (an AuditResult), `examples.parquet` (one row per model and example) and `failures/*.png`.
Every record repeats symbol, unit, direction and source, so that later code reads old results as they were meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from audit.result.identity import ClassCount as ClassCount
from audit.result.identity import DataIdentity as DataIdentity
from audit.result.identity import Manifest as Manifest
from audit.result.identity import ModelIdentity as ModelIdentity
from audit.result.judgement import LeftOut as LeftOut
from audit.result.judgement import PairTest as PairTest
from audit.result.judgement import Ranking as Ranking
from audit.result.judgement import RankRow as RankRow
from audit.result.judgement import RuleOutcome as RuleOutcome
from audit.result.judgement import Verdict as Verdict
from audit.result.outcome import CheckRecord as CheckRecord
from audit.result.outcome import Failed as Failed
from audit.result.outcome import Interval as Interval
from audit.result.outcome import Measured as Measured
from audit.result.outcome import MetricRecord as MetricRecord
from audit.result.outcome import NotApplicable as NotApplicable
from audit.result.outcome import Outcome as Outcome
from audit.result.outcome import OverallScore as OverallScore
from audit.result.outcome import ScoreRecord as ScoreRecord
from audit.result.outcome import Undefined as Undefined
from audit.result.tables import AttackStage as AttackStage
from audit.result.tables import Cascade as Cascade
from audit.result.tables import CertifiedCurve as CertifiedCurve
from audit.result.tables import CertifiedPoint as CertifiedPoint
from audit.result.tables import ClassRow as ClassRow
from audit.result.tables import CorruptionExample as CorruptionExample
from audit.result.tables import CorruptionRow as CorruptionRow
from audit.result.tables import CorruptionTable as CorruptionTable
from audit.result.tables import Curve as Curve
from audit.result.tables import CurvePoint as CurvePoint
from audit.result.tables import FailureExample as FailureExample
from audit.result.tables import LayerRow as LayerRow
from audit.result.tables import Reliability as Reliability
from audit.result.tables import ReliabilityBin as ReliabilityBin
from audit.result.tables import SensitiveExample as SensitiveExample

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA_VERSION = 1
RESULT_FILE, TABLE_FILE = "result.json", "examples.parquet"
FAILURES_FOLDER = "failures"


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
    sensitive_examples: tuple[SensitiveExample, ...] = ()
    certified: CertifiedCurve | None = None

    def metric(self, key: str) -> MetricRecord | None:
        """The record with this key, or None."""
        return next((record for record in self.metrics if record.key == key), None)


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
