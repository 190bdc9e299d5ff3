"""Five versions of one classifier, the fourth of them a regression: what history shows, what compare says, and what the gate stops.

    python examples/release_gate.py                   about fifteen minutes on one CPU core, eleven epochs of training included
    python examples/release_gate.py --smoke           under a minute, models good for nothing but trying the commands

The versions are steps of one adversarial training on Fashion-MNIST (see fashion_mnist.py for the data). Version 4 was tuned with a
smaller budget than it is audited at: its accuracy on clean images rises, and its accuracy under attack falls.
"""

from __future__ import annotations

import argparse
import copy
import shlex
import subprocess
import sys
from pathlib import Path

import mlflow
import torch
from fashion_mnist import DEBIAN_FOLDER, THREAT, accuracy, fashion_cnn, write_stand_in

from audit import data
from audit.cli.demo_models import fit, log_version
from audit.errors import AuditError
from audit.vocabulary import Threat

NAME = "fashion-release"
SMALLER = Threat.parse("linf:1/255")
# Version, the version it goes on from, epochs and the budget trained against.
STEPS = ((1, 0, 7, THREAT), (2, 1, 1, THREAT), (3, 2, 1, THREAT), (4, 3, 1, SMALLER), (5, 3, 1, THREAT))

POLICY = """name = "no step back"

[requires]
threats = ["linf:8/255"]
min_samples = {samples}
min_profile = "quick"
data_digest = "any"
input_spec = "any"
max_age_days = 30

[[rule]]                                 # at most three points worse than the reference, shown with 95 % confidence
metric = "adversarial_accuracy_white_box/linf_8-255"
not_worse_than = "{reference}"
margin = 0.03

[[rule]]
metric = "clean_accuracy"
not_worse_than = "{reference}"
margin = 0.03
"""


def train(folder: Path, *, smoke: bool) -> dict[int, str]:
    """Train the versions on the data in `folder` and register them; returns their URIs by version."""
    training, test = data.load(f"{folder}#train"), data.load(str(folder))
    count = min(1000, len(training.labels)) if smoke else len(training.labels)
    images, labels = training.images(range(count)), training.labels[:count]
    torch.manual_seed(0)
    models = {0: fashion_cnn()}
    uris = {}
    for version, parent, epochs, threat in STEPS[:2] if smoke else STEPS:
        models[version] = fit(
            copy.deepcopy(models[parent]),
            images,
            labels,
            epochs=1 if smoke else epochs,
            adversarial_threat=threat,
            seed=version,
            batch_rows=128,
            attack_steps=3,
        )
        uris[version] = log_version(
            models[version],
            NAME,
            images[:8],
            description=f"Small CNN for Fashion-MNIST, step {version} of an adversarial training, last within {threat.label}.",
            tags={"training": str(threat)},
            run_name=f"{NAME}, step {version}",
        )
        print(
            f"{uris[version]}: clean accuracy {accuracy(models[version], test):.3f} on {len(test.labels)} test images", flush=True
        )
    return uris


def audit(*words: object) -> int:
    """Show a command, run it, and return its exit code."""
    command = ["audit", *map(str, words)]
    print(f"\n$ {shlex.join(command)}", flush=True)
    code = subprocess.run([sys.executable, "-m", *command], check=False).returncode
    print(f"(exit code {code})", flush=True)
    return code


def main(arguments: list[str] | None = None) -> int:
    """Train, register and audit the versions, then let the audits decide."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DEBIAN_FOLDER, help="folder of the idx files (default: %(default)s)")
    parser.add_argument("--tracking-uri", default="sqlite:///mlflow.db", help="MLflow store (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("release-gate"), help="folder of the results (default: %(default)s)")
    parser.add_argument("--smoke", action="store_true", help="two versions, few images; a synthetic stand-in if there are no data")
    options = parser.parse_args(arguments)

    options.out.mkdir(parents=True, exist_ok=True)
    folder: Path = options.data
    if options.smoke and not folder.exists():
        folder = options.out / "stand-in"
        write_stand_in(folder, 0)
    mlflow.set_tracking_uri(options.tracking_uri)
    try:
        uris = train(folder, smoke=options.smoke)
    except AuditError as error:
        print(f"{error} (apt install dataset-fashion-mnist, or name the folder with --data)", file=sys.stderr)
        return 2
    store = ("--tracking-uri", options.tracking_uri)
    samples = 40 if options.smoke else 500
    for version, uri in uris.items():
        common = ("--data", folder, *store, "--quiet", "--allow-chance")
        if audit("run", uri, *common, "--samples", samples, "--out", options.out / f"version-{version}"):
            return 1

    audit("history", f"models:/{NAME}", *store, "--html", options.out / "history.html")
    first, last = (uris[1], uris[2]) if options.smoke else (uris[3], uris[4])
    audit("compare", first, last, *store, "--html", options.out / "compare.html")
    policy = options.out / "policy.toml"
    policy.write_text(POLICY.format(samples=samples, reference=first), encoding="utf-8")
    codes = [audit("gate", uri, "--policy", policy, *store) for uri in list(uris.values())[-2:]]
    if options.smoke:
        return 0 if set(codes) <= {0, 1} else 1

    # The same version on a tenth of the images: no worse as far as anybody can see, which is not enough.
    small = options.out / "version-5-small"
    audit("run", uris[5], "--data", folder, "--samples", 50, "--out", small, "--quiet", "--no-mlflow", *store)
    policy.write_text(policy.read_text(encoding="utf-8").replace(f"min_samples = {samples}", "min_samples = 50"), encoding="utf-8")
    codes.append(audit("gate", small, "--policy", policy, *store))
    print(f"\nVersion 4: exit code {codes[0]}; version 5: {codes[1]}; version 5 on 50 images: {codes[2]}.")
    return 0 if codes == [1, 0, 1] else 1


if __name__ == "__main__":
    sys.exit(main())
