"""A CSV manifest: one row per image with its path, its label, and any further columns as slices.

The first row names the columns. Paths are relative to the CSV file; UTF-8, with or without a byte order mark, and commas.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

import numpy as np

from audit.data.files import refused, shown
from audit.data.image_files import FileDataset, load_files
from audit.data.labels import from_text
from audit.data.options import Options
from audit.data.reference import Reference
from audit.errors import DataError
from audit.text import printable

IMAGE_COLUMNS = ("path", "image", "file", "filename", "file_name", "filepath", "image_path")
LABEL_COLUMNS = ("label", "labels", "class", "target", "class_name")
# Strings of a data set are kept at the length of the longest.
MAX_CELL = 1000


def load_manifest(ref: Reference, options: Options) -> FileDataset:
    """Read a manifest; labels are class indices or names, ids are the paths as written.

    Raises:
        DataError: it is no such table, lists an image twice or images that cannot be read, or its labels do not fit.
    """
    where = shown(ref.path)
    try:
        with ref.path.open(encoding="utf-8-sig", newline="") as file:
            header, rows = _table(csv.reader(file, strict=True), where)
    except OSError as error:
        raise refused(ref.path, error) from None
    except UnicodeDecodeError:
        raise DataError(f"{where} is not UTF-8 text; store the table as comma-separated UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{where} is not a readable CSV table ({printable(str(error), 120)}); write it anew") from None
    image = _column(header, ref.image, IMAGE_COLUMNS, "image", where)
    label = _column(header, ref.label, LABEL_COLUMNS, "label", where)
    if image == label:
        raise DataError(f"{where}: images and labels cannot both come from column {shown(header[image])}; name two columns")
    files = [row[image] for row in rows]
    _check_files(files, where)
    labels, names = from_text([row[label].strip() for row in rows], options.class_names, where)
    slices = {
        name: np.array([row[index] for row in rows], dtype=np.str_)
        for index, name in enumerate(header)
        if index not in (image, label)
    }
    listed = f" and the slices {', '.join(printable(name, 40) for name in list(slices)[:5])}" if slices else ""
    return load_files(
        ref.path.parent,
        files,
        labels,
        names,
        options,
        reference=ref.text,
        source=f"CSV manifest {printable(ref.path.name)}{listed}",
        slices=slices,
        manifest=ref.path,
    )


def _table(reader: Iterable[list[str]], where: str) -> tuple[list[str], list[list[str]]]:
    rows = iter(reader)
    header = [name.strip() for name in next(rows, [])]
    if not header or len(set(header)) != len(header) or "" in header:
        raise DataError(f"{where}: the first row must name the columns, each by its own name, such as path,label")
    found = []
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(
                f"{where}: row {number} has {len(row)} cells, not {len(header)} as the header; quote cells that hold commas"
            )
        if max(map(len, row)) > MAX_CELL:
            raise DataError(f"{where}: row {number} has a cell of more than {MAX_CELL} characters; shorten it")
        found.append(row)
    return header, found


def _column(header: Sequence[str], given: str | None, usual: Sequence[str], what: str, where: str) -> int:
    for name in usual if given is None else (given,):
        if name in header:
            return header.index(name)
    columns = ", ".join(printable(name, 40) for name in header[:12])
    trouble = f"no column {shown(given)}" if given is not None else f"no column called {' or '.join(usual[:4])}"
    raise DataError(f"{where} has {trouble}; its columns are {columns}: name one with #{what}=COLUMN")


def _check_files(files: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for file in files:
        if not file.strip():
            raise DataError(f"{where}: an image has no path; give every row the path of an image")
        if file in seen:
            raise DataError(f"{where} lists {shown(file)} more than once; list each image once")
        seen.add(file)
