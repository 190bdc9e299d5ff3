"""Do labels and outputs mean the same classes? Noticed when the accuracy says so: labels off by one, classes in another order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from audit import statistics
from audit.evidence import Ints

# Another order of the classes is named only if it would gain this much: two classes that a poor model confuses gain less.
LEAST_GAIN = 0.2


@dataclass(frozen=True, kw_only=True)
class Relabelling:
    """Labels that fit the model far better: what is wrong with the given ones, in words, and the labels (n,) put right."""

    sentence: str
    labels: Ints
    accuracy: float


def label_hint(labels: Ints, predicted: Ints, classes: int) -> str | None:
    """What is probably wrong with the labels, in words; None when nothing speaks for it.

    >>> labels = np.repeat(np.arange(5), 20)
    >>> label_hint(labels + 1, labels, 6)
    'labels look off by one: with every label lowered by 1 the accuracy is 100.0 % instead of 0.0 %'
    """
    found = relabelling(labels, predicted, classes)
    return None if found is None else found.sentence


def relabelling(labels: Ints, predicted: Ints, classes: int) -> Relabelling | None:
    """An offset of the labels, or another order of the classes, under which the model is right; None when nothing speaks for one.

    An offset or an order counts only if its accuracy is above the present one by 20 points and beyond both intervals.

    Args:
        labels: (n,) as given.
        predicted: (n,) the model's classes.
        classes: K of the model.
    """
    total = len(labels)
    right = int(np.sum(labels == predicted))
    for offset in (1, -1):
        moved = int(np.sum(labels - offset == predicted))
        if _speaks(moved, right, total):
            word = "lowered" if offset == 1 else "raised"
            sentence = (
                f"labels look off by one: with every label {word} by 1 the accuracy is {moved / total:.1%} instead of "
                f"{right / total:.1%}"
            )
            return Relabelling(sentence=sentence.replace("%", " %"), labels=labels - offset, accuracy=moved / total)
    size = max(classes, int(labels.max()) + 1)
    confusion = np.zeros((size, size), dtype=np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    rows, columns = scipy.optimize.linear_sum_assignment(confusion, maximize=True)
    best = int(confusion[rows, columns].sum())
    # The best of all orders is better than chance by construction; that is what half of the data are kept back for.
    if not _speaks(best, right, total) or not _holds_out(labels, predicted, size):
        return None
    moved_classes = [
        (int(row), int(column)) for row, column in zip(rows, columns, strict=True) if row != column and confusion[row].sum()
    ]
    named = ", ".join(f"label {row} is class {column}" for row, column in moved_classes[:5])
    more = ", …" if len(moved_classes) > 5 else ""
    sentence = (
        f"classes look to be in another order than the labels ({named}{more}): matched, the accuracy would be {best / total:.1%} "
        f"instead of {right / total:.1%}"
    )
    return Relabelling(sentence=sentence.replace("%", " %"), labels=columns[labels], accuracy=best / total)


def _speaks(better: int, right: int, total: int) -> bool:
    gain = better / total - right / total
    return gain >= LEAST_GAIN and statistics.proportion(better, total).low > statistics.proportion(right, total).high


def _holds_out(labels: Ints, predicted: Ints, size: int) -> bool:
    """Whether the order matched on one half of the examples also wins on the other."""
    confusion = np.zeros((size, size), dtype=np.int64)
    np.add.at(confusion, (labels[::2], predicted[::2]), 1)
    _, order = scipy.optimize.linear_sum_assignment(confusion, maximize=True)
    held_labels, held_predicted = labels[1::2], predicted[1::2]
    if len(held_labels) == 0:
        return False
    return _speaks(int(np.sum(order[held_labels] == held_predicted)), int(np.sum(held_labels == held_predicted)), len(held_labels))
