"""Which model files would run code when they are loaded, and what the files are, by digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from audit.errors import InputError, ModelError, UntrustedError
from audit.text import printable

# Names that Python loads by executing instructions stored in the file.
PICKLE_SUFFIXES = (".pkl", ".pickle", ".pth", ".pt", ".joblib", ".dill", ".cloudpickle", ".ckpt")


def is_pickle(name: str) -> bool:
    """Whether a file of this name is read by unpickling."""
    return name.lower().endswith(PICKLE_SUFFIXES)


def digest(path: Path) -> str:
    """sha256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file below `folder`, by path relative to it with forward slashes, sorted.

    Raises:
        ModelError: a file or folder is a link that leaves the folder.
    """
    root = folder.resolve()
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (path.is_symlink() or path.is_file()) and not path.resolve().is_relative_to(root):
            raise ModelError(
                f"model file {printable(name)} is a link to a place outside the model's folder; log the model with real files"
            )
        if path.is_file():
            found[name] = digest(path)
    return found


def overall_digest(files: Mapping[str, str]) -> str:
    """sha256 over the sorted (path, sha256) pairs, each written as `path`, NUL, `sha256`, newline."""
    text = "".join(f"{name}\0{files[name]}\n" for name in sorted(files))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def inside(folder: Path, name: str, what: str) -> Path:
    """Return the file or folder `name` below `folder`.

    Raises:
        ModelError: it leads out of the folder, or is not there.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ModelError(f"{what} {printable(name)!r} lies outside the model's folder; log the model again")
    if not path.exists():
        raise ModelError(f"{what} {printable(name)!r} is named by the model, but is missing; log the model again")
    return path


def require_trust(who: str, runs: Iterable[str], *, trust: bool) -> bool:
    """Refuse a model that would run code, unless the user trusts it.

    Args:
        who: the model, for the message.
        runs: what would be executed, in words; empty for a model that is only data.
        trust: whether the user said so.

    Returns:
        Whether code may run now.

    Raises:
        UntrustedError: something would run and `trust` is false.
    """
    reasons = tuple(runs)
    if reasons and not trust:
        raise UntrustedError(
            f"{who}: loading it would run code that came with the model: {'; '.join(reasons)}; "
            "if you trust its author, pass --trust, otherwise log it as ONNX or with serialization_format='pt2'"
        )
    return bool(reasons)


def expected_digest(text: str) -> str:
    """A sha256 as the user wrote it, `sha256:` in front of it or not, in lower case.

    Raises:
        InputError: it is no sha256 in hexadecimal.

    >>> expected_digest("sha256:" + "AB" * 32)[:4]
    'abab'
    """
    digits = text.strip().lower().removeprefix("sha256:")
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise InputError(f"--expect-sha256 {printable(text, 80)!r} is no sha256; it has 64 hexadecimal digits")
    return digits


def require_digest(who: str, files: Mapping[str, str], expected: str | None) -> None:
    """Refuse files that are not the expected ones.

    Args:
        who: the model, for the message.
        files: sha256 by path.
        expected: the sha256 over all of them (`overall_digest`) or, of a model in one file, that file's own; None takes any.

    Raises:
        InputError: `expected` is no sha256, or another one.
    """
    if expected is None:
        return
    overall = overall_digest(files)
    alone = next(iter(files.values())) if len(files) == 1 else None
    if expected_digest(expected) not in (overall, alone):
        found = f"the file's is {alone}" if alone else f"its {len(files)} files have {overall}"
        raise InputError(f"{who}: does not have the expected sha256 {expected_digest(expected)}; {found}; nothing was loaded")
