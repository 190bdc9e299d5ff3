"""The reproducibility manifest: how to get the same numbers again."""

from __future__ import annotations

import platform
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version

import torch

from audit.profiles import Profile, Search
from audit.result import Manifest
from audit.settings import Settings
from audit.text import redact

DISTRIBUTIONS = ("torch", "torchvision", "onnxruntime", "onnxruntime-gpu", "mlflow", "numpy", "scipy", "weasyprint")


def distribution_version(name: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def manifest(command: str, settings: Settings, device: str, corrupted: str | None = None) -> Manifest:
    """The manifest of this process; `command` is redacted, `corrupted` is the digest of a folder of corrupted images."""
    profile: Profile = settings.profile
    versions = {name: found for name in DISTRIBUTIONS if (found := distribution_version(name)) is not None}
    return Manifest(
        command=redact(command),
        tool_version=distribution_version("mlflow-audit") or "not installed",
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        device=device,
        threads=torch.get_num_threads(),
        seed=settings.seed,
        settings={
            "threats": ", ".join(map(str, settings.threats)),
            "samples": str(settings.sample_size),
            "block rows": str(settings.block_rows)
            + (f" (halved: {settings.halved_from} did not fit)" if settings.halved_from else ""),
            "chunk rows": str(settings.chunk_rows),
            "eot": str(settings.eot),
            **({} if corrupted is None else {"corrupted images": f"sha256 {corrupted}"}),
            **{f"profile {field.name}": _written(getattr(profile, field.name)) for field in fields(profile)},
        },
        versions=versions,
    )


def _written(value: object) -> str:
    """A field of a profile in words: an arm is the list of its searches."""
    if isinstance(value, tuple) and value and isinstance(value[0], Search):
        return "; ".join(search.name for search in value)
    return str(value)
