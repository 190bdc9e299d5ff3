"""`audit plan`: what an audit would do, what it would skip and why, and what it would cost."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from audit.cli.options import audited, limits_of, registry_uri_of, settings_of, tracking_uri_of
from audit.cli.output import duration, json_only, say
from audit.cli.progress import listener
from audit.text import printable

if TYPE_CHECKING:
    from audit.engine.subject import Subject
    from audit.evidence import EvidenceKey


@click.command("plan")
@audited
@click.option("--time", "timed", is_flag=True, help="Measure a few examples, and say how long the audit will take.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(models: tuple[str, ...], data: str, timed: bool, as_json: bool, **options: Any) -> None:
    """Load the MODELs, predict the clean sample, and show what an audit would run, re-use and skip."""
    from audit.engine.forecast import calibration_part, forecast
    from audit.engine.journal import open_journal
    from audit.engine.sample import draw
    from audit.pipeline import AuditRequest, gather_part, load_models, open_subjects
    from audit.plan import queries_needed

    settings = settings_of(
        profile=options["profile"],
        threats=options["threats"],
        samples=options["samples"],
        seed=options["seed"],
        device=options["device"],
        eot=options["eot"],
        layers=options["layers"],
    )
    tracking_uri = tracking_uri_of(options["tracking_uri"])
    request = AuditRequest(
        models=models,
        data=data,
        settings=settings,
        out=Path(),
        reference=options["reference"],
        surrogate=options["surrogate"],
        class_names=options["class_names"],
        resize=options["resize"],
        skip_unreadable=options["skip_unreadable"],
        profile_data=options["profile_data"],
        corrupted=options["corrupted"],
        input_spec=options["input_spec"],
        output=options["output"],
        trust=options["trust"],
        expect_sha256=options["expect_sha256"],
        allow_chance=options["allow_chance"],
        black_box=options["black_box"],
        tracking_uri=tracking_uri,
        registry_uri=registry_uri_of(tracking_uri),
        limits=limits_of(max_queries=options["max_queries"], rate_limit=options["rate_limit"]),
    )
    sample = draw(request.data_request, settings)
    request = replace(request, settings=sample.fitted(settings))
    indices = sample.indices
    with (
        json_only(as_json),
        TemporaryDirectory(prefix="audit-plan-") as folder,
        open_journal(Path(folder), options["reuse"]) as journal,
        listener("quiet" if as_json or not timed else "text", sys.stdout) as listen,
    ):
        classifiers, sample = load_models(request, sample)
        subjects = open_subjects(request, classifiers, sample, journal, lambda _: None)
        held = [{stage.key: subject.gatherer.held(stage.key, stage.needs) for stage in subject.plan.stages} for subject in subjects]
        seconds: list[Mapping[EvidenceKey, float] | None] = [None] * len(subjects)
        if timed:
            part = calibration_part(indices, request.settings)
            # The whole sample has shown that the models are better than guessing; a few examples need not.
            measured = gather_part(replace(request, allow_chance=True), classifiers, sample, part, journal=journal, listen=listen)
            seconds = [forecast(gathered, request.settings, len(part), len(indices)) for gathered in measured]
    dimension, most = math.prod(sample.dataset.image_shape), request.limits.max_queries
    queries = [
        queries_needed(subject.plan, request.settings, dimension, len(indices)) if subject.classifier.identity.opaque else None
        for subject in subjects
    ]
    planned = list(zip(subjects, held, queries, seconds, strict=True))
    if as_json:
        click.echo(json.dumps([_as_data(*each) for each in planned], indent=2))
    for subject, found, needed, taken in planned:
        if not as_json:
            _tell(subject, found, needed, taken, len(indices), reuse=bool(options["reuse"]))
        if needed is not None and most is not None and needed > most:
            name = printable(subject.classifier.identity.label)
            say(f"Warning: {name} may need {needed} images, more than --max-queries {most}; what no longer fits fails", err=True)


def _left(held: tuple[int, int]) -> float:
    """The share of a stage's chunks that no earlier audit has measured."""
    return 1 - held[0] / held[1]


def _as_data(
    subject: Subject,
    held: dict[EvidenceKey, tuple[int, int]],
    queries: int | None,
    seconds: Mapping[EvidenceKey, float] | None,
) -> dict[str, object]:
    return {
        "model": subject.classifier.identity.label,
        "stages": [
            {
                "evidence": str(stage.key),
                "forward_passes": stage.forward_passes,
                "backward_passes": stage.backward_passes,
                "escalated_passes": stage.escalated,
                "attacks": stage.attacks,
                "chunks": held[stage.key][1],
                "chunks_reused": held[stage.key][0],
                "seconds": None if seconds is None else seconds.get(stage.key, 0.0) * _left(held[stage.key]),
            }
            for stage in subject.plan.stages
        ],
        "skipped": subject.plan.left_out,
        "metrics": [planned.key for planned in subject.plan.metrics],
        "queries_at_most": queries,
    }


def _tell(
    subject: Subject,
    held: dict[EvidenceKey, tuple[int, int]],
    queries: int | None,
    seconds: Mapping[EvidenceKey, float] | None,
    samples: int,
    *,
    reuse: bool,
) -> None:
    click.echo(f"{printable(subject.classifier.identity.label)}, {samples} examples; passes per image at most")
    width = max(len(str(key)) for key in (*held, *subject.plan.left_out))
    for stage in subject.plan.stages:
        found, chunks = held[stage.key]
        reused = f"   re-uses {found} of {chunks} chunks" if reuse else ""
        time = "" if seconds is None else f"   about {duration(seconds.get(stage.key, 0.0) * _left(held[stage.key])):>11}"
        passes = f"{stage.forward_passes:6} forward {stage.backward_passes:6} backward"
        click.echo(f"  run   {stage.key!s:{width}}  {passes}{time}{reused}")
        if stage.attacks:
            click.echo(f"        {', then '.join(stage.attacks)}")
        if stage.escalated is not None:
            forward, backward = stage.escalated
            click.echo(f"        {'if its gradients are not believed':{width}}  {forward:6} forward {backward:6} backward")
    for key, because in subject.plan.left_out.items():
        click.echo(f"  skip  {key!s:{width}}  {printable(because)}")
    sent = "" if queries is None else f"; at most {queries} images sent, padding included"
    in_all = "" if seconds is None else f"; about {duration(sum(seconds[key] * _left(held[key]) for key in seconds))} in all"
    click.echo(f"  {len(subject.plan.metrics)} values{sent}{in_all}")
