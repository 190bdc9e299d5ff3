"""`audit compare`: audits against the first of them, metric by metric, on the same examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit.cli.options import registry_uri_of, tracking_uri_of
from audit.cli.output import say
from audit.errors import InputError
from audit.text import printable

if TYPE_CHECKING:
    from audit.sinks.compare_view import CompareView, Line

_SHOWN_KEYS = 3


@click.command("compare")
@click.argument("audits", metavar="AUDIT...", nargs=-1, required=True)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page with plots too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document in place of the tables.")
@click.option("--tracking-uri", metavar="URI", help="MLflow store.  [default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db]")
def command(audits: tuple[str, ...], html: Path | None, as_json: bool, tracking_uri: str | None) -> None:
    """Compare audited models with the first one, on the examples they share.

    AUDIT is a result folder (every model in it counts), runs:/RUN, models:/NAME/3 or models:/NAME@ALIAS. Nothing is judged here:
    the exit code is 0 whatever is worse, and `audit gate` decides.
    """
    from audit import records
    from audit.compare import compare, to_json
    from audit.sinks.compare_view import view

    store = tracking_uri_of(tracking_uri)
    registry = registry_uri_of(store)
    found = [one for text in audits for one in records.audits(text, tracking_uri=store, registry_uri=registry)]
    if len(found) < 2:
        raise InputError(f"{printable(audits[0])} holds one audited model, and a comparison needs two; name another audit")
    comparison = compare(found)
    if html is not None:
        from audit.sinks.compare_page import render

        render(comparison, html)
    if as_json:
        say(to_json(comparison).decode().rstrip("\n"))
        return
    for line in _told(view(comparison)):
        say(line)
    if html is not None:
        say(printable(str(html), 4096))


def _told(shown: CompareView) -> Iterator[str]:
    for who in shown.who:
        yield printable(f"{who.letter}  {who.label}, digest {who.digest}", 400)
        yield "   " + printable("; ".join(who.facts), 1000)
    yield ""
    yield from (printable(finding, 1000) for finding in shown.findings)
    if shown.lines:
        yield f"Differences are paired, with 95 % intervals; verdicts hold at 5 % for all {shown.claims} claims together (Holm)."
        yield ""
        yield from _table([_headings(shown), *(_cells(line, len(shown.who) > 2) for line in shown.lines)])
    for ranks in shown.ranks:
        places = [f"{rank}: {letter} {value} ({interval})" for rank, letter, _, value, interval in ranks.rows]
        yield ""
        yield printable(f"Ranks, {ranks.title}:  {';  '.join(places)}", 1000)
    if shown.known or shown.gaps:
        yield ""
    for known in shown.known:
        yield printable(f"{known.letter}: {known.what}: {known.because} Still compared: {known.still}.", 1000)
        if known.metrics:
            yield f"   not compared for this: {_keys(known.metrics)}"
    for gap in shown.gaps:
        yield printable(f"{gap.letters}: not compared, because {gap.because}:", 1000)
        yield f"   {_keys(gap.metrics)}"


def _headings(shown: CompareView) -> tuple[str, ...]:
    base, other = shown.who[0].letter, shown.who[1].letter
    if len(shown.who) == 2:
        return ("verdict", "metric", base, other, f"{other} \u2212 {base}", "n", f"right only in {other} : {base}")
    return ("verdict", "metric", base, "", "other", f"other \u2212 {base}", "n", f"right only in other : {base}")


def _cells(line: Line, several: bool) -> tuple[str, ...]:
    base, other = (value.value for value in line.values)
    values = (base, line.letter, other) if several else (base, other)
    cells = (line.verdict, line.row.key, *values, f"{line.difference} ({line.interval})", line.samples, line.counts)
    return tuple(printable(cell, 80) for cell in cells)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _keys(keys: tuple[str, ...]) -> str:
    more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return printable(", ".join(keys[:_SHOWN_KEYS]) + more, 1000)
