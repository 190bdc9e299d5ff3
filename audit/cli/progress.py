"""Progress of long work: a bar with time left on a terminal, one plain line per stage elsewhere, JSON events for machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from audit.cli.output import say
from audit.text import printable

if TYPE_CHECKING:
    from audit.engine.local import Listener, Progress


@contextmanager
def listener(mode: str, stdout: TextIO) -> Iterator[Listener]:
    """A listener for `mode`: "json" (events on `stdout`), "quiet", or "text" (a bar on a terminal, else lines on stderr)."""
    if mode == "json":
        yield lambda progress: _json_event(progress, stdout)
    elif mode == "quiet":
        yield lambda _: None
    elif sys.stderr is not None and sys.stderr.isatty():
        with _bars() as listen:
            yield listen
    else:
        yield _lines()


def _json_event(progress: Progress, stdout: TextIO) -> None:
    event = {"event": "progress", "model": progress.model, "stage": progress.stage, "done": progress.done, "total": progress.total}
    say(json.dumps(event), file=stdout)


def _lines() -> Listener:
    started: dict[tuple[str, str], float] = {}

    def listen(progress: Progress) -> None:
        key = (progress.model, progress.stage)
        begun = started.setdefault(key, time.monotonic())
        if progress.done == progress.total:
            seconds = time.monotonic() - begun
            say(f"{printable(progress.model)}  {progress.stage}  {progress.total} examples  {seconds:.1f} s", err=True)

    return listen


@contextmanager
def _bars() -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[tuple[str, str], int] = {}

        def listen(progress: Progress) -> None:
            key = (progress.model, progress.stage)
            if key not in tasks:
                tasks[key] = bars.add_task(f"{printable(progress.model, 40)}  {progress.stage}", total=progress.total)
            bars.update(tasks[key], completed=progress.done)  # type: ignore[arg-type]

        yield listen
