"""Parquet tables with encoded images, as Hugging Face stores them: one file, or shards in a folder or matched by a pattern.

Ids are the paths recorded beside the bytes where every image has one of its own, else `SHARD#ROW`. Images are read page by page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from audit.data.decode import Encoded
from audit.data.files import digest_of, refused, sha256_of_file, shown
from audit.data.image_files import unicode_name
from audit.data.labels import checked_labels, from_text, with_names
from audit.data.options import Options
from audit.data.parquet_columns import Columns, find_columns
from audit.data.parquet_rows import ImageColumn, RowGroup, batches, open_parquet, parquet_errors, row_groups
from audit.data.reference import Reference
from audit.data.resize import Resize
from audit.data.survey import read_images, survey
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings
from audit.text import printable, redact

# Ids are kept at the length of the longest.
_MAX_PATH = 500
# So are the values of slices.
_MAX_SLICE = 60
_PART = re.compile(r"(?P<part>train|training|test|validation|valid|val|dev)(?=[-._])")
_PART_OF = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation"}


@dataclass(frozen=True, kw_only=True, eq=False)
class ParquetDataset:
    """`rows` (N,) are the rows of `column` in the order of `ids`; `shards` are the files by the names they have in ids."""

    shards: Mapping[str, Path]
    column: ImageColumn
    rows: Ints
    reference: str
    source: str
    ids: Strings
    labels: Ints
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]
    resize: Resize | None
    slices: Mapping[str, Strings]
    cautions: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """sha256 over the shards' names and the sha256 of their bytes; reads every shard once.

        Raises:
            DataError: a shard cannot be read.
        """
        return digest_of({name: sha256_of_file(path) for name, path in self.shards.items()})

    def images(self, indices: Sequence[int] | Ints) -> Images:
        """The images at `indices`, (n, c, h, w) float32 in [0, 1]; ascending indices are read in one pass.

        Raises:
            DataError: images cannot be read, or have changed since they were loaded.
        """
        asked = np.asarray(indices, dtype=np.int64)
        order = np.argsort(self.rows[asked], kind="stable")
        cells = self.column.cells(self.rows[asked][order])
        named = ((int(place), shown(str(self.ids[asked[place]])), cell) for place, cell in zip(order, cells, strict=True))
        return read_images(named, len(asked), self.image_shape, self.resize)


def load_parquet(ref: Reference, shards: Mapping[str, Path], options: Options, part: str | None = None) -> ParquetDataset:
    """Read the labels of all shards and look at every image; `part` names what was chosen among several.

    Raises:
        DataError: a shard is damaged or unlike the others, there is no image or label column, or images cannot be read.
    """
    columns: Columns | None = None
    groups: list[RowGroup] = []
    for path in shards.values():
        with open_parquet(path) as file, parquet_errors(path):
            found = find_columns(file.schema_arrow, shown(path), image=ref.image, label=ref.label)
            groups += row_groups(path, file.metadata)
        if columns is not None and found != columns:
            raise DataError(f"{shown(path)} has other image or label columns than the shards before it; give shards of one table")
        columns = found
    assert columns is not None
    ids, cells, slices = _ids_and_labels(shards, columns)
    where = shown(ref.path)
    total = sum(group.rows for group in groups)
    if len(ids) != total:
        raise DataError(f"{where} holds {len(ids)} rows, but claims {total}; it is damaged, write it anew")
    if total == 0:
        raise DataError(f"{where}: there are no examples; an audit needs at least one image with its label")
    if columns.named:
        labels, names = from_text([str(cell) for cell in cells], options.class_names, where)
    else:
        kind = np.uint64 if max(map(int, cells)) > np.iinfo(np.int64).max else np.int64
        checked = checked_labels(np.array(cells, dtype=kind), total, where)
        labels, names = with_names(checked, columns.class_names, options.class_names, where)
    column = ImageColumn(groups=tuple(groups), column=columns.leaf, nested=columns.nested)
    found_images = survey(_named(ids, column), options)
    chosen = f", {part} part" if part is not None else ""
    several = f" in {len(shards)} shards" if len(shards) > 1 else ""
    return ParquetDataset(
        shards=dict(shards),
        column=column,
        rows=found_images.kept,
        reference=redact(ref.text),
        source=(
            f"Parquet table {printable(ref.path.name)}{chosen}, columns {printable(columns.image, 40)} and "
            f"{printable(columns.label, 40)}{several}, with {len(found_images.kept)} images{found_images.notes}"
        ),
        ids=ids[found_images.kept],
        labels=labels[found_images.kept],
        class_names=names,
        image_shape=found_images.image_shape,
        resize=options.resize,
        slices={name: values[found_images.kept] for name, values in slices.items()},
        cautions=found_images.cautions(ids),
    )


def shards_in(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """The Parquet files of a folder with these entries, or of its `data` folder, by name; empty where there are none."""
    inside = folder
    found = [name for name in names if _is_shard(name)]
    if not found and "data" in names and (folder / "data").is_dir():
        inside = folder / "data"
        try:
            found = [entry.name for entry in inside.iterdir() if _is_shard(entry.name)]
        except OSError as error:
            raise refused(inside, error) from None
    return {name: inside / name for name in sorted(found)}


def choose_part(shards: Mapping[str, Path], part: str | None, where: str) -> tuple[dict[str, Path], str | None]:
    """The shards of one part, by the beginning of their names: the one asked for, else the only one, else the test part.

    Raises:
        DataError: there is no such part, or none was asked for and none of several is a test part.
    """
    parts: dict[str, dict[str, Path]] = {}
    for name, path in shards.items():
        match = _PART.match(name)
        found = _PART_OF.get(match["part"], match["part"]) if match else ""
        parts.setdefault(found, {})[name] = path
    known = ", ".join(f"#{name}" for name in sorted(parts) if name) or "none"
    if part is None:
        if len(parts) == 1:
            return dict(shards), next(iter(parts)) or None
        if "test" not in parts:
            raise DataError(f"{where} holds several parts and no test part; name one of them ({known})")
        part = "test"
    if part not in parts:
        raise DataError(f"{where} has no {part} part by the names of its shards; its parts are {known}")
    return parts[part], part


def _is_shard(name: str) -> bool:
    return name.lower().endswith(".parquet") and not name.startswith((".", "_"))


def _named(ids: Strings, column: ImageColumn) -> Iterator[tuple[str, Encoded]]:
    for key, cell in zip(ids, column.cells(range(len(ids))), strict=True):
        yield shown(str(key)), cell


def _ids_and_labels(shards: Mapping[str, Path], columns: Columns) -> tuple[Strings, list[int | str], dict[str, Strings]]:
    """The ids of all rows, their labels as stored, and their further columns as text, empty where a cell is."""
    slices: dict[str, list[str]] = {name: [] for name in columns.slices}
    numbers: list[str] = []
    paths: list[str | None] = []
    labels: list[int | str] = []
    wanted = [columns.label, *columns.slices, *([f"{columns.image}.path"] if columns.with_path else [])]
    for name, path in shards.items():
        start = len(labels)
        for batch in batches(path, wanted):
            with parquet_errors(path):
                cells = batch.column(columns.label).to_pylist()
                images = batch.column(columns.image).to_pylist() if columns.with_path else [None] * len(cells)
                for name, values in slices.items():
                    values += ("" if cell is None else str(cell)[:_MAX_SLICE] for cell in batch.column(name).to_pylist())
            if None in cells:
                raise DataError(
                    f"{shown(path)}: row {len(labels) - start + cells.index(None)} has no label in column "
                    f"{printable(columns.label, 60)!r}; give every image a label, or leave it out"
                )
            labels += cells
            paths += [None if image is None else image["path"] for image in images]
        numbers += [f"{unicode_name(name)}#{row}" for row in range(len(labels) - start)]
    # NumPy cuts null characters off the end of a string, which could make two paths one.
    usable = all(path and len(path) <= _MAX_PATH and "\0" not in path for path in paths) and len(set(paths)) == len(paths)
    ids = np.array(paths if usable else numbers, dtype=np.str_)
    return ids, labels, {name: np.array(values, dtype=np.str_) for name, values in slices.items()}
