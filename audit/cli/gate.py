"""`audit gate`: judge a finished audit by a policy, tag the version, and let it have an alias if it passes."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit.cli.options import registry_uri_of, tracking_uri_of
from audit.cli.output import say
from audit.cli.registered import Case, Stores, current_model, promote, tag
from audit.errors import InputError, SinkError
from audit.text import printable, redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audit.audited import Audited
    from audit.policy import Policy
    from audit.sinks.ci_summary import Judged


@click.command("gate")
@click.argument("subject", metavar="RESULT|RUN|MODEL")
@click.option("--policy", type=click.Path(path_type=Path), required=True, help="The policy file.")
@click.option("--model", metavar="MODEL", help="The model to gate.  [default: MODEL, or what the audit was given]")
@click.option("--promote-to", "alias", metavar="ALIAS", help="On a pass, let this alias lead to the version.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--markdown", metavar="FILE", help="Append a Markdown summary to FILE; - prints it instead of the lines.")
@click.option("--no-tags", is_flag=True, help="Leave the registered version's tags alone.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.option("--tracking-uri", metavar="URI", help="MLflow store.  [default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db]")
def command(
    subject: str,
    policy: Path,
    model: str | None,
    alias: str | None,
    junit: Path | None,
    markdown: str | None,
    no_tags: bool,
    as_json: bool,
    tracking_uri: str | None,
) -> None:
    """Judge an audit: a result folder, a run (runs:/RUN), or a registered version (models:/NAME/3, models:/NAME@ALIAS).

    The model's files must still be those that were audited; nothing of it is loaded. The exit code is 0 only on a pass.
    """
    from audit.sinks import ci_summary
    from audit.sinks.mlflow_verdict import check_alias

    if as_json and markdown == "-":
        raise InputError("--json and --markdown - both write to stdout; give the Markdown a file")
    if alias is not None:
        check_alias(alias)
    tracking = tracking_uri_of(tracking_uri)
    stores = Stores(tracking_uri=tracking, registry_uri=registry_uri_of(tracking))
    now = datetime.now(UTC)
    cases = _judge(subject, policy, model, alias, now, stores)
    if markdown == "-":
        say(ci_summary.markdown(_judged(cases)))
    elif not as_json:
        _tell(cases)
    problems = _write(cases, junit, None if markdown in (None, "-") else Path(str(markdown)))
    passed = all(case.verdict.status == "pass" for case in cases)
    done: list[str] = []
    try:
        done += [] if no_tags else [words for case in cases if (words := tag(case, now, stores))]
        if alias is not None and passed:
            refused = promote(cases[0], alias, stores)
            passed = refused is None
            done.append(refused or f"the alias {alias} leads to {printable(cases[0].current.uri or '')}")
    except SinkError as error:
        problems.append(str(error))
    if as_json:
        say(json.dumps({"passed": passed, "models": [_as_data(case) for case in cases], "done": done, "problems": problems}))
    else:
        for line in done:
            say(line, err=markdown == "-")
        for problem in problems:
            say(f"Warning: {problem}", err=True)
    click.get_current_context().exit(1 if not passed else 3 if problems else 0)


def _judge(subject: str, path: Path, model: str | None, alias: str | None, now: datetime, stores: Stores) -> list[Case]:
    from audit import records
    from audit.gate import judge
    from audit.policy import load_policy

    loaded = load_policy(path)
    found = records.audits(subject, **asdict(stores))
    for option, given in (("--model", model), ("--promote-to", alias)):
        if given is not None and len(found) > 1:
            raise InputError(f"{option} is about one model, and this audit has {len(found)}; gate one as models:/NAME/VERSION")
    named = model or (subject if subject.strip().startswith("models:/") else None)
    cases = []
    for audited in found:
        current = current_model(audited, named, stores)
        if alias is not None and current.digest is not None and current.version is None:
            raise InputError(f"--promote-to needs a registered version, and {printable(current.reference)} is none")
        references = _references(loaded.policy, audited, subject, stores)
        verdict = judge(audited, loaded, references=references, now=now, current=current)
        cases.append(Case(audited=audited, current=current, verdict=verdict))
    return cases


def _references(policy: Policy, audited: Audited, subject: str, stores: Stores) -> dict[str, Audited | str]:
    """The audits that the policy compares with, or why there is none."""
    from audit import records
    from audit.policy import REFERENCE

    found: dict[str, Audited | str] = {}
    for name in policy.references:
        try:
            if name == REFERENCE:
                own = records.reference_of(audited, subject, **asdict(stores))
                found[name] = own or "this audit had no reference model; audit again with --reference"
            else:
                found[name] = records.audit(name, **asdict(stores))
        except InputError as error:
            found[name] = str(error)
    return found


def _tell(cases: Sequence[Case]) -> None:
    for case in cases:
        label, verdict = printable(case.audited.label), case.verdict
        say(f"{label}, audited {printable(case.audited.result.created, 40)} ({printable(redact(case.audited.source))})")
        for rule in verdict.rules:
            words = f"{rule.requirement} {rule.required}, measured {rule.measured}: {rule.because}"
            say(f"  {rule.status.upper():9}  {printable(redact(words), 500)}")
        say(f"{label}: {verdict.status.upper()}, {printable(f'policy {verdict.policy}: {verdict.sentence}')}")


def _judged(cases: Sequence[Case]) -> list[Judged]:
    from audit.sinks.ci_summary import Judged

    return [Judged(label=case.audited.label, verdict=case.verdict) for case in cases]


def _write(cases: Sequence[Case], junit: Path | None, markdown: Path | None) -> list[str]:
    """Write the files for CI; what cannot be written is a problem, and the verdict stands."""
    from audit.sinks import ci_summary

    judged = _judged(cases)
    outputs = ((junit, "wb", ci_summary.junit(judged)), (markdown, "ab", f"{ci_summary.markdown(judged)}\n".encode()))
    problems = []
    for path, mode, content in outputs:
        try:
            if path is not None:
                with path.open(mode) as file:
                    file.write(content)
        except OSError as error:
            problems.append(f"{printable(str(path))} cannot be written: {error.strerror}")
    return problems


def _as_data(case: Case) -> dict[str, object]:
    identity, current = case.audited.model.identity, case.current
    return {
        "model": identity.label,
        "result_id": case.audited.result.id,
        "audited": {"uri": identity.uri, "digest": identity.digest},
        "now": {"reference": current.reference, "uri": current.uri, "digest": current.digest, "because": current.because},
        "verdict": asdict(case.verdict),
    }
