"""`audit doctor`: what of this machine an audit can use, and what to do about the rest."""

from __future__ import annotations

import importlib
import json
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import click

from audit.cli.options import tracking_uri_of
from audit.errors import AuditError
from audit.text import printable, redact

DISTRIBUTION = "mlflow-audit"
PACKAGES = ("torch", "torchvision", "mlflow", "weasyprint")
LEAST_BYTES, COMFORTABLE_BYTES = 100e6, 1e9
_CJK = (("zh", "Chinese"), ("ja", "Japanese"), ("ko", "Korean"))


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the answer; `do` is empty where nothing needs doing. WARN: an audit runs, with less. FAIL: it will not."""

    name: str
    status: Literal["OK", "WARN", "FAIL"]
    found: str
    do: str = ""


def check_python() -> Check:
    """The interpreter."""
    return Check(name="Python", status="OK", found=f"{platform.python_version()}, {platform.system()} {platform.machine()}")


def check_package(name: str) -> Check:
    """Whether a package is there, imports, and has a version that this project allows."""
    try:
        version = metadata.version(name)
        importlib.import_module(name)
    except metadata.PackageNotFoundError:
        return Check(name=name, status="FAIL", found="not installed", do=f"pip install {_requirement(name)}")
    except OSError as error:
        if name == "weasyprint":
            from audit.sinks.pdf import INSTALL

            do = f"{INSTALL}; until then audits make the HTML report only"
            return Check(name=name, status="WARN", found=f"{version}, but it does not load ({_first_line(error)})", do=do)
        return _broken(name, version, error)
    except Exception as error:  # a broken binary package raises whatever it likes when imported
        return _broken(name, version, error)
    if not _allowed(name, version):
        return Check(
            name=name, status="WARN", found=f"{version}, outside {_requirement(name)}", do=f"pip install '{_requirement(name)}'"
        )
    return Check(name=name, status="OK", found=version)


def check_devices() -> Check:
    """Where torch models can run."""
    try:
        import torch
    except Exception as error:  # as above
        return _broken("devices", "torch", error)
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        return Check(name="devices", status="OK", found=f"cpu ({torch.get_num_threads()} threads), cuda ({names})")
    found = f"cpu ({torch.get_num_threads()} threads); no CUDA device, so --device cuda will be refused"
    if Path("/proc/driver/nvidia/version").exists():
        do = f"an NVIDIA driver is here, but torch (built for CUDA {torch.version.cuda}) cannot use it: update the one or the other"
        return Check(name="devices", status="WARN", found=found, do=do)
    return Check(name="devices", status="OK", found=found)


def check_attacks() -> Check:
    """Whether the attacks find what they should on a linear model."""
    name = "attacks"
    try:
        from audit.attacks.self_test import self_test
        from audit.metrics.honesty import MOST_OF_OPTIMUM

        needed = self_test(labels_only=True)
    except Exception as error:  # as above
        return _broken(name, "torch", error)
    worst = max(needed, key=needed.__getitem__)
    found = f"{len(needed)} attacks need at most {needed[worst]:.2f} times the optimum on a linear model ({worst})"
    if needed[worst] > MOST_OF_OPTIMUM:
        return Check(
            name=name, status="FAIL", found=found, do=f"at most {MOST_OF_OPTIMUM:g} is right: reinstall torch and {DISTRIBUTION}"
        )
    return Check(name=name, status="OK", found=found)


def check_onnxruntime_packages() -> Check:
    """The two packages of ONNX Runtime share one folder, so only one of them may be installed."""
    versions = {name: metadata.version(name) for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)}
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    if len(versions) == 2:
        return Check(
            name="onnxruntime",
            status="FAIL",
            found=f"{found} are both installed and overwrite each other's files",
            do="pip uninstall -y onnxruntime onnxruntime-gpu, then install the one you want again",
        )
    if not versions:
        return Check(name="onnxruntime", status="FAIL", found="not installed", do="pip install onnxruntime-gpu (or onnxruntime)")
    return Check(name="onnxruntime", status="OK", found=found)


def check_onnxruntime_providers() -> Check:
    """What a session really got: the list of available providers promises CUDA on machines that have none."""
    name = "ONNX providers"
    try:
        listed, got, on_cuda = _run_identity()
    except Exception as error:  # as above
        return _broken(name, "ONNX Runtime", error)
    if on_cuda and "CUDAExecutionProvider" not in got:
        why = "the installed package has no CUDA" if "CUDAExecutionProvider" not in listed else "its CUDA libraries do not load"
        do = f"{why}: install onnxruntime-gpu for the CUDA version of torch; until then ONNX files are audited with --device cpu"
        return Check(name=name, status="WARN", found=", ".join(got), do=do)
    return Check(name=name, status="OK", found=", ".join(got))


def check_fonts() -> Check:
    """Fonts that the PDF takes from the system."""
    name = "fonts"
    missing = [language for code, language in _CJK if not _font_for(code)]
    if not missing:
        return Check(name=name, status="OK", found="Latin, Chinese, Japanese and Korean")
    languages = "/".join(missing)
    found = f"no {languages} font: {languages} names print as empty boxes in the PDF and in plots"
    return Check(name=name, status="WARN", found=found, do="install fonts-noto-cjk (Debian, Ubuntu) or Noto Sans CJK")


def check_mlflow_store(tracking_uri: str | None) -> Check:
    """Whether MLflow answers; makes no store."""
    try:
        from audit.sinks.mlflow_run import check_store

        return Check(name="MLflow store", status="OK", found=check_store(tracking_uri))
    except AuditError as error:
        do = "audits still run and stay on disk; `audit push DIR` logs them later"
        return Check(name="MLflow store", status="FAIL", found=str(error), do=do)
    except Exception as error:  # a broken MLflow raises whatever it likes
        return _broken("MLflow store", "mlflow", error)


def check_templates() -> Check:
    """The report's templates."""
    try:
        from audit.sinks.page import template_folder

        return Check(name="templates", status="OK", found=printable(str(template_folder())))
    except Exception as error:  # a missing dependency of the report is as bad as a missing template
        return Check(name="templates", status="FAIL", found=_first_line(error), do=f"pip install --force-reinstall {DISTRIBUTION}")


