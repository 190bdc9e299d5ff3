"""`audit metrics`: the catalogue, or the definition of one metric."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from audit.errors import InputError
from audit.text import printable

if TYPE_CHECKING:
    from audit.metrics.spec import Metric


@click.command("metrics")
@click.argument("metric_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.option("--markdown", "as_markdown", is_flag=True, help="As tables: what each needs, and what an endpoint cannot give.")
def command(metric_id: str | None, as_json: bool, as_markdown: bool) -> None:
    """List every metric, or define the one called ID."""
    from audit.metrics import CATALOG

    known = {metric.id: metric for metric in CATALOG}
    if metric_id is not None and metric_id not in known:
        near = difflib.get_close_matches(metric_id, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "list them with: audit metrics"
        raise InputError(f"there is no metric {printable(metric_id)!r}; {hint}")
    chosen = list(CATALOG) if metric_id is None else [known[metric_id]]
    if as_markdown:
        click.echo("\n\n".join((catalogue_table(chosen), endpoint_table(chosen))))
    elif as_json:
        click.echo(json.dumps([_as_data(metric) for metric in chosen], indent=2))
    elif metric_id is not None:
        metric = chosen[0]
        click.echo(f"{metric.id}  ({metric.symbol})\n\n{metric.definition}\n")
        click.echo(f"Better: {metric.better}.  Unit: {metric.unit}.  Source: {metric.source}.")
        click.echo(f"Evidence: {', '.join(metric.needs)}.  Per threat: {'yes' if metric.per_threat else 'no'}.")
    else:
        width = max(len(metric.id) for metric in chosen)
        for metric in chosen:
            click.echo(f"{metric.id:{width}}  {metric.symbol:6}  {metric.better:8} {metric.name}")


def catalogue_table(metrics: Sequence[Metric]) -> str:
    """Each metric with its symbol, what it is and what it needs, as a Markdown table; `*` marks rows of Guo et al."""
    from audit.plan import requirements

    lines = ["| metric | symbol | what | needs |", "|---|---|---|---|"]
    for metric in metrics:
        needs = ", ".join(capability.value.replace("_", " ") for capability in requirements(metric))
        symbol = f"{metric.symbol}{' *' if metric.paper_row else ''}".replace("*", "\\*")
        lines.append(f"| `{metric.id}` | {symbol} | {metric.name} | {needs} |")
    return "\n".join(lines)


def endpoint_table(metrics: Sequence[Metric]) -> str:
    """What an endpoint cannot be given, by what it answers, as a Markdown table; each row adds to the one above."""
    from audit.plan import beyond
    from audit.vocabulary import Capability

    lacks: set[Capability] = set()
    told: set[str] = set()
    lines = ["| an endpoint | cannot give | so these are not applicable |", "|---|---|---|"]
    for who, what, more in (
        ("of any kind", "activations", Capability.ACTIVATIONS),
        ("of any kind", "gradients", Capability.GRADIENTS),
        ("that answers with labels only", "scores", Capability.SCORES),
    ):
        lacks.add(more)
        found = [metric.id for metric in beyond(lacks, tuple(metrics)) if metric.id not in told]
        told.update(found)
        lines.append(f"| {who} | {what} | {', '.join(f'`{each}`' for each in found) or 'none'} |")
    return "\n".join(lines)


def _as_data(metric: Metric) -> dict[str, object]:
    return {
        "id": metric.id,
        "symbol": metric.symbol,
        "name": metric.name,
        "family": metric.family,
        "better": metric.better,
        "unit": metric.unit,
        "source": metric.source,
        "paper_row": metric.paper_row,
        "definition": metric.definition,
        "needs": list(metric.needs),
        "per_threat": metric.per_threat,
    }
