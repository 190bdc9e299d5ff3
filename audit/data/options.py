"""How a data set is to be read: what the user asked for beside the reference itself."""

from __future__ import annotations

from dataclasses import dataclass

from audit.data.resize import Resize


@dataclass(frozen=True, kw_only=True)
class Options:
    """`class_names` by class index; `resize` only when asked; unreadable images are an error unless `skip_unreadable`."""

    class_names: tuple[str, ...] | None = None
    resize: Resize | None = None
    skip_unreadable: bool = False