def check_folder(folder: Path) -> Check:
    """Whether results can be written here."""
    name, shown = "folder", printable(str(folder))
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"audit")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        found = f"{shown} cannot be written to ({error.strerror})"
        return Check(name=name, status="FAIL", found=found, do="change to another folder or use --out")
    found = f"{shown} can be written to, {free / 1e9:.1f} GB free"
    if free < COMFORTABLE_BYTES:
        status: Literal["WARN", "FAIL"] = "FAIL" if free < LEAST_BYTES else "WARN"
        return Check(name=name, status=status, found=found, do="free some space or use --out on another disk")
    return Check(name=name, status="OK", found=found)


def checks(tracking_uri: str | None) -> Iterator[Check]:
    """All checks, one after the other; torch comes before ONNX Runtime, whose CUDA build needs torch's libraries."""
    packages: list[Callable[[], Check]] = [lambda name=name: check_package(name) for name in PACKAGES]  # type: ignore[misc]
    several = (check_devices, check_attacks, check_onnxruntime_packages, check_onnxruntime_providers, check_fonts)
    for check in (check_python, *packages, *several):
        yield check()
    yield check_mlflow_store(tracking_uri_of(tracking_uri))
    yield check_templates()
    yield check_folder(Path.cwd())


def _run_identity() -> tuple[list[str], list[str], bool]:
    """Providers listed, providers of a session that computed something, and whether torch has a CUDA device."""
    import numpy as np
    import onnx
    import onnxruntime
    import torch

    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "identity", value[:1], value[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    onnxruntime.set_default_logger_severity(4)  # a missing CUDA library is this check's answer, not a message in between
    listed = list(onnxruntime.get_available_providers())
    wanted = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in listed]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=wanted)
    (answer,) = session.run(None, {"x": np.array([7], np.float32)})
    if answer[0] != 7:
        raise RuntimeError(f"an identity graph turned 7 into {answer[0]}")
    return listed, list(session.get_providers()), bool(torch.cuda.is_available())


def _font_for(language: str) -> bool:
    if shutil.which("fc-list"):
        listing = subprocess.run(["fc-list", f":lang={language}", "family"], capture_output=True, text=True, check=False)
        return bool(listing.stdout.strip())
    from matplotlib import font_manager

    known = ("CJK", "Hiragino", "PingFang", "Arial Unicode", "Microsoft YaHei", "Yu Gothic", "Malgun")
    return any(word in font.name for font in font_manager.fontManager.ttflist for word in known)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _requirement(name: str) -> str:
    """What this project asks of a package, e.g. `torch>=2.10`; the bare name when the project itself is not installed."""
    from packaging.requirements import Requirement

    texts = (metadata.requires(DISTRIBUTION) or []) if _installed(DISTRIBUTION) else []
    return next((f"{name}{found.specifier}" for text in texts if (found := Requirement(text)).name == name), name)


def _allowed(name: str, version: str) -> bool:
    from packaging.requirements import Requirement

    return Requirement(_requirement(name)).specifier.contains(version, prereleases=True)


def _broken(name: str, what: str, error: Exception) -> Check:
    found = f"{what}, but it does not work ({_first_line(error)})"
    return Check(name=name, status="FAIL", found=found, do="reinstall it in a fresh virtual environment")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(redact(lines[0]), 160)


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.option("--tracking-uri", help="The MLflow store to check; MLflow's own setting when left out.")
def command(as_json: bool, tracking_uri: str | None) -> None:
    """Check what of this machine an audit can use. Exit code 1 if something fails."""
    done: list[Check] = []
    for check in checks(tracking_uri):
        done.append(check)
        if not as_json:
            click.echo(f"{check.status:4}  {check.name}: {check.found}" + (f" -> {check.do}" if check.do else ""))
    if as_json:
        click.echo(json.dumps([asdict(check) for check in done], indent=2, ensure_ascii=False))
    if any(check.status == "FAIL" for check in done):
        click.get_current_context().exit(1)
