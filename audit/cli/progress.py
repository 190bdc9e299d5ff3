"""Progress of long work: a bar with time left on a terminal, one plain line per stage elsewhere, JSON events for machines."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from audit.cli.output import say
from audit.text import printable

if TYPE_CHECKING:
    from audit.engine.local import Listener, Progress


@contextmanager
def listener(mode: str, stdout: TextIO) -> Iterator[Listener]:
    """A listener for `mode`: "json" (events on `stdout`), "quiet", or "text" (a bar on a terminal, else lines on stderr).

    Raises:
        KeyboardInterrupt: out of the listener, when one was lost since it was last called.
    """
    with _interrupts() as raise_lost, _shown(mode, stdout) as show:

        def listen(progress: Progress) -> None:
            raise_lost()
            show(progress)

        yield listen


@contextmanager
def _interrupts() -> Iterator[Callable[[], None]]:
    """A function that raises an interrupt again: Python drops one that falls into a destructor or a callback of a library."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None  # a background job ignores interrupts, and a caller may have a handler of its own
        return
    heard = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True
        signal.default_int_handler(number, frame)

    def raise_lost() -> None:
        if heard:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, remember)
    try:
        yield raise_lost
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _shown(mode: str, stdout: TextIO) -> AbstractContextManager[Listener]:
    if mode == "json":
        return nullcontext(lambda progress: _json_event(progress, stdout))
    if mode == "quiet":
        return nullcontext(lambda _: None)
    return _bars() if sys.stderr is not None and sys.stderr.isatty() else nullcontext(_lines())


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
