"""The result folder: made sure of before the work, written whole after it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.engine.table import write_table
from audit.errors import InputError
from audit.evidence import EvidenceStore
from audit.result import FAILURES_FOLDER, RESULT_FILE, TABLE_FILE, AuditResult, write
from audit.text import printable

# Room that a result, its images and its report need; with less an audit would end in a full disk.
LEAST_FREE_BYTES = 50_000_000
REPORT_FILES = ("report.html", "report.pdf")


@dataclass(frozen=True, kw_only=True)
class WrittenFolder:
    """Where the result lies, and why it is not where it was asked for (None when it is)."""

    path: Path
    misplaced: str | None


def prepare_folder(out: Path) -> Path:
    """Make `out` and remove an earlier audit's files from it, so that a folder never mixes two audits.

    Raises:
        InputError: it cannot be made or written, holds other files than an audit's, or the disk is nearly full.
    """
    shown = printable(str(out))
    try:
        out.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in out.iterdir()}
        if names and RESULT_FILE not in names and not names <= {FAILURES_FOLDER, TABLE_FILE, *REPORT_FILES}:
            raise InputError(f"the output folder {shown} holds other files; give an empty or new folder with --out")
        with tempfile.TemporaryFile(dir=out):
            pass
        free = shutil.disk_usage(out).free
        if free < LEAST_FREE_BYTES:
            raise InputError(
                f"only {free / 1e6:.0f} MB are free for the output folder {shown}; "
                f"free {LEAST_FREE_BYTES / 1e6:.0f} MB or give another --out"
            )
        for name in (RESULT_FILE, TABLE_FILE, *REPORT_FILES):
            (out / name).unlink(missing_ok=True)
        shutil.rmtree(out / FAILURES_FOLDER, ignore_errors=True)
    except OSError as error:
        raise InputError(f"the output folder {shown} cannot be written: {error.strerror}; give another one with --out") from error
    return out


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
        because = f"{printable(str(out))} takes no more ({error.strerror})"
    try:
        other = Path(tempfile.mkdtemp(prefix="audit-"))
        write_table(stores, other)
        write(result, other)
        if (out / FAILURES_FOLDER).is_dir():
            shutil.copytree(out / FAILURES_FOLDER, other / FAILURES_FOLDER)
    except OSError as error:
        raise InputError(f"{because}, nor does the temporary folder ({error.strerror}); free some space and audit again") from error
    return WrittenFolder(path=other, misplaced=because)
