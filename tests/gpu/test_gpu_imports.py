"""What the GPU tests import, checked on any machine: in a process where the project's other dependencies cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ABSENT = (
    "mlflow",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "yaml",
    "weasyprint",
    "jinja2",
    "matplotlib",
    "foolbox",
    "skimage",
    "pydantic",
)


def test_the_gpu_tests_need_neither_mlflow_nor_onnx() -> None:
    """The same tests, with the CPU in the place of the GPU: every import that they make happens."""
    program = textwrap.dedent(f"""
        import sys

        # Importing a name that stands for None fails as a missing package does.
        sys.modules.update(dict.fromkeys({ABSENT!r}))
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]
        import test_gpu_audit as tests

        found = tests.gathered("cpu")
        tests.test_the_setting_is_one_in_which_something_could_differ()
        tests.gathered = lambda device: found
        tests.test_predictions()
        tests.test_fisher_information()
        for arm in ("white_box", "black_box"):
            tests.test_the_worst_case_of_each_arm(arm)
        print("complete")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.strip() == "complete", done.stderr[-2000:]


def test_without_a_gpu_they_are_skipped_loudly() -> None:
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", str(folder / "test_gpu_audit.py")]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder.parents[1], env=hidden, check=False)
    assert "NOT RUN: no CUDA device" in done.stdout, done.stdout + done.stderr
    assert " passed" not in done.stdout
