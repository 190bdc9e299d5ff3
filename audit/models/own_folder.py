"""Code from outside may change the current folder; relative paths of data, results and stores must go on meaning the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_folder() -> Iterator[None]:
    """Return to the current folder afterwards."""
    before = Path.cwd()
    try:
        yield
    finally:
        os.chdir(before)
