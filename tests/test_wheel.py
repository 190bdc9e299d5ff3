"""The wheel is whole: built, installed into an environment of its own, it renders a report from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from audit.cli import cli

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_templates_and_fonts_are_inside(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "audit/templates/report.html.j2" in names
    assert any(name.endswith(".woff2") for name in names)
    assert any(name.endswith("OFL.txt") for name in names)
    assert not any(name.startswith("tests/") for name in names)


@pytest.mark.slow
def test_an_installed_wheel_renders_a_report(wheel, digits_store, tmp_path):
    arguments = [
        "run",
        str(digits_store.onnx_standard),
        "--data",
        "digits:test",
        "--samples",
        "40",
        "--no-mlflow",
        "--out",
        "first",
    ]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    shutil.copytree("first", tmp_path / "away" / "first")
    for name in ("report.html", "report.pdf"):
        (tmp_path / "away" / "first" / name).unlink(missing_ok=True)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(environment)], check=True)
    python = environment / "bin" / "python"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # The parent environment's packages serve; only the project itself is installed anew, from the wheel.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    (next(environment.glob("lib/python*/site-packages")) / "parent.pth").write_text(site + "\n")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel)], check=True
    )
    where = subprocess.run(
        [python, "-c", "import audit; print(audit.__file__)"],
        cwd=tmp_path / "away",
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(environment) in where.stdout
    subprocess.run(
        [environment / "bin" / "audit", "report", "first"], cwd=tmp_path / "away", env=variables, check=True, capture_output=True
    )
    assert (tmp_path / "away" / "first" / "report.html").stat().st_size > 10_000
