"""Lines for the user. A reader that has gone, or a full disk behind a redirection, never costs the audit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click


def say(text: str, *, err: bool = False) -> None:
    """Write a line to stdout, or to stderr; once that fails, what would follow is dropped."""
    try:
        click.echo(text, err=err)
    except OSError:
        # What is left in the buffer would fail again when the interpreter ends, with an exit code of its own.
        silent = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        if err:
            sys.stderr = silent
        else:
            sys.stdout = silent
