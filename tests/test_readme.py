"""Every command and snippet in the README is executed, in order, in one folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from audit.cli import VERBS
from audit.cli.metrics import command
from audit.policy import parse_policy

ROOT = Path(__file__).resolve().parent.parent
# One block: what the commands do is shown as well by few images.
SAMPLES = "32"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.slow
def test_the_commands_run(digits_store, tmp_path):
    """`make` and `pip` lines are what brought this test here; the demo itself is `audit demo`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    demo = subprocess.run(["audit", "demo", "--samples", SAMPLES], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert demo.returncode == 0, demo.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".demo"]
    ran = 0
    for words in commands():
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
        elif words[0] == "audit":
            # The first run comes before the export in the text; a reader of that section has a store of their own.
            environment.setdefault("MLFLOW_TRACKING_URI", "sqlite:///.demo/mlflow.db")
            if words[1] == "run":
                # Given twice, the last one counts.
                words = [*words, "--samples", SAMPLES]
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
            ran += 1
        else:
            assert words[0] in {"make", "pip"}, words
    assert ran >= 6
    # Twice in a row: the models are found again, the report is made again.
    again = subprocess.run(["audit", "demo", "--samples", SAMPLES], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for words in commands():
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE), words


def test_the_verbs_are_the_verbs():
    assert re.findall(r"^\| `audit (\w+)", README, flags=re.MULTILINE) == list(VERBS)


def test_the_metrics_are_the_catalogue():
    """`audit metrics --markdown` makes the tables: run it and paste its output between the marks."""
    done = CliRunner().invoke(command, ["--markdown"])
    found = re.search(r"<!-- audit metrics --markdown: begin -->\n(.*)<!-- audit metrics --markdown: end -->", README, re.DOTALL)
    assert found is not None and found[1] == done.stdout and done.exit_code == 0


def test_the_policy_is_one():
    (text,) = blocks("toml")
    assert tomllib.loads(text)
    assert parse_policy(text, "README").policy.name == "release-gate"


def test_the_python_snippet_runs(digits_store, tmp_path):
    shutil.copy(digits_store.onnx_standard, tmp_path / "model.onnx")
    (code,) = blocks("python")
    code = code.replace('Settings.of("quick")', 'replace(Settings.of("quick"), samples=40)')
    exec(compile("from dataclasses import replace\n" + code, "README", "exec"), {})


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
