"""Fifty SIGKILLs at random moments over one quick audit, each resumed: the numbers must be those of the undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from audit.result import from_json, to_json

KILLS = 50


def timeless(folder: Path) -> bytes:
    """The result without its id, date, command and duration."""
    result = from_json((folder / "result.json").read_bytes())
    models = tuple(replace(model, seconds=0.0) for model in result.models)
    return to_json(replace(result, id="", created="", models=models, manifest=replace(result.manifest, command="")))


def command(digits_store, out: Path, *more: str) -> list[str]:
    given = [digits_store.standard, digits_store.adversarial, "--data", "digits:test", "--threat", "linf:0.15", "--samples", "500"]
    return [
        sys.executable,
        "-m",
        "audit",
        "run",
        *given,
        "--tracking-uri",
        digits_store.uri,
        "--no-mlflow",
        "--quiet",
        "--out",
        out,
        *more,
    ]


def test_fifty_kills(digits_store, tmp_path):
    """A kill falls at a random moment between the start and the length of the undisturbed run, so that few audits get far."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    subprocess.run(command(digits_store, tmp_path / "whole"), env=environment, check=True, capture_output=True)
    length = time.monotonic() - begun
    generator = random.Random(0)
    kills = finished = 0
    out = tmp_path / "killed"
    while kills < KILLS:
        # Loading takes several seconds of each attempt: without a floor most kills would fall before the first chunk.
        wait = generator.uniform(0.3, 1.0) * length
        process = subprocess.Popen(
            command(digits_store, out, "--resume"), env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            process.wait(timeout=wait)
            finished += 1
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        if finished and not (out / "journal" / "unfinished").exists():
            # It got through between two kills: start over with an empty journal, as a new audit would.
            assert timeless(out) == timeless(tmp_path / "whole")
            for entry in (out / "journal").glob("*.evidence"):
                if generator.random() < 0.5:
                    entry.unlink()
            finished = 0
    subprocess.run(command(digits_store, out, "--resume"), env=environment, check=True, capture_output=True)
    assert timeless(out) == timeless(tmp_path / "whole")
    assert pq.read_table(out / "examples.parquet").equals(pq.read_table(tmp_path / "whole" / "examples.parquet"))
    print(f"{kills} kills over an audit of {length:.0f} s: result.json and examples.parquet identical")
