"""`audit push`: log a finished result to MLflow; doing it twice changes nothing."""

from __future__ import annotations

from pathlib import Path

import click

from audit.cli.options import registry_uri_of, tracking_uri_of
from audit.text import printable


@click.command("push")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--tracking-uri", metavar="URI", help="MLflow store.  [default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db]")
@click.option("--experiment", help="MLflow experiment.  [default: audit]")
def command(folder: Path, tracking_uri: str | None, experiment: str | None) -> None:
    """Log the result folder DIR to MLflow, or finish a log that broke off."""
    from audit.sinks.mlflow_run import log

    store = tracking_uri_of(tracking_uri)
    logged = log(folder, tracking_uri=store, registry_uri=registry_uri_of(store), experiment=experiment)
    click.echo(f"MLflow run {logged.parent_run_id} in experiment {printable(logged.experiment_name)}")
    for note in logged.notes:
        click.echo(f"Warning: {note}", err=True)
