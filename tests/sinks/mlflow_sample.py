"""A small audit of two models, made of the real dataclasses."""

from __future__ import annotations

from pathlib import Path

from audit.result import (
    AuditResult,
    CheckRecord,
    ClassCount,
    DataIdentity,
    Failed,
    Interval,
    Manifest,
    Measured,
    MetricRecord,
    ModelIdentity,
    ModelResult,
    NotApplicable,
    Outcome,
    OverallScore,
    ScoreRecord,
    Undefined,
    write,
)
from audit.vocabulary import Better

AAW = "adversarial_accuracy_white_box/linf_8-255"


def measured(value: float, low: float | None = None, high: float | None = None) -> Measured:
    if low is None or high is None:
        return Measured(value=value, samples=100, why_no_interval="it is a count")
    return Measured(value=value, samples=100, interval=Interval(low=low, high=high, method="Wilson"))


def record(key: str, outcome: Outcome) -> MetricRecord:
    return MetricRecord(
        key=key, id=key.partition("/")[0], name=key, symbol="M", family="Under attack", unit="share", better=Better.HIGHER,
        definition="a share", source="a paper", outcome=outcome,
    )  # fmt: skip


def check(number: int, status: str) -> CheckRecord:
    return CheckRecord(number=number, title="t", status=status, found="f", raised_if="r", means="m", do="d")  # type: ignore[arg-type]


def model(
    *,
    name: str = "digits",
    version: str | None = "1",
    model_id: str | None = None,
    accuracy: float = 0.5,
    metrics: tuple[MetricRecord, ...] = (),
) -> ModelResult:
    return ModelResult(
        identity=ModelIdentity(
            reference=f"models:/{name}/{version}", uri=f"models:/{name}/{version}", name=name, flavour="pytorch (pt2)",
            digest="ab" * 32,
            classes=10, runtime="torch 2.14", device="cpu", outputs="logits", input_shape=(1, 8, 8), version=version,
            model_id=model_id,
            input_spec={"layout": "NCHW", "range": "0..1"},
        ),
        is_reference=False,
        metrics=metrics or (
            record("clean_accuracy", measured(0.96, 0.91, 0.99)),
            record(AAW, measured(accuracy, accuracy - 0.1, accuracy + 0.1)),
            record("average_confidence_of_adversarial_class/linf_8-255", Undefined(because="no attack succeeded")),
            record("adversarial_accuracy_black_box/linf_8-255", NotApplicable(because="it was not asked for")),
            record("input_fisher/median", Failed(error="out of memory")),
        ),
        scores=(
            ScoreRecord(dimension="clean", means="CA", outcome=measured(96.0, 91.0, 99.0)),
            ScoreRecord(dimension="local margin", means="margin", outcome=Undefined(because="check 9 is raised")),
        ),
        overall=OverallScore(value=96.0, weakest="clean", undetermined=("local margin",)),
        checks=(check(1, "pass"), check(9, "warn"), check(5, "not_run")),
        verdict=None, curves=(), cascades=(), classes=(), failures=(), failures_total=0, skipped={},
        forward_passes=1, backward_passes=1,
        seconds=2.5,
    )  # fmt: skip


def result(*models: ModelResult, identity: str = "5f0c", created: str = "2026-11-30T12:00:00+00:00") -> AuditResult:
    return AuditResult(
        id=identity, created=created, profile="quick", threats=("linf:8/255",),
        data=DataIdentity(
            reference="https://ann:hunter2@data.example/sets/digits.npz", source="arrays",
            digest="sha256:" + "0123456789abcdef" * 4,
            sample_digest="cd" * 32, total=1797, samples=100, sampling="seeded", seed=7, image_shape=(1, 8, 8),
            classes=(ClassCount(name="0", count=100),),
        ),
        models=models or (model(), model(version="2", accuracy=0.75)), rankings=(),
        manifest=Manifest(
            command="audit run", tool_version="0.1.0", python="3.11", platform="Linux", device="cpu", threads=1, seed=7,
            settings={"block rows": "32", "long": "x" * 9000}, versions={},
        ),
    )  # fmt: skip


def folder(path: Path, audit: AuditResult) -> Path:
    """A result folder with everything that is uploaded, and a file that is not."""
    (path / "failures").mkdir(parents=True)
    write(audit, path)
    (path / "report.html").write_text("<!doctype html><title>report</title>")
    (path / "report.pdf").write_bytes(b"%PDF-1.7")
    (path / "examples.parquet").write_bytes(b"PAR1")
    (path / "failures" / "0-clean.png").write_bytes(b"png")
    (path / "private.txt").write_text("not ours")
    return path
