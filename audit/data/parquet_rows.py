"""Cells of one Parquet column, read forward, page by page.

A page is the least that can be unpacked, so the writer decides on the memory: pyarrow's default puts 1024 rows into one, which is
about three times their bytes while it is read. Row groups of 100 rows, as Hugging Face writes them, keep it small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from audit.data.files import MAX_DEFLATE_RATIO, check_regular, refused, shown
from audit.errors import DataError
from audit.evidence import Ints
from audit.text import printable

_BUFFER_BYTES = 1 << 16
# A batch holds about this many bytes of encoded images, and at most this many rows.
_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """A row group of a shard; `bytes` is its unpacked size."""

    path: Path
    index: int
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageColumn:
    """The image bytes of all shards, by row; `column` is the dotted name of the leaf, `nested` whether it is inside a struct."""

    groups: tuple[RowGroup, ...]
    column: str
    nested: bool
    cursor: Cursor = field(default_factory=lambda: Cursor(), init=False, repr=False)

    def cells(self, rows: Sequence[int] | Ints) -> Iterator[bytes | None]:
        """The cells at `rows`, which count through all shards; ascending rows are read in one pass.

        Raises:
            DataError: a shard cannot be read, or is damaged.
        """
        starts = np.cumsum([0, *(group.rows for group in self.groups)])
        for row in rows:
            place = int(np.searchsorted(starts, row, side="right")) - 1
            yield self.cursor.cell(self, place, int(row - starts[place]))


class Cursor:
    """Where the last read ended, so that the next chunk goes on from there; going back starts the row group again."""

    def __init__(self) -> None:
        self._place = -1
        self._start = 0
        self._batch: Any = ()
        self._batches: Iterator[Any] = iter(())

    def __reduce__(self) -> tuple[type[Cursor], tuple[()]]:
        """Another process begins its own."""
        return Cursor, ()

    def cell(self, column: ImageColumn, place: int, offset: int) -> bytes | None:
        """One cell, by its row group's place and its row there."""
        group = column.groups[place]
        if place != self._place or offset < self._start:
            self._place, self._start, self._batch = place, 0, ()
            self._batches = batches(group.path, [column.column], group)
        while offset >= self._start + len(self._batch):
            self._start += len(self._batch)
            self._batch = ()
            try:
                self._batch = next(self._batches).column(0)
            except StopIteration:
                self._place = -1
                raise DataError(f"{shown(group.path)} holds fewer rows than it claims; write it anew") from None
            except DataError:
                self._place = -1
                raise
        with parquet_errors(group.path):
            value = self._batch[offset - self._start].as_py()
        if column.nested:
            value = None if value is None else value["bytes"]
        return value if value else None


def batches(path: Path, columns: list[str], group: RowGroup | None = None) -> Iterator[Any]:
    """Record batches of some columns, of one row group or of the whole file.

    Raises:
        DataError: the file cannot be read, or is damaged.
    """
    options: dict[str, Any] = {"batch_size": 4096}
    if group is not None:
        mean = max(1, group.bytes // max(1, group.rows))
        options = {"batch_size": min(_BATCH_ROWS, max(1, _BATCH_BYTES // mean)), "row_groups": [group.index]}
    with parquet_errors(path), open_parquet(path) as file:
        yield from file.iter_batches(columns=columns, use_threads=False, **options)


def open_parquet(path: Path) -> Any:
    """A Parquet file with its footer read; nothing is read ahead.

    Raises:
        DataError: it is no regular file, or cannot be read.
    """
    check_regular(path)
    with parquet_errors(path):
        return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False, memory_map=False)


def row_groups(path: Path, metadata: Any) -> list[RowGroup]:
    """The row groups of a shard.

    The description of single columns is left alone: pyarrow ends the process when that is damaged.

    Raises:
        DataError: one claims more than the file can hold.
    """
    groups = []
    with parquet_errors(path):
        most = path.stat().st_size * MAX_DEFLATE_RATIO
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            if not (group.num_rows >= 0 and 0 <= group.total_byte_size <= most):
                raise DataError(
                    f"{shown(path)} claims {group.total_byte_size} bytes in a row group, more than it can hold; write it anew"
                )
            groups.append(RowGroup(path=path, index=index, rows=group.num_rows, bytes=group.total_byte_size))
    return groups


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises into one sentence."""
    try:
        yield
    except (DataError, GeneratorExit):
        raise
    except (PermissionError, FileNotFoundError) as error:
        raise refused(path, error) from None
    except Exception as error:  # damaged files raise errors of any kind
        reason = printable((str(error) or type(error).__name__).rstrip("."), 120)
        raise DataError(f"{shown(path)} is truncated, damaged or no Parquet file ({reason}); write it anew") from None
