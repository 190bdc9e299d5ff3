"""A data reference taken apart: `PATH`, or `PATH#ITEM,ITEM...` where an item is a part or names a column.

The items are `train`, `test` or `validation`, and `image=COLUMN` and `label=COLUMN` for tables (Parquet and CSV).
"""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path

from audit.data.files import missing, refused, shown
from audit.errors import DataError
from audit.text import printable

PARTS = ("train", "test", "validation")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An existing path, or (`shards`) the files a pattern matches; `part` and the columns are None where not given."""

    text: str
    path: Path
    shards: tuple[Path, ...] = ()
    part: str | None = None
    image: str | None = None
    label: str | None = None

    def refuse_part(self, what: str) -> None:
        """Refuse a part or a column where the source has none; `what` says what it is."""
        if self.part is not None:
            raise DataError(f"{shown(self.path)} is {what} and has no parts; leave #{self.part} out")
        self.refuse_columns(what)

    def refuse_columns(self, what: str) -> None:
        """Refuse a column where the source has none; `what` says what it is."""
        if self.image is not None or self.label is not None:
            raise DataError(f"{shown(self.path)} is {what} and has no columns; leave image= and label= out")

    def is_train(self, what: str) -> bool:
        """Whether the training part is meant, of a source that has two parts and no columns."""
        self.refuse_columns(what)
        if self.part == "validation":
            raise DataError(f"{shown(self.path)} is {what} and has no validation part; write #train or #test")
        return self.part == "train"


def read_reference(text: str, *, names: tuple[str, ...]) -> Reference:
    """The existing path of a reference and what its suffix asks for; a path that has a `#` itself comes first.

    Args:
        text: the reference.
        names: built-in names, for the hint when nothing is there.

    Raises:
        DataError: there is no such path, or the suffix cannot be understood.
    """
    whole = _found(text, text)
    if whole is not None:
        return whole
    base, mark, suffix = text.rpartition("#")
    if not mark or not base:
        raise missing(Path(text), also=names)
    found = _found(base, text)
    if found is None:
        raise missing(Path(base), also=names)
    part, columns = suffix_items(suffix, text, found.path)
    return Reference(text=text, path=found.path, shards=found.shards, part=part, **columns)


def suffix_items(suffix: str, text: str, path: Path | str) -> tuple[str | None, dict[str, str]]:
    """The part and the named columns of a suffix.

    Raises:
        DataError: an item is unknown or comes twice.
    """
    part: str | None = None
    columns: dict[str, str] = {}
    for item in suffix.split(","):
        key, equals, column = item.partition("=")
        if not equals and item in PARTS and part is None:
            part = item
        elif key in ("image", "label") and column and key not in columns:
            columns[key] = column
        else:
            raise DataError(
                f"{shown(text)} names no part of {shown(path)} with {printable(item, 60)!r}; write #train or #test, "
                "and for tables #image=COLUMN,label=COLUMN"
            )
    return part, columns


def _found(base: str, text: str) -> Reference | None:
    path = Path(base)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if not glob.has_magic(base):
            return None
    except OSError as error:
        raise refused(path, error) from None
    else:
        return Reference(text=text, path=path)
    shards = tuple(sorted(Path(name) for name in glob.glob(base)))  # noqa: PTH207 - absolute patterns too
    return Reference(text=text, path=path, shards=shards) if shards else None
