"""The per-example table of a result folder, column by column; a missing table or column is a reason, not an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audit.audited import Column
from audit.evidence import Floats, Ints, Strings
from audit.result import TABLE_FILE

if TYPE_CHECKING:
    import pyarrow as pa

_STATES = {"survived": 1.0, "broken": 0.0}


@dataclass(frozen=True, kw_only=True)
class ExampleTable:
    """What of `examples.parquet` could be read: one row per model and example, all arrays (rows,).

    Words of a worst case's `..._state/...` columns are 1 for "survived" and 0 for "broken"; other columns of words are left out.
    A value that is null or not finite is not known.
    """

    models: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ids: Strings = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    columns: Mapping[str, Column] = field(default_factory=dict)
    problem: str | None = None

    def of(self, model: int) -> tuple[Strings, dict[str, Column]]:
        """One model's ids and columns, in the table's order."""
        rows = self.models == model
        return self.ids[rows], {name: Column(values=c.values[rows], known=c.known[rows]) for name, c in self.columns.items()}

    def values(self, column: str, model: int) -> Floats | str:
        """The known values of one model, in the table's order, or why there are none."""
        values = self.aligned(column, model)
        if isinstance(values, str):
            return values
        finite = values[np.isfinite(values)]
        return finite if finite.size else f"the column {column} of the per-example table has no number for this model"

    def aligned(self, column: str, model: int) -> Floats | str:
        """All values of one model, NaN where not known, so that two models' examples pair up; or why there are none."""
        if self.problem is not None:
            return self.problem
        found = self.columns.get(column)
        if found is None:
            return f"the per-example table has no column {column}"
        return np.asarray(np.where(found.known, found.values, np.nan)[self.models == model], dtype=np.float64)


def read_table(folder: Path) -> ExampleTable:
    """Read `examples.parquet`; it takes about 250 bytes of memory per row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / TABLE_FILE
    if not path.is_file():
        return ExampleTable(problem=f"the result folder has no {TABLE_FILE}")
    try:
        # A file object, since a path with % or : could be read as a URI. Without threads, since a process that ends soon after
        # they started is aborted now and then, whatever its verdict was.
        with path.open("rb") as stream:
            table = pq.ParquetFile(stream, pre_buffer=False).read(use_threads=False)
        missing = next((name for name in ("model", "id") if name not in table.column_names), None)
        if missing is not None:
            return ExampleTable(problem=f"{TABLE_FILE} has no column {missing}")
        models = np.asarray(table["model"].to_numpy(), dtype=np.int64)
        ids = np.asarray(table["id"].to_pylist(), dtype=np.str_)
        found = {name: _column(name, table[name]) for name in table.column_names if name not in {"model", "id"}}
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
        return ExampleTable(problem=f"{TABLE_FILE} could not be read as a table of numbers")
    return ExampleTable(models=models, ids=ids, columns={name: column for name, column in found.items() if column is not None})


def _column(name: str, data: pa.ChunkedArray) -> Column | None:
    import pyarrow as pa

    kind = data.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        values = np.asarray(data.cast(pa.float64()).to_numpy(), dtype=np.float64)  # nulls become NaN
    elif "_state/" in name and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        values = np.array([_STATES.get(word, np.nan) for word in data.to_pylist()], dtype=np.float64)
    else:
        return None
    known = np.isfinite(values)
    return Column(values=np.where(known, values, 0.0), known=known)
