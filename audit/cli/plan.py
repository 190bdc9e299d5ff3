"""`audit plan`: what an audit would do, what it would skip and why, and what it would cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit.cli.options import audited, registry_uri_of, settings_of, tracking_uri_of
from audit.text import printable

if TYPE_CHECKING:
    from audit.engine.subject import Subject


@click.command("plan")
@audited
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(models: tuple[str, ...], data: str, as_json: bool, **options: Any) -> None:
    """Load the MODELs, predict the clean sample, and show what an audit would run and skip."""
    from audit import data as datasets
    from audit.data.sampling import sample
    from audit.pipeline import AuditRequest, open_subjects

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
        input_spec=options["input_spec"],
        trust=options["trust"],
        allow_chance=options["allow_chance"],
        tracking_uri=tracking_uri,
        registry_uri=registry_uri_of(tracking_uri),
    )
    dataset = datasets.load(data)
    indices = sample(dataset, settings.sample_size, settings.seed)
    subjects = open_subjects(request, dataset, indices, lambda _: None)
    if as_json:
        click.echo(json.dumps([_as_data(subject) for subject in subjects], indent=2))
        return
    for subject in subjects:
        _tell(subject, len(indices))


def _as_data(subject: Subject) -> dict[str, object]:
    return {
        "model": subject.classifier.identity.label,
        "stages": [
            {"evidence": str(stage.key), "forward_passes": stage.forward_passes, "backward_passes": stage.backward_passes}
            for stage in subject.plan.stages
        ],
        "skipped": {str(key): because for key, because in subject.plan.skipped.items()},
        "metrics": [planned.key for planned in subject.plan.metrics],
    }


def _tell(subject: Subject, samples: int) -> None:
    click.echo(f"{printable(subject.classifier.identity.label)}, {samples} examples; passes per image at most")
    width = max(len(str(stage.key)) for stage in subject.plan.stages)
    for stage in subject.plan.stages:
        click.echo(f"  run   {stage.key!s:{width}}  {stage.forward_passes:6} forward {stage.backward_passes:6} backward")
    for key, because in subject.plan.skipped.items():
        click.echo(f"  skip  {key!s:{width}}  {printable(because)}")
    click.echo(f"  {len(subject.plan.metrics)} values")
