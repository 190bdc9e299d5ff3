"""The per-example table of a result folder, column by column; a missing table or column is a reason, not an error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from audit.result import TABLE_FILE

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ExampleTable:
    """What of `examples.parquet` could be read: `columns` by name, each (rows,), NaN where a row has no number."""

    models: npt.NDArray[np.int64]
    columns: dict[str, Floats]
    problem: str | None = None

    def values(self, column: str, model: int) -> Floats | str:
        """The finite values of one model, in the table's order, or why there are none."""
        values = self.aligned(column, model)
        if isinstance(values, str):
            return values
        finite = values[np.isfinite(values)]
        return finite if finite.size else f"the column {column} of the per-example table has no number for this model"

    def aligned(self, column: str, model: int) -> Floats | str:
        """All values of one model, NaN included, so that two models' examples pair up; or why there are none."""
        if self.problem is not None:
            return self.problem
        if column not in self.columns:
            return f"the per-example table has no column {column}"
        return np.asarray(self.columns[column][self.models == model], dtype=np.float64)


def read(folder: Path, wanted: tuple[str, ...]) -> ExampleTable:
    """Read `model` and those of the numeric columns `wanted` that `examples.parquet` has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / TABLE_FILE
    nothing = np.zeros(0, dtype=np.int64)
    if not path.is_file():
        return ExampleTable(models=nothing, columns={}, problem=f"the result folder has no {TABLE_FILE}")
    try:
        # A file object, since a path with % or : could be read as a URI.
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream)
            present = [name for name in ("model", *wanted) if name in file.schema_arrow.names]
            if "model" not in present:
                return ExampleTable(models=nothing, columns={}, problem=f"{TABLE_FILE} has no column model")
            table = file.read(columns=present)
        models = np.asarray(table["model"].to_numpy(zero_copy_only=False), dtype=np.int64)
        columns = {name: np.asarray(table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)) for name in present[1:]}
    except (OSError, ValueError, TypeError, pa.ArrowException):
        return ExampleTable(models=nothing, columns={}, problem=f"{TABLE_FILE} could not be read as a table of numbers")
    return ExampleTable(models=models, columns=columns)
