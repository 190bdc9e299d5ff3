"""What a model that is only asked gives back: scores or labels, read out of arrays, tables, dictionaries or JSON.

An answer holds one entry per image, in the order of the images. Which of several outputs is used follows from the outputs
themselves: the one called `logits`, else the only one with a score per class, else the only one with labels, else the only one
with one value per image, the score of the second of two classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from audit.errors import ModelError
from audit.models.scores import LOGITS
from audit.text import printable

Array = npt.NDArray[Any]
# Names of the entry that holds the answered class, in answers with one dictionary per image.
_LABEL_NAMES = ("label", "class", "prediction", "predicted", "predicted_label")
_MOST_NAMES = 12


@dataclass(frozen=True, kw_only=True)
class Scores:
    """`values` (n, K) float32, as given, (n, 1) where there is one for two classes; `names` of the columns where they have any."""

    values: torch.Tensor
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The answered class of each image: its index, or its name."""

    values: tuple[int | str, ...]


def read(answer: object, rows: int, who: str) -> Scores | Labels:
    """Find scores or labels for `rows` images in an answer.

    Args:
        answer: an array, tensor, pandas table or column, or what JSON can hold of these.
        rows: how many images were asked about.
        who: the model, for messages.

    Raises:
        ModelError: it holds neither, or not one per image.
    """
    try:
        found = _read(_plain(answer), who)
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # an object may raise anything when it is made an array, or hold itself
        raise ModelError(f"{who}: its answer cannot be read ({type(error).__name__}); an audit needs arrays or lists") from error
    count = len(found.values)
    if count != rows:
        raise ModelError(f"{who}: gives {count} answer{'s' * (count != 1)} for {rows} images; an audit needs one for each")
    return found


def dense(answer: Scores | Labels, classes: Sequence[str], who: str) -> torch.Tensor:
    """Scores (n, K) as they are; labels as one-hot rows over `classes`: 1.0 for the answered class, which says no more than that.

    Raises:
        ModelError: a label is none of `classes`.
    """
    if isinstance(answer, Scores):
        return answer.values
    if not classes:
        raise ModelError(f"{who}: answers with labels only, and nothing says how many classes there are; pass --class-names")
    places = {name: index for index, name in enumerate(classes)}
    index = [value if isinstance(value, int) else places.get(value, -1) for value in answer.values]
    unknown = next((value for value, place in zip(answer.values, index, strict=True) if not 0 <= place < len(classes)), None)
    if unknown is not None:
        raise ModelError(
            f"{who}: answers with the class {printable(repr(unknown), 60)}, but there are {len(classes)} classes "
            f"({_listed(classes)}); check that model and data belong together, or pass --class-names"
        )
    return torch.nn.functional.one_hot(torch.tensor(index), len(classes)).float()


def in_order(answer: Scores | Labels, names: tuple[str, ...], who: str) -> Scores | Labels:
    """The answer with its columns in the order of `names`: some services sort the classes of each answer by score.

    Raises:
        ModelError: its columns have other names.
    """
    if isinstance(answer, Labels) or answer.names == names:
        return answer
    if sorted(answer.names) != sorted(names):
        raise ModelError(
            f"{who}: names its scores now {_listed(answer.names) or 'in no way'} and now {_listed(names) or 'in no way'}; an audit "
            "needs a score for every class in every answer"
        )
    return Scores(values=answer.values[:, [answer.names.index(name) for name in names]], names=names)


def _read(answer: object, who: str) -> Scores | Labels:
    if isinstance(answer, Mapping):
        return _chosen(cast("Mapping[Any, object]", answer), who)
    if isinstance(answer, list) and answer and all(isinstance(row, Mapping) for row in answer):
        return _from_records(cast("list[Mapping[object, object]]", answer), who)
    return _from_array(_array(answer, who), who)


