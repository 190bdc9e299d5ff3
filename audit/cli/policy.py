"""`audit policy`: write a policy from a result, or check one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from audit.cli.options import registry_uri_of, tracking_uri_of
from audit.cli.output import say
from audit.cli.registered import Stores
from audit.errors import InputError
from audit.text import printable


@click.group("policy")
def command() -> None:
    """Write a policy for `audit gate` and `audit run --policy`, or check one."""


@command.command("init")
@click.argument("subject", metavar="RESULT|RUN|MODEL")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Where to write.  [default: stdout]")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--tracking-uri", metavar="URI", help="MLflow store.  [default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db]")
def init(subject: str, out: Path | None, force: bool, tracking_uri: str | None) -> None:
    """Write a commented policy that pins what this audit rests on, with the bounds that it shows."""
    from audit import records
    from audit.gate.example import example

    tracking = tracking_uri_of(tracking_uri)
    stores = Stores(tracking_uri=tracking, registry_uri=registry_uri_of(tracking))
    found = records.audits(subject, **asdict(stores))
    text = example(found[0].result, [audited.model for audited in found], datetime.now(UTC))
    if out is None:
        say(text.rstrip("\n"))
        return
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(f"{printable(str(out))} exists; --force replaces it") from error
    say(f"wrote {printable(str(out))}")


@command.command("check")
@click.argument("policy", metavar="FILE", type=click.Path(path_type=Path))
def check(policy: Path) -> None:
    """Read the policy in FILE: say what it pins, or which line is wrong."""
    from audit.policy import load_policy

    loaded = load_policy(policy)
    requires = loaded.policy.requires
    left = dict.fromkeys((*requires.opted_out, *(["seed"] if requires.seed is None else [])))  # the seed may be left out
    open_pins = f"; it does not pin {', '.join(left)}" if left else ", and pins all it can"
    say(f"policy {printable(loaded.policy.name)}: {len(loaded.policy.rule)} rules{open_pins} (sha256 {loaded.digest})")
