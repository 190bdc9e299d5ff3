"""Lines for the user. A reader that has gone, or a full disk behind a redirection, never costs the audit."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import click

from audit.text import printable


def say(text: str, *, err: bool = False, file: TextIO | None = None) -> None:
    """Write a line to stdout, to stderr, or to `file`; what cannot be written is dropped."""
    try:
        click.echo(text, err=err, file=file)
    except OSError:
        return


@contextmanager
def json_only(stdout_is_json: bool) -> Iterator[TextIO]:
    """Give stdout for JSON alone: what a model's own code, a library or a process they start prints meanwhile goes to stderr."""
    stdout = sys.stdout
    if not stdout_is_json:
        yield stdout
        return
    with redirect_stdout(sys.stderr), _apart(stdout) as own:
        yield own


@contextmanager
def _apart(stdout: TextIO) -> Iterator[TextIO]:
    """The stream on a descriptor of its own, while its old one leads to stderr; itself where it has none, as in a notebook."""
    try:
        descriptor, errors = stdout.fileno(), sys.stderr.fileno()
        stdout.flush()
        kept = os.dup(descriptor)
    except (OSError, ValueError, AttributeError):
        yield stdout
        return
    own = os.fdopen(os.dup(kept), "w", buffering=1, encoding=stdout.encoding, errors=stdout.errors)
    try:
        os.dup2(errors, descriptor)
        yield own
    finally:
        with suppress(OSError):  # the reader may have gone
            own.close()
        with suppress(OSError, TypeError):  # what C code printed still waits in its own buffer
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, descriptor)
        os.close(kept)


def prepare_streams() -> None:
    """Make the terminal safe to write to: a letter that its encoding lacks is written as its code, a log record as one line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    handler = _OneLine()
    logger = logging.getLogger("audit")
    logger.addHandler(handler)
    logger.propagate = False


def close_streams() -> None:
    """Flush what is left; where that fails, keep the interpreter from failing on it again with an exit code of its own."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


class _OneLine(logging.Handler):
    """Log records for users: the message, and no stack trace."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            say(f"{record.levelname.capitalize()}: {printable(record.getMessage(), 1000)}", err=True)


def duration(seconds: float) -> str:
    """A time to wait, in the two units that matter.

    >>> duration(0.4), duration(42.4), duration(203), duration(3900)
    ('1 s', '42 s', '3 min 23 s', '1 h 5 min')
    """
    whole = max(1, round(seconds))
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
