"""`audit demo`: two small models on built-in data, trained, registered, audited and ranked, with nothing to download."""

from __future__ import annotations

import logging
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import click

from audit.cli.deliver import deliver

POLICY = """name = "demo"

[requires]                # what the verdict rests on; "any" leaves it open
threats = ["{threat}"]
min_samples = 50
min_profile = "quick"
data_digest = "any"
input_spec = "any"
max_age_days = 30

[[rule]]
metric = "clean_accuracy"
bound = 0.9

[[rule]]
score = "adversarial"
bound = 50                # half of the right answers survive the attacks

[[rule]]
checks = [1, 9, 12, 17]
"""


@click.command("demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(".demo"), show_default=True)
@click.option("--samples", type=click.IntRange(min=1), default=500, show_default=True, help="Examples to draw at most.")
@click.pass_context
def command(ctx: click.Context, folder: Path, samples: int) -> None:
    """Train a small CNN on scikit-learn's digits and its adversarially trained twin, register both, audit and rank them."""
    import torch

    from audit.cli.demo_models import AUDIT_EXPERIMENT, DEMO_THREAT, register_demo_models
    from audit.pipeline import AuditRequest
    from audit.settings import Settings

    # Layers this small are slower on two threads than on one, many times so on a busy machine.
    torch.set_num_threads(1)
    # A new store's first words are about its database tables.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(threat=DEMO_THREAT), encoding="utf-8")
    store = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
    click.echo("Training and registering digits-classifier, versions 1 (standard) and 2 (adversarially trained) ...", err=True)
    models = register_demo_models(store, "digits-classifier", folder / "artifacts")
    request = AuditRequest(
        models=models,
        data="digits:test",
        settings=replace(Settings.of("quick"), threats=(DEMO_THREAT,), samples=samples),
        out=folder / "audit",
        policy=policy,
        tracking_uri=store,
        registry_uri=store,
        command=f"audit demo --samples {samples}",
    )
    code = deliver(request, experiment=AUDIT_EXPERIMENT, log_to_mlflow=True, mode="text", gated=False)
    if code == 0:
        scripts = Path(sys.executable).parent
        click.echo(f"\nLook at {(folder / 'audit' / 'report.html').resolve()}, and at every number in MLflow:")
        click.echo(f"  {shlex.quote(str(scripts / 'mlflow'))} ui --workers 1 --backend-store-uri {shlex.quote(store)}")
    ctx.exit(code)
