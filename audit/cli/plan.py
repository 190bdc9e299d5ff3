"""`audit plan`: what an audit would do, what it would skip and why, and what it would cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from audit.cli.options import audited, registry_uri_of, settings_of, tracking_uri_of
from audit.cli.output import json_only
from audit.text import printable

if TYPE_CHECKING:
    from audit.engine.subject import Subject
    from audit.evidence import EvidenceKey


@click.command("plan")
@audited
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(models: tuple[str, ...], data: str, as_json: bool, **options: Any) -> None:
    """Load the MODELs, predict the clean sample, and show what an audit would run, re-use and skip."""
    from audit.engine.journal import open_journal
    from audit.engine.sample import draw
    from audit.pipeline import AuditRequest, load_models, open_subjects

    settings = settings_of(
        profile=options["profile"],
        threats=options["threats"],
        samples=options["samples"],
        seed=options["seed"],
        device=options["device"],
    )
    tracking_uri = tracking_uri_of(options["tracking_uri"])
    request = AuditRequest(
        models=models,
        data=data,
        settings=settings,
        out=Path(),
        reference=options["reference"],
        class_names=options["class_names"],
        resize=options["resize"],
        skip_unreadable=options["skip_unreadable"],
        input_spec=options["input_spec"],
        output=options["output"],
        trust=options["trust"],
        expect_sha256=options["expect_sha256"],
        allow_chance=options["allow_chance"],
        black_box=options["black_box"],
        tracking_uri=tracking_uri,
        registry_uri=registry_uri_of(tracking_uri),
    )
    sample = draw(request.data_request, settings)
    request = replace(request, settings=settings.for_images(sample.dataset.image_shape))
    indices = sample.indices
    with (
        json_only(as_json),
        TemporaryDirectory(prefix="audit-plan-") as folder,
        open_journal(Path(folder), options["reuse"]) as journal,
    ):
        classifiers, sample = load_models(request, sample)
        subjects = open_subjects(request, classifiers, sample.dataset, indices, journal, lambda _: None)
        held = [{stage.key: subject.gatherer.held(stage.key, stage.needs) for stage in subject.plan.stages} for subject in subjects]
    if as_json:
        click.echo(json.dumps([_as_data(subject, found) for subject, found in zip(subjects, held, strict=True)], indent=2))
        return
    for subject, found in zip(subjects, held, strict=True):
        _tell(subject, found, len(indices), reuse=bool(options["reuse"]))


def _as_data(subject: Subject, held: dict[EvidenceKey, tuple[int, int]]) -> dict[str, object]:
    return {
        "model": subject.classifier.identity.label,
        "stages": [
            {
                "evidence": str(stage.key),
                "forward_passes": stage.forward_passes,
                "backward_passes": stage.backward_passes,
                "chunks": held[stage.key][1],
                "chunks_reused": held[stage.key][0],
            }
            for stage in subject.plan.stages
        ],
        "skipped": {str(key): because for key, because in subject.plan.skipped.items()},
        "metrics": [planned.key for planned in subject.plan.metrics],
    }


def _tell(subject: Subject, held: dict[EvidenceKey, tuple[int, int]], samples: int, *, reuse: bool) -> None:
    click.echo(f"{printable(subject.classifier.identity.label)}, {samples} examples; passes per image at most")
    width = max(len(str(key)) for key in (*held, *subject.plan.skipped))
    for stage in subject.plan.stages:
        found, chunks = held[stage.key]
        reused = f"   re-uses {found} of {chunks} chunks" if reuse else ""
        click.echo(f"  run   {stage.key!s:{width}}  {stage.forward_passes:6} forward {stage.backward_passes:6} backward{reused}")
    for key, because in subject.plan.skipped.items():
        click.echo(f"  skip  {key!s:{width}}  {printable(because)}")
    click.echo(f"  {len(subject.plan.metrics)} values")
