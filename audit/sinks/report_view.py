"""The whole report as data: what the templates show, and nothing they would have to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.records.examples import ExampleTable
from audit.result import AuditResult, Measured, RuleOutcome, Verdict
from audit.sinks import report_words as words
from audit.sinks.clauses import SECTIONS, Clause
from audit.sinks.report_certified import CertifiedView, certified_view
from audit.sinks.report_corruptions import CorruptionView, corruption_view
from audit.sinks.report_front import Fact, Front, front
from audit.sinks.report_gallery import Gallery, gallery
from audit.sinks.report_layers import LayerTable, layer_tables
from audit.sinks.report_limits import Limits, certified, limits
from audit.sinks.report_metrics import Definition, MetricTables, definitions, metric_tables
from audit.sinks.report_panels import Panels, epsilon_panels, lambda_panels, margin_panels, ranking_panels
from audit.sinks.report_results import (
    CascadeTable,
    CheckRow,
    ClassTable,
    EpsilonTable,
    RankingTable,
    cascade_tables,
    check_rows,
    class_tables,
    epsilon_tables,
    ranking_gaps,
    ranking_tables,
    slice_tables,
)
from audit.sinks.report_sensitive import SensitiveView, sensitive_view

_HEADINGS = (
    ("record", "Record"),
    ("policy", "Policy, line by line"),
    ("use", "Intended use, limits, threat models"),
    ("data", "Data"),
    ("results", "Results"),
    ("compare", "Worst case and rankings"),
    ("examples", "Example failures"),
    ("checks", "Honesty checks"),
    ("certification", "Certification"),
    ("clauses", "Clause map"),
    ("reproducibility", "Reproducibility"),
    ("definitions", "Metric definitions"),
)


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A section: its anchor, number and title."""

    id: str
    number: str
    title: str


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """One model's identity, line by line."""

    label: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, kw_only=True)
