"""Exported programs (pt2) that were saved on a GPU, rewritten so that a machine without one can load them.

torch.export.load has no `map_location`: the device is written down with every tensor and in the graph's own calls.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import cast


def saved_on_gpu(path: Path) -> bool:
    """Whether weights, constants or calls of the archive name a device other than the CPU."""
    with zipfile.ZipFile(path) as archive:
        return any(_moved(json.loads(archive.read(name)))[1] for name in archive.namelist() if name.endswith(".json"))


def to_cpu(path: Path) -> None:
    """Rewrite the archive in place: every device it names is the CPU. Weights stay byte for byte what they are.

    Sample inputs are loaded as tensors only, never as other objects.
    """
    import torch

    target = path.with_suffix(".cpu.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith(".json"):
                content = json.dumps(_moved(json.loads(content))[0]).encode()
            elif "/sample_inputs/" in info.filename:
                buffer = io.BytesIO()
                torch.save(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True), buffer)
                content = buffer.getvalue()
            new.writestr(info.filename, content)
    target.replace(path)


def _moved(value: object) -> tuple[object, bool]:
    """The same JSON with the CPU for every other device, and whether there was one."""
    if isinstance(value, list):
        parts = [_moved(item) for item in cast("list[object]", value)]
        return [part for part, _ in parts], any(changed for _, changed in parts)
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        if set(entries) == {"type", "index"} and entries["type"] in ("cuda", "mps", "xpu"):
            return {"type": "cpu", "index": None}, True
        moved = {key: _moved(item) for key, item in entries.items()}
        return {key: part for key, (part, _) in moved.items()}, any(changed for _, changed in moved.values())
    return value, False
