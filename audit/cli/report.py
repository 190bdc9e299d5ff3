"""`audit report`: render the report of a result again, without the model or the data."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--no-pdf", is_flag=True, help="HTML only.")
@click.option("--clause-map", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file that replaces the clause map.")
def command(result: Path, no_pdf: bool, clause_map: Path | None) -> None:
    """Render report.html and report.pdf in the folder of RESULT (a result folder or its result.json)."""
    from audit.records import find
    from audit.sinks.report import render

    _, folder = find(str(result))
    rendered = render(folder, pdf=not no_pdf, clause_map=clause_map)
    click.echo(str(rendered.html))
    if rendered.pdf is not None:
        click.echo(str(rendered.pdf))
    if rendered.pdf_problem:
        click.echo(f"Warning: {rendered.pdf_problem}", err=True)