class PolicyTable:
    """One model's verdict, line by line; `verdict` is None when no policy was given."""

    label: str
    verdict: Verdict | None
    rules: tuple[RuleOutcome, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything the templates show."""

    title: str
    created: str
    day: str
    tool: str
    labels: tuple[str, ...]
    subject_flags: tuple[bool, ...]
    headings: dict[str, Heading]
    front: Front
    records: tuple[ModelRecord, ...]
    policies: tuple[PolicyTable, ...]
    limits: Limits
    data: tuple[Fact, ...]
    epsilon_tables: tuple[EpsilonTable, ...]
    epsilon_panels: Panels
    classes: tuple[ClassTable, ...]
    slices: tuple[ClassTable, ...]
    fisher_panels: Panels
    margin_panels: Panels
    sensitive: SensitiveView
    temperatures: str
    metrics: MetricTables
    layers: tuple[LayerTable, ...]
    cascades: tuple[CascadeTable, ...]
    rankings: tuple[RankingTable, ...]
    ranking_gaps: tuple[str, ...]
    ranking_panels: Panels
    gallery: Gallery
    corruptions: CorruptionView
    images_kept: bool
    checks: tuple[CheckRow, ...]
    certified: bool
    certification: CertifiedView
    clauses: tuple[Clause, ...]
    manifest: tuple[Fact, ...]
    definitions: tuple[Definition, ...]
    result_id: str
    schema_version: int


def view(result: AuditResult, table: ExampleTable, folder: Path, clauses: tuple[Clause, ...]) -> Report:
    """What the report of `result` shows; images are read from `folder`."""
    labels = words.short_labels([model.identity for model in result.models])
    page_one = front(result, labels)
    epsilons, rankings = epsilon_tables(result, labels), ranking_tables(result, labels)
    return Report(
        title=page_one.title,
        created=result.created,
        day=words.day(result.created),
        tool=f"mlflow-audit {result.manifest.tool_version}",
        labels=labels,
        subject_flags=tuple(not model.is_reference for model in result.models),
        headings={anchor: Heading(id=anchor, number=SECTIONS[anchor], title=title) for anchor, title in _HEADINGS},
        front=page_one,
        records=_records(result, labels),
        policies=tuple(
            PolicyTable(
                label=label,
                verdict=model.verdict,
                rules=() if model.verdict is None else model.verdict.rules,
            )
            for model, label in zip(result.models, labels, strict=True)
            if not model.is_reference
        ),
        limits=limits(result, labels),
        data=_data(result),
        epsilon_tables=epsilons,
        epsilon_panels=epsilon_panels(result, labels, epsilons),
        classes=class_tables(result, labels),
        slices=slice_tables(result, labels),
        fisher_panels=lambda_panels(result, labels, table),
        margin_panels=margin_panels(result, labels, table),
        sensitive=sensitive_view(result, labels, folder),
        temperatures=_temperatures(result, labels),
        metrics=metric_tables(result, labels),
        layers=layer_tables(result, labels),
        cascades=cascade_tables(result, labels),
        rankings=rankings,
        ranking_gaps=ranking_gaps(result, labels),
        ranking_panels=ranking_panels(rankings),
        gallery=gallery(result, labels, folder),
        corruptions=corruption_view(result, labels, folder),
        images_kept=result.images_kept,
        checks=check_rows(result, labels),
        certified=certified(result),
        certification=certified_view(result, labels),
        clauses=clauses,
        manifest=_manifest(result, labels),
        definitions=definitions(result),
        result_id=result.id,
        schema_version=result.schema_version,
    )


def _records(result: AuditResult, labels: Sequence[str]) -> tuple[ModelRecord, ...]:
    records = []
    for model, label in zip(result.models, labels, strict=True):
        identity = model.identity
        shape = " × ".join(str(size) for size in identity.input_shape)
        facts = [
            Fact(label="Role", value="reference, not audited itself" if model.is_reference else "audited"),
            Fact(label="Model", value=words.clipped(identity.label, 400)),
            Fact(label="Given as", value=identity.reference, mono=True),
            Fact(label="Model URI", value=identity.uri, mono=True),
            *(
                Fact(label=name, value=value, mono=True)
                for name, value in (("Model id", identity.model_id), ("Run", identity.run_id))
                if value
            ),
            Fact(label="Weights, sha256", value=identity.digest, mono=True),
            Fact(label="Flavour", value=f"{identity.flavour}, {identity.runtime}, on {identity.device}"),
            Fact(label="Input", value=f"{shape}, values in [0, 1]; {identity.classes} classes; outputs are {identity.outputs}"),
            *((Fact(label="Input specification", value=_pairs(identity.input_spec)),) if identity.input_spec else ()),
            *((Fact(label="Gradients", value=identity.gradients),) if identity.gradients else ()),
            *((Fact(label="Trust", value="code that came with this model was allowed to run"),) if identity.trusted else ()),
            *(Fact(label="Caution", value=words.sentence(caution)) for caution in identity.cautions),
            *(Fact(label=f"File {words.clipped(name, 60)}", value=digest, mono=True) for name, digest in _few(identity.files)),
        ]
        left = len(identity.files) - len(_few(identity.files))
        if left:
            facts.append(Fact(label="More files", value=f"{words.counted(left, 'digest')} more in result.json"))
        records.append(ModelRecord(label=label, facts=tuple(facts)))
    return tuple(records)


def _pairs(values: dict[str, str]) -> str:
    return "; ".join(f"{name} = {value}" for name, value in sorted(values.items()))


def _few(files: dict[str, str]) -> list[tuple[str, str]]:
    return sorted(files.items())[:8]


def _data(result: AuditResult) -> tuple[Fact, ...]:
    data = result.data
    counts = sorted(data.classes, key=lambda row: row.count)
    balance = "the sample is empty"
    if counts:
        named = ", ".join(f"{words.clipped(row.name, 30)} {row.count}" for row in data.classes[:30])
        more = f" and {len(data.classes) - 30} more" if len(data.classes) > 30 else ""
        spread = f"from {counts[0].count} to {counts[-1].count} images each"
        balance = f"{words.counted(len(counts), 'class', 'classes')}, {spread}: {named}{more}"
    return (
        Fact(label="Source", value=data.source),
        Fact(label="Given as", value=data.reference, mono=True),
        Fact(
            label="Images",
            value=" × ".join(str(size) for size in data.image_shape) + " (channels, height, width), pixels in [0, 1]",
        ),
        Fact(
            label="Sample",
            value=f"{words.grouped(data.samples)} of {words.counted(data.total, 'image')}, {data.sampling}, seed {data.seed}",
        ),
        Fact(label="Class balance", value=balance),
        Fact(label="Digest, sha256", value=data.digest, mono=True),
        Fact(label="Sample, sha256", value=data.sample_digest, mono=True),
        *(Fact(label="Caution", value=words.sentence(caution)) for caution in data.cautions),
    )


def _temperatures(result: AuditResult, labels: Sequence[str]) -> str:
    """`version 1: 0.83; version 2: 1.17` from the metric fitted_temperature; empty where nobody has it."""
    found = []
    for model, label in zip(result.models, labels, strict=True):
        record = model.metric("fitted_temperature")
        if record is not None and isinstance(record.outcome, Measured):
            found.append(f"{label}: {words.fixed(record.outcome.value, 2)}")
    return "; ".join(found)


def _manifest(result: AuditResult, labels: Sequence[str]) -> tuple[Fact, ...]:
    manifest = result.manifest
    work = [
        Fact(
            label=f"Work, {label}",
            value=f"{words.counted(model.forward_passes, 'forward pass', 'forward passes')} and "
            f"{words.counted(model.backward_passes, 'backward pass', 'backward passes')} of images, "
            f"{words.number(model.seconds)} s",
        )
        for model, label in zip(result.models, labels, strict=True)
    ]
    return (
        Fact(label="Command", value=manifest.command, mono=True),
        Fact(label="Result", value=f"{result.id}, schema {result.schema_version}", mono=True),
        Fact(label="Created", value=result.created, mono=True),
        Fact(label="Profile", value=result.profile),
        Fact(label="Threats", value=words.listed([words.threat_label(threat) for threat in result.threats])),
        Fact(label="Seed", value=str(manifest.seed)),
        Fact(label="Tool", value=f"mlflow-audit {manifest.tool_version}, Python {manifest.python}"),
        Fact(label="Machine", value=f"{manifest.platform}, {manifest.device}, {words.counted(manifest.threads, 'thread')}"),
        *work,
        Fact(label="Settings", value=_pairs(manifest.settings)),
        Fact(label="Versions", value=", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items()))),
    )
