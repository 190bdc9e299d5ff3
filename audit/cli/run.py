"""`audit run`: audit models and write, log and render the result."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from audit.cli.deliver import deliver
from audit.cli.options import audited, default_out, limits_of, registry_uri_of, seconds_of, settings_of, tracking_uri_of
from audit.errors import InputError


@click.command("run")
@audited
@click.option("--policy", type=click.Path(path_type=Path), help="A policy file; the exit code is then its verdict.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Result folder.  [default: audits/<time>]")
@click.option("--train-data", metavar="DATA", help="The training data: audited images that occur in it are reported.")
@click.option("--resume", is_flag=True, help="Go on with the unfinished audit in --out.")
@click.option("--time-budget", metavar="TIME", help="Use only as many examples as fit, e.g. 15m; no attack is cut short.")
@click.option("--experiment", help="MLflow experiment.  [default: audit]")
@click.option("--no-mlflow", is_flag=True, help="Write and render the result only.")
@click.option("--no-pdf", is_flag=True, help="Render HTML only, which is faster; audit report makes the PDF later.")
@click.option("--no-images", is_flag=True, help="Leave every example image out of all outputs.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Progress and summary as JSON lines on stdout.")
def command(
    models: tuple[str, ...],
    data: str,
    policy: Path | None,
    out: Path | None,
    train_data: str | None,
    resume: bool,
    time_budget: str | None,
    experiment: str | None,
    no_mlflow: bool,
    no_pdf: bool,
    no_images: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Audit one or more MODELs and write, log and render the result.

    MODEL is models:/NAME/VERSION, models:/NAME@ALIAS, models:/m-ID, runs:/RUN/PATH, a file.onnx, an endpoint
    (https://HOST/invocations or https://HOST/v2/models/NAME) or a function (package.module:function).
    """
    if resume and out is None:
        raise InputError("--resume goes on with an audit in a folder; name the folder with --out")
    # Settings and references are checked before torch and mlflow are imported: a typo answers at once.
    from audit.models.ref import ModelRef

    for text in (*models, options["reference"], options["surrogate"]):
        if text:
            ModelRef.parse(text)
    settings = settings_of(
        profile=options["profile"],
        threats=options["threats"],
        samples=options["samples"],
        seed=options["seed"],
        device=options["device"],
        eot=options["eot"],
        layers=options["layers"],
        keep_images=not no_images,
    )
    from audit.pipeline import AuditRequest

    tracking_uri = tracking_uri_of(options["tracking_uri"])
    request = AuditRequest(
        models=models,
        data=data,
        settings=settings,
        out=out or default_out(),
        reference=options["reference"],
        surrogate=options["surrogate"],
        class_names=options["class_names"],
        resize=options["resize"],
        skip_unreadable=options["skip_unreadable"],
        train_data=train_data,
        profile_data=options["profile_data"],
        corrupted=options["corrupted"],
        policy=policy,
        input_spec=options["input_spec"],
        output=options["output"],
        trust=options["trust"],
        expect_sha256=options["expect_sha256"],
        allow_chance=options["allow_chance"],
        black_box=options["black_box"],
        tracking_uri=tracking_uri,
        registry_uri=registry_uri_of(tracking_uri),
        resume=resume,
        reuse=options["reuse"],
        time_budget=seconds_of(time_budget),
        limits=limits_of(max_queries=options["max_queries"], rate_limit=options["rate_limit"]),
        command="audit " + shlex.join(sys.argv[1:]),
    )
    mode = "json" if as_json else ("quiet" if quiet else "text")
    click.get_current_context().exit(
        deliver(request, experiment=experiment, log_to_mlflow=not no_mlflow, pdf=not no_pdf, mode=mode, gated=policy is not None)
    )
