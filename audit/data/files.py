"""Files of a data set: their digests, and what is wrong with them in one sentence."""

from __future__ import annotations

import difflib
import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path

from audit.errors import DataError
from audit.text import printable, redact

BLOCK_BYTES = 1 << 20
# A packed file may claim anything; beyond this the images belong on disk, where they are read chunk by chunk.
MAX_UNPACKED_BYTES = 2 << 30
# zlib cannot pack better than 1032 to 1, so a larger claim is false and nothing is allocated for it.
MAX_DEFLATE_RATIO = 1032


def shown(path: Path | str) -> str:
    """A path as a message may show it: quoted, on one line, without secrets, control or direction characters."""
    return f"'{printable(redact(str(path)))}'"


def refused(path: Path, error: OSError) -> DataError:
    """The sentence for a path the operating system does not give us."""
    if isinstance(error, FileNotFoundError):
        return missing(path)
    if isinstance(error, PermissionError):
        return DataError(f"no permission to read {shown(path)}; give this user read access, or run as one who has it")
    return DataError(f"cannot read {shown(path)}: {(error.strerror or type(error).__name__).lower()}")


def check_regular(path: Path) -> None:
    """Refuse pipes and devices before they are opened, as reading them may wait for ever.

    Raises:
        DataError: it is no regular file, or cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise refused(path, error) from None
    if not stat.S_ISREG(mode):
        raise DataError(f"{shown(path)} is not a regular file; give a file that can be read again and again")


def missing(path: Path, *, also: tuple[str, ...] = ()) -> DataError:
    """The sentence for a path that does not exist, with the nearest existing name beside it or in `also`."""
    parent = path.parent
    while not parent.is_dir() and parent != parent.parent:
        path, parent = parent, parent.parent
    try:
        names = [entry.name for entry in parent.iterdir()]
    except OSError:
        names = []
    near = difflib.get_close_matches(path.name, [*also, *names], n=1, cutoff=0.6)
    hint = f"; did you mean {shown(near[0] if near[0] in also else parent / near[0])}?" if near else "; check the spelling"
    return DataError(f"there is no {shown(path)}{hint}")


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file's bytes in hexadecimal, read in blocks.

    Raises:
        DataError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise refused(path, error) from None
    return digest.hexdigest()


def digest_of(files: Mapping[str, str]) -> str:
    """One sha256 over several files: over the sorted (name, sha256) pairs, each name preceded by its length in bytes."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        encoded = name.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%s %s\n" % (len(encoded), encoded, content.encode()))
    return digest.hexdigest()
