from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from audit.cli import doctor


def versions(monkeypatch: pytest.MonkeyPatch, known: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in known:
            raise metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(doctor.metadata, "version", version)


def test_doctor_imports_nothing_heavy() -> None:
    code = "import sys, audit.cli.doctor; print([n for n in ('torch', 'numpy', 'mlflow', 'onnxruntime') if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert run.stdout.strip() == "[]"


def test_installed_package_has_its_own_version() -> None:
    check = doctor.check_package("mlflow")
    assert (check.status, check.found) == ("OK", importlib.import_module("mlflow").__version__)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, {})
    check = doctor.check_package("mlflow")
    assert (check.status, check.found, check.do) == ("FAIL", "not installed", "pip install mlflow")


def test_a_version_outside_the_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, {"mlflow": "2.9.0", doctor.DISTRIBUTION: "0.1.0"})
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["mlflow-skinny>=1", "mlflow<4,>=3.17; extra == 'x'"])
    check = doctor.check_package("mlflow")
    assert (check.status, check.do) == ("WARN", "pip install 'mlflow<4,>=3.17'")
    versions(monkeypatch, {"mlflow": "3.17.2", doctor.DISTRIBUTION: "0.1.0"})
    assert doctor.check_package("mlflow").status == "OK"


@pytest.mark.parametrize(
    ("name", "error", "status"),
    [
        ("weasyprint", OSError("cannot load library 'libpango-1.0-0'"), "WARN"),
        ("torch", OSError("libcudart.so.13: cannot open shared object file"), "FAIL"),
        ("torchvision", RuntimeError("operator torchvision::nms does not exist\nmore"), "FAIL"),
    ],
)
def test_a_package_that_does_not_load(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, status: str) -> None:
    def broken(_: str) -> Any:
        raise error

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    check = doctor.check_package(name)
    assert check.status == status and str(error).splitlines()[0] in check.found and "\n" not in check.found
    assert ("libpango-1.0-0" in check.do) == (name == "weasyprint")


@pytest.mark.parametrize(
    ("known", "status", "words"),
    [
        ({"onnxruntime": "1.31", "onnxruntime-gpu": "1.30"}, "FAIL", "onnxruntime 1.31, onnxruntime-gpu 1.30 are both installed"),
        ({"onnxruntime": "1.31"}, "OK", "onnxruntime 1.31"),
        ({"onnxruntime-gpu": "1.30"}, "OK", "onnxruntime-gpu 1.30"),
        ({}, "FAIL", "not installed"),
    ],
)
def test_the_two_packages_of_onnx_runtime(monkeypatch: pytest.MonkeyPatch, known: dict[str, str], status: str, words: str) -> None:
    versions(monkeypatch, known)
    check = doctor.check_onnxruntime_packages()
    assert check.status == status and words in check.found


def test_providers_are_those_of_a_session() -> None:
    import torch

    check = doctor.check_onnxruntime_providers()
    assert "CPUExecutionProvider" in check.found
    assert ("CUDAExecutionProvider" in check.found) <= torch.cuda.is_available()


@pytest.mark.parametrize(
    ("listed", "got", "on_cuda", "status", "words"),
    [
        (["CUDAExecutionProvider"], ["CPUExecutionProvider"], True, "WARN", "its CUDA libraries do not load"),
        (["CPUExecutionProvider"], ["CPUExecutionProvider"], True, "WARN", "the installed package has no CUDA"),
        (["CUDAExecutionProvider"], ["CPUExecutionProvider"], False, "OK", ""),
        (["CUDAExecutionProvider"], ["CUDAExecutionProvider", "CPUExecutionProvider"], True, "OK", ""),
    ],
)
def test_a_gpu_that_onnx_runtime_does_not_use(
    monkeypatch: pytest.MonkeyPatch, listed: list[str], got: list[str], on_cuda: bool, status: str, words: str
) -> None:
    monkeypatch.setattr(doctor, "_run_identity", lambda: (listed, got, on_cuda))
    check = doctor.check_onnxruntime_providers()
    assert check.status == status and words in check.do


def test_fonts_agree_with_fontconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("fc-list"):
        listing = subprocess.run(["fc-list", ":lang=ko"], capture_output=True, text=True, check=True).stdout
        missing = doctor.check_fonts().found if doctor.check_fonts().status == "WARN" else ""
        assert ("Korean" in missing) == (not listing)
    monkeypatch.setattr(doctor, "_font_for", lambda language: language != "ja")
    assert doctor.check_fonts().found.startswith("no Japanese font: Japanese names print as empty boxes")
    monkeypatch.setattr(doctor, "_font_for", lambda language: True)
    assert doctor.check_fonts().status == "OK"


def test_store(tmp_path: Path) -> None:
    fine = doctor.check_mlflow_store(f"sqlite:///{tmp_path}/m.db")
    assert fine.status == "OK" and list(tmp_path.iterdir()) == []
    gone = doctor.check_mlflow_store("http://ann:hunter2@127.0.0.1:9")
    assert gone.status == "FAIL" and "cannot be reached" in gone.found and "audit push" in gone.do and "hunter2" not in repr(gone)


def test_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_folder(tmp_path / "none").status == "FAIL"
    usage = shutil.disk_usage(tmp_path)
    for free, status in ((5e7, "FAIL"), (5e8, "WARN"), (5e9, "OK")):
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _, free=free: usage._replace(free=int(free)))
        assert doctor.check_folder(tmp_path).status == status
    assert list(tmp_path.iterdir()) == []


def test_command_prints_a_line_per_check_and_fails_only_on_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [doctor.Check(name="a", status="OK", found="1"), doctor.Check(name="b", status="WARN", found="2", do="mend it")]
    monkeypatch.setattr(doctor, "checks", lambda _: iter(lines))
    warned = CliRunner().invoke(doctor.command, [])
    assert (warned.exit_code, warned.output) == (0, "OK    a: 1\nWARN  b: 2 -> mend it\n")
    lines.append(doctor.Check(name="c", status="FAIL", found="3"))
    failed = CliRunner().invoke(doctor.command, ["--json"])
    assert failed.exit_code == 1
    assert [(row["name"], row["status"]) for row in json.loads(failed.output)] == [("a", "OK"), ("b", "WARN"), ("c", "FAIL")]


def test_attacks_are_tried_on_a_linear_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_attacks().status == "OK" and "times the optimum on a linear model" in doctor.check_attacks().found
    monkeypatch.setattr("audit.attacks.self_test.self_test", lambda labels_only: {"FGSM, L2": 1.0, "PGD-10 margin, L2": 1.4})
    weak = doctor.check_attacks()
    assert weak.status == "FAIL" and "1.40 times the optimum" in weak.found and "PGD-10 margin, L2" in weak.found and weak.do


def test_the_whole_walk_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [check.name for check in doctor.checks(f"sqlite:///{tmp_path}/m.db")]
    assert len(names) == len(set(names)) == 13