def _plain(answer: object) -> object:
    """Tensors and pandas objects as arrays, or as a dictionary of columns; the rest unchanged."""
    import pandas as pd

    if isinstance(answer, torch.Tensor):
        return answer.detach().cpu().float().numpy() if answer.is_floating_point() else answer.detach().cpu().numpy()
    if isinstance(answer, pd.Series):
        return answer.to_numpy()
    if isinstance(answer, pd.DataFrame):
        return answer.to_dict("records") if answer.shape[1] > 1 else answer.iloc[:, 0].tolist()
    return answer


def _array(answer: object, who: str) -> Array:
    """An array of numbers or of texts."""
    try:
        found = np.asarray(answer)
        if found.dtype == object and not any(isinstance(value, str) for value in found.ravel()):
            # JSON's null is how some servers write a value that is no number.
            found = np.array(answer, dtype=np.float64)
    except (ValueError, TypeError):
        raise ModelError(f"{who}: its answer is no table of numbers: rows differ in length, or hold something else") from None
    if found.dtype.kind not in "fiubUO" or (found.dtype == object and not all(isinstance(v, str) for v in found.ravel())):
        raise ModelError(f"{who}: its answer holds {found.dtype}, neither scores nor labels")
    return found


def _from_array(found: Array, who: str) -> Scores | Labels:
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    texts = found.dtype.kind in "UO"
    if found.ndim == 2 and found.shape[1] and not texts:
        return Scores(values=torch.from_numpy(found.astype(np.float32)))
    if found.ndim != 1:
        raise ModelError(f"{who}: gives an answer of shape {found.shape}; an audit needs (images, classes), or one label per image")
    if texts:
        return Labels(values=tuple(str(value) for value in found))
    if not np.isfinite(found).all() or not np.array_equal(found.astype(np.int64), found):
        return Scores(values=torch.from_numpy(found.astype(np.float32))[:, None])
    if (found < 0).any():
        raise ModelError(
            f"{who}: gives one whole number per image, some below 0, but an audit needs a score per class, or classes from 0 on"
        )
    return Labels(values=tuple(int(value) for value in found))


def _from_records(rows: list[Mapping[object, object]], who: str) -> Scores | Labels:
    """One dictionary per image: a score per class, or a label among other things."""
    names = [str(key) for key in rows[0]]
    try:
        columns = {str(key): [row[key] for row in rows] for key in rows[0]}
    except KeyError:
        raise ModelError(f"{who}: its dictionaries have different entries for different images") from None
    label = next((name for name in _LABEL_NAMES if name in columns), None)
    texts = [name for name in names if all(isinstance(value, str) for value in columns[name])]
    if label is not None or len(texts) == 1:
        return _from_array(_array(columns[label or texts[0]], who), who)
    if len(names) > 1 and all(isinstance(value, int | float | None) for column in columns.values() for value in column):
        values = _array(list(columns.values()), who).T.astype(np.float32)
        return Scores(values=torch.from_numpy(np.ascontiguousarray(values)), names=tuple(names))
    return _chosen(columns, who)


def _chosen(outputs: Mapping[Any, object], who: str) -> Scores | Labels:
    """The one output to use among several."""
    readable: dict[str, Scores | Labels] = {}
    problem = ""
    for name, value in outputs.items():
        try:
            readable[str(name)] = _read(_plain(value), who)
        except ModelError as error:
            problem = str(error).removeprefix(f"{who}: ")
    if LOGITS in readable:
        return readable[LOGITS]
    best = min(map(_rank, readable.values()), default=0)
    likeliest = [found for found in readable.values() if _rank(found) == best]
    if len(likeliest) == 1:
        return likeliest[0]
    if not outputs:
        raise ModelError(f"{who}: its answer holds nothing")
    if not readable and len(outputs) == 1:
        raise ModelError(f"{who}: {problem}")
    raise ModelError(
        f"{who}: gives several outputs ({_listed([str(name) for name in outputs])}); an audit needs one with scores, or one called "
        f"{LOGITS!r}"
    )


def _rank(found: Scores | Labels) -> int:
    """A score per class comes first. One value beside a label may be how sure the model is of it."""
    if isinstance(found, Labels):
        return 1
    return 0 if found.values.shape[1] > 1 else 2


def _listed(names: Sequence[str]) -> str:
    return ", ".join(printable(name, 40) for name in names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
