"""`audit history`: how a registered model's numbers moved over its versions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit.cli.options import registry_uri_of, tracking_uri_of
from audit.cli.output import say
from audit.errors import InputError
from audit.text import printable

if TYPE_CHECKING:
    from audit.sinks.history_view import HistoryView, Row, Trend

_HEADINGS = ("version", "audited", "n", "value", "95 % interval", "verdict", "change on the same examples")


@click.command("history")
@click.argument("model", metavar="models:/NAME")
@click.option(
    "--metric", "metrics", multiple=True, metavar="KEY", help="Follow this metric in place of the usual ones; repeatable."
)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page with trend plots too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document in place of the tables.")
@click.option("--tracking-uri", metavar="URI", help="MLflow store.  [default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db]")
def command(model: str, metrics: tuple[str, ...], html: Path | None, as_json: bool, tracking_uri: str | None) -> None:
    """Show every version of a registered model, with its newest audit, and mark regressions.

    A version is compared with the nearest earlier one on the same examples. Nothing is judged here: the exit code is 0 even with a
    regression, and `audit gate` decides.
    """
    from audit import records
    from audit.history import history, to_json
    from audit.sinks.history_view import view

    name = records.model_name(model)
    store = tracking_uri_of(tracking_uri)
    versions = records.versions(name, tracking_uri=store, registry_uri=registry_uri_of(store))
    if not versions:
        raise InputError(f"model {printable(name, 120)!r} has no version yet; register one")
    found = history(name, versions, metrics)
    if html is not None:
        from audit.sinks.history_page import render

        render(found, html)
    if as_json:
        say(to_json(found).decode().rstrip("\n"))
        return
    for line in _told(view(found)):
        say(line)
    if html is not None:
        say(printable(str(html), 4096))


def _told(shown: HistoryView) -> list[str]:
    lines = [f"{printable(shown.name)}: {shown.versions}", *(printable(finding, 1000) for finding in shown.findings)]
    for trend in shown.trends:
        lines += ["", printable(f"{trend.title} ({trend.line.key}), {trend.direction}: {trend.finding}", 1000), *_table(trend)]
        lines += [printable(note, 1000) for note in trend.notes]
    if not shown.trends:
        lines += [f"version {printable(row.version)}: {printable(row.why_none, 1000)}" for row in shown.unaudited]
    return lines


def _table(trend: Trend) -> list[str]:
    rows = [_HEADINGS, *(_cells(row) for row in trend.rows if not row.why_none)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS))]
    lines = [_aligned(_HEADINGS, widths)]
    for row in trend.rows:
        if row.broken:
            lines.append(f"  ---- {printable(row.broken, 1000)}")
        missing = f"  {printable(row.version):<{widths[0]}}  {printable(row.why_none, 1000)}"
        lines.append(missing if row.why_none else _aligned(_cells(row), widths))
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    cells = (row.version, row.day, row.samples, row.value, row.interval, row.verdict, row.change)
    return tuple(printable(cell, 200) for cell in cells)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
