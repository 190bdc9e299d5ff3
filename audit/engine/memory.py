"""Memory stays bounded by the chunk: what a chunk freed goes back to the system before the next one."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except AttributeError:  # another C library than glibc
        return None


def give_back() -> None:
    """Return freed heap pages to the system.

    glibc keeps them, and they fragment: the peak of an audit of 20,000 images was 1110 MB without this and 841 MB with it, against
    827 MB for 2,000 images. Other C libraries return pages by themselves.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
