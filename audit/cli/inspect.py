"""`audit inspect`: what a model is, what it can do, and which input spec is the right one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from audit.cli.options import registry_uri_of, tracking_uri_of
from audit.cli.output import json_only, say
from audit.errors import InputError

SECONDS_BETWEEN_LINES = 10


@click.command("inspect")
@click.argument("model", metavar="MODEL")
@click.option("--data", help="Labelled images, in any form that audit run takes: the usual input specs are tried on them.")
@click.option("--samples", type=click.IntRange(min=1), default=200, show_default=True, help="Images to draw at most.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of sampling.")
@click.option("--class-names", type=click.Path(path_type=Path), metavar="FILE", help="Class names in order: one a line, or JSON.")
@click.option("--resize", metavar="HxW[,METHOD]", help="Resize every image before anything else.")
@click.option("--skip-unreadable", is_flag=True, help="Leave out images that cannot be read.")
@click.option("--input-spec", metavar="SPEC", help="An input spec to try besides the usual ones; its dtype is used for all.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--output", metavar="NAME", help="The model's output that holds the scores, where it has several.")
@click.option("--expect-sha256", metavar="HEX", help="Look at MODEL only if its files have this sha256.")
@click.option("--trust", is_flag=True, help="Allow loading a model that can run its own code; without it, it is only described.")
@click.option("--write", is_flag=True, help="Write the best spec to MODEL.input.toml, or as tags of the registered version.")
@click.option("--force", is_flag=True, help="Let --write replace what is there, or write the best of several.")
@click.option("--tracking-uri", metavar="URI", help="MLflow store.  [default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db]")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def command(ctx: click.Context, /, model: str, data: str | None, write: bool, force: bool, as_json: bool, **options: Any) -> None:
    """Say what MODEL is, what it can do, and whether loading it runs code; with --data, find its input spec.

    Exit code 0: described, or one input spec stands alone. 1: several cannot be told apart, all are at chance, or the labels do not
    fit. 2: the model or the data cannot be used.
    """
    if write and data is None:
        raise InputError("--write writes the input spec that was found on data; name them with --data")
    # A typo in the reference is answered before torch and mlflow are imported.
    from audit.models.ref import ModelRef

    ref = ModelRef.parse(model)
    from audit.engine.sample import DataRequest
    from audit.inspection import InspectRequest, inspect
    from audit.inspection.keeping import best_spec, check_free, has_rivals, keep, tags_of
    from audit.inspection.words import document, lines

    tracking_uri = tracking_uri_of(options["tracking_uri"])
    registry_uri = registry_uri_of(tracking_uri)
    request = InspectRequest(
        model=model,
        data=None
        if data is None
        else DataRequest(
            reference=data,
            class_names=options["class_names"],
            resize=options["resize"],
            skip_unreadable=options["skip_unreadable"],
            tracking_uri=tracking_uri,
        ),
        samples=options["samples"],
        seed=options["seed"],
        device=options["device"],
        input_spec=options["input_spec"],
        output=options["output"],
        trust=options["trust"],
        expect_sha256=options["expect_sha256"],
        tracking_uri=tracking_uri,
        registry_uri=registry_uri,
    )
    if write and not force:
        check_free(ref)
    with json_only(as_json):
        found = inspect(request, _progress())
    spec = best_spec(found)
    told = ""
    if write and has_rivals(found) and not force:
        # A scale that only happens to come first would make every later audit's epsilon mean something else.
        told = "Nothing was written, as several input specs are possible; state the one of the training, or pass --force."
    elif write and spec is not None:
        told = keep(found, spec, ref, force=force, tracking_uri=tracking_uri, registry_uri=registry_uri)
    elif write and found.problem is None:
        told = "Nothing was written."
    if as_json:
        click.echo(json.dumps({**document(found), "written": told or None}, indent=2))
    else:
        for line in lines(found):
            say(line)
        if spec is not None and ref.is_registry and not write:
            tags = " ".join(f"{key}={value}" for key, value in tags_of(found, spec).items())
            say(f"Tags that would state it (--write sets them): {tags}")
        if told:
            say(told)
    if found.problem is not None:
        raise found.problem
    judged = None if found.trial is None else found.trial.judgement
    ctx.exit(0 if judged is None or judged.settled else 1)


def _progress() -> Callable[[int, int], None]:
    """A line on stderr every few seconds: quick inspections say nothing."""
    told = time.monotonic()

    def listen(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= SECONDS_BETWEEN_LINES:
            told = time.monotonic()
            say(f"{done} of {total} images tried", err=True)

    return listen
