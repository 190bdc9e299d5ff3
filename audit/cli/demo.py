"""`audit demo`: two small models on built-in data, trained, registered, audited and ranked, with nothing to download."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from audit.cli.deliver import deliver


@click.command("demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(".demo"), show_default=True)
@click.option("--samples", type=click.IntRange(min=1), default=500, show_default=True, help="Examples to draw at most.")
@click.pass_context
def command(ctx: click.Context, folder: Path, samples: int) -> None:
    """Train a small CNN on scikit-learn's digits and its adversarially trained twin, register both, audit and rank them."""
    from audit.cli.demo_models import AUDIT_EXPERIMENT, DEMO_THREAT, register_demo_models
    from audit.pipeline import AuditRequest
    from audit.settings import Settings

    folder.mkdir(parents=True, exist_ok=True)
    store = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
    click.echo("Training and registering digits-classifier, versions 1 (standard) and 2 (adversarially trained) ...", err=True)
    models = register_demo_models(store, "digits-classifier", folder / "artifacts")
    request = AuditRequest(
        models=models,
        data="digits:test",
        settings=replace(Settings.of("quick"), threats=(DEMO_THREAT,), samples=samples),
        out=folder / "audit",
        tracking_uri=store,
        registry_uri=store,
        command=f"audit demo --samples {samples}",
    )
    code = deliver(request, experiment=AUDIT_EXPERIMENT, log_to_mlflow=True, mode="text", gated=False)
    if code == 0:
        click.echo(f"\nLook at {folder / 'audit' / 'report.html'}, and at every number in MLflow:")
        click.echo(f"  mlflow ui --workers 1 --backend-store-uri '{store}'")
    ctx.exit(code)
