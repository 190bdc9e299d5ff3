"""What other libraries' attacks found, measured once in their own environments; and a check that the measuring itself is right.

AUDIT_PEERS names a folder with one virtual environment per library, called like the library (README.md tells how to make them).
Without it, or without the library, whatever needs a measurement is skipped and says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from attack_models import MODELS, cache, load_model, load_sample

sys.path.append(str(Path(__file__).parent / "peers"))
from peer_attacks import ATTACKS, DEFAULT_STEPS, ORDERS

SCRIPT = Path(__file__).parent / "peers" / "run_peer.py"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The two files that `peers/run_peer.py` wrote; its docstring names their fields."""

    facts: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def measured(**wanted: object) -> list[Measured]:
    """All kept measurements whose facts have these values, such as `peer="pyautoattack", norm="l2"`."""
    found = []
    for path in sorted((cache() / "peers").glob("*.json")):
        facts = json.loads(path.read_text())
        if all(facts[key] == value for key, value in wanted.items()):
            with np.load(path.with_suffix(".npz")) as arrays:
                found.append(Measured(facts=facts, arrays=dict(arrays)))
    return found


def available(peer: str) -> bool:
    """Whether AUDIT_PEERS holds an environment of the library."""
    return "AUDIT_PEERS" in os.environ and _python(peer).exists()


def _python(peer: str) -> Path:
    return Path(os.environ.get("AUDIT_PEERS", "")) / peer / "bin" / "python"


def measure(peer: str, attack: str, model: str, norm: str, *, anew: bool = False, **options: float) -> Measured:
    """One measurement, kept or made now; options are `epsilon`, `steps`, `samples`, `seed`. `anew` is for times.

    The test is skipped where the peer's environment or the trained model is missing.
    """
    default = {"epsilon": MODELS[model].threats[norm], "steps": DEFAULT_STEPS.get(attack, 100), "samples": 500, "seed": 0}
    wanted = default | options
    if not anew and (kept := measured(peer=peer, attack=attack, model=model, norm=norm, **wanted)):
        return kept[-1]
    if not available(peer):
        pytest.skip(f"no environment of {peer}: set AUDIT_PEERS to a folder that has one (tests/benchmarks/README.md)")
    if not (cache() / "models" / f"{model}.pt").exists():
        pytest.skip(f"{model} is not trained: run tests/benchmarks/attack_training.py (tests/benchmarks/README.md)")
    command = [str(_python(peer)), str(SCRIPT), peer, attack, model, norm]
    for name, value in wanted.items():
        command += [f"--{name}", repr(value)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return measured(peer=peer, attack=attack, model=model, norm=norm, **wanted)[-1]


@pytest.mark.parametrize(("peer", "attack"), sorted(ATTACKS))
def test_a_measurement_agrees_with_a_pass_of_its_own(peer: str, attack: str) -> None:
    """On 20 images and few steps, so this says that the harness works, not how good a library is."""
    norm = ATTACKS[peer, attack][1][-1]
    found = measure(peer, attack, "digits-cnn", norm, samples=20, steps=10)
    sample, facts, arrays = load_sample("digits"), found.facts, found.arrays
    with torch.no_grad():
        predicted = load_model("digits-cnn")(torch.from_numpy(arrays["adversarial"])).argmax(dim=1).numpy()
    assert np.array_equal(arrays["labels"], sample.labels[:20])
    assert np.array_equal(predicted != sample.labels[:20], np.isfinite(arrays["distance"]) | ~arrays["clean_correct"])
    moved = (arrays["adversarial"] - sample.images[:20]).reshape(20, -1)
    size = np.linalg.norm(moved, ord=ORDERS[norm], axis=1)
    assert (size[arrays["broken"]] <= facts["epsilon"] * (1 + 1e-4)).all()
    assert facts["robust"] == (arrays["clean_correct"] & ~arrays["broken"]).sum()
    assert facts["forward"] > 0
