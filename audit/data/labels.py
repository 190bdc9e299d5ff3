"""Labels become class indices: from integers, from names, and in the order of classes the user gave."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from audit.data.files import shown
from audit.data.pixels import AnyArray
from audit.errors import DataError
from audit.evidence import Ints

# A larger label is not a class index; names are made for every index up to the largest.
MAX_CLASSES = 100_000
MAX_NAME = 500
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|[+-]?inf", re.IGNORECASE)


def checked_labels(labels: AnyArray, examples: int, where: str) -> Ints:
    """Labels as class indices (N,); `where` names them in messages.

    Raises:
        DataError: not integers, negative, implausibly large, or not one per example.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        hint = "; for one-hot rows store labels.argmax(axis=1)" if labels.ndim == 2 else ""
        raise DataError(f"{where}: labels have shape {labels.shape}, but must be one class index per image{hint}")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{where}: labels are {labels.dtype}, but must be integer class indices; store labels.astype('int64')")
    if len(labels) != examples:
        raise DataError(f"{where}: there are {examples} images but {len(labels)} labels; they must come in pairs")
    if examples == 0:
        raise DataError(f"{where}: there are no examples; an audit needs at least one image with its label")
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise DataError(f"{where}: label {low} is negative; labels are class indices from 0 on")
    if high >= MAX_CLASSES:
        raise DataError(f"{where}: label {high} is no class index (at most {MAX_CLASSES - 1}); labels count classes from 0 on")
    return labels.astype(np.int64)


def numbered_names(labels: Ints) -> tuple[str, ...]:
    """The names "0", "1", ... up to the largest label, for sources that have none."""
    return tuple(str(index) for index in range(int(labels.max()) + 1))


def with_names(labels: Ints, own: Sequence[str] | None, given: Sequence[str] | None, where: str) -> tuple[Ints, tuple[str, ...]]:
    """Labels and class names once the source's `own` names and those the user gave are put together.

    Names given for a source without any are taken as the names by index. Where the source has its own, the given ones say which
    index each of them has.

    Raises:
        DataError: a label has no name, or a class that occurs is not among the given names.
    """
    largest = int(labels.max())
    if own is None:
        if given is None:
            return labels, numbered_names(labels)
        if largest >= len(given):
            raise DataError(f"labels of {where} reach {largest}, but only {len(given)} class names are given")
        return labels, tuple(given)
    if largest >= len(own):
        raise DataError(f"labels of {where} reach {largest}, but it names only {len(own)} classes; its labels or names are wrong")
    if given is None:
        return labels, tuple(own)
    order = {name: index for index, name in enumerate(given)}
    moved = np.full(len(own), -1, dtype=np.int64)
    for index in np.unique(labels):
        if own[index] not in order:
            raise DataError(f"class {shown(own[index])} of {where} is not among the class names given")
        moved[index] = order[own[index]]
    return moved[labels], tuple(given)


def from_text(cells: Sequence[str], given: Sequence[str] | None, where: str) -> tuple[Ints, tuple[str, ...]]:
    """Class indices and names of labels written as text.

    Labels that are all among the names given are names; else integers are class indices; else the sorted labels are the names.

    Raises:
        DataError: a label is empty, or a number but no integer; or it is not among the names given.
    """
    distinct = sorted(set(cells))
    if not distinct:
        raise DataError(f"{where}: there are no examples; an audit needs at least one image with its label")
    if "" in distinct:
        raise DataError(f"{where}: the label of example {cells.index('')} is empty; give every image a label, or leave it out")
    names = distinct if given is None else given
    if given is None or not set(distinct) <= set(given):
        if all(_INTEGER.fullmatch(cell) for cell in distinct):
            return with_names(checked_labels(np.array([int(cell) for cell in cells]), len(cells), where), None, given, where)
        if all(_NUMBER.fullmatch(cell) for cell in distinct):
            odd = next(cell for cell in cells if not _INTEGER.fullmatch(cell))
            raise DataError(f"{where}: label {shown(odd)} is no class index; write integers from 0 on, or names")
        if given is not None:
            strange = next(cell for cell in cells if cell not in set(given))
            raise DataError(f"class {shown(strange)} of {where} is not among the class names given")
    if len(names) > MAX_CLASSES or max(map(len, names)) > MAX_NAME:
        raise DataError(f"{where}: more than {MAX_CLASSES} classes, or names longer than {MAX_NAME} characters; check the labels")
    order = {name: index for index, name in enumerate(names)}
    return np.array([order[cell] for cell in cells], dtype=np.int64), tuple(names)
