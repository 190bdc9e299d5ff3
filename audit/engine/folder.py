"""The result folder: made sure of before the work, written whole after it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.engine.journal import JOURNAL_FOLDER, is_unfinished
from audit.engine.table import write_table
from audit.errors import InputError
from audit.evidence import EvidenceStore
from audit.result import FAILURES_FOLDER, RESULT_FILE, TABLE_FILE, AuditResult, write
from audit.text import printable

# Room that a result, its images and its report need; with less an audit would end in a full disk.
LEAST_FREE_BYTES = 50_000_000
REPORT_FILES = ("report.html", "report.pdf")
# What a writer that was killed leaves behind.
PARTIAL_FILES = tuple(f"{name}.partial" for name in (RESULT_FILE, *REPORT_FILES))
RESULT_NAMES = (RESULT_FILE, TABLE_FILE, FAILURES_FOLDER, *REPORT_FILES, *PARTIAL_FILES)
_EARLIER = "earlier"


@dataclass(frozen=True, kw_only=True)
class WrittenFolder:
    """Where the result lies, and why it is not where it was asked for (None when it is)."""

    path: Path
    misplaced: str | None


def prepare_folder(out: Path, *, resume: bool) -> Path:
    """Make `out` and make sure that it can take an audit; nothing in it is touched yet.

    Raises:
        InputError: it cannot be made or written, holds something else or an unfinished audit, or the disk is nearly full.
    """
    shown = printable(str(out))
    try:
        out.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in out.iterdir()}
        if names and RESULT_FILE not in names and not names <= {JOURNAL_FOLDER, *RESULT_NAMES}:
            raise InputError(f"the output folder {shown} holds other files; give an empty or new folder with --out")
        if not resume and is_unfinished(out):
            raise InputError(f"the output folder {shown} holds an unfinished audit; go on with --resume, or give another --out")
        with tempfile.TemporaryFile(dir=out):
            pass
        free = shutil.disk_usage(out).free
    except OSError as error:
        raise InputError(f"the output folder {shown} cannot be written: {error.strerror}; give another one with --out") from error
    if free < LEAST_FREE_BYTES:
        raise InputError(
            f"only {free / 1e6:.0f} MB are free for the output folder {shown}; "
            f"free {LEAST_FREE_BYTES / 1e6:.0f} MB or give another --out"
        )
    return out


def _reason(error: OSError) -> str:
    # Arrow words its own errors, and leaves the number of the system's.
    return os.strerror(error.errno) if error.errno else printable(str(error))


def set_aside(out: Path) -> None:
    """Move an earlier result out of a locked folder, so that it never mixes two audits, until the new one is written."""
    earlier = out / JOURNAL_FOLDER / _EARLIER
    if earlier.is_dir():  # the audit that set it aside was killed; what lies in `out` is that audit's
        _remove(out)
    else:
        earlier.mkdir()
        _move(out, earlier)


def put_back(out: Path) -> None:
    """Undo `set_aside` when the new audit came to no result."""
    _remove(out)
    _move(out / JOURNAL_FOLDER / _EARLIER, out)
    drop_earlier(out)


def drop_earlier(out: Path) -> None:
    """Remove what was set aside."""
    shutil.rmtree(out / JOURNAL_FOLDER / _EARLIER, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    for name in RESULT_NAMES:
        if (source / name).exists():
            (source / name).rename(target / name)


def _remove(out: Path) -> None:
    shutil.rmtree(out / FAILURES_FOLDER, ignore_errors=True)
    for name in RESULT_NAMES:
        if name != FAILURES_FOLDER:
            (out / name).unlink(missing_ok=True)


def write_folder(result: AuditResult, stores: Sequence[EvidenceStore], out: Path) -> WrittenFolder:
    """Write table and result to `out`; when the disk there takes no more, to a temporary folder, so that nothing measured is lost.

    Raises:
        InputError: neither takes it.
    """
    try:
        write_table(stores, out)
        write(result, out)
        return WrittenFolder(path=out, misplaced=None)
    except OSError as error:
        because = f"{printable(str(out))} takes no more ({_reason(error)})"
    try:
        other = Path(tempfile.mkdtemp(prefix="audit-"))
        write_table(stores, other)
        write(result, other)
        if (out / FAILURES_FOLDER).is_dir():
            shutil.copytree(out / FAILURES_FOLDER, other / FAILURES_FOLDER)
    except OSError as error:
        raise InputError(f"{because}, nor does the temporary folder ({_reason(error)}); free some space and audit again") from error
    return WrittenFolder(path=other, misplaced=because)
