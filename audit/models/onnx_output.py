"""Which output of an ONNX graph holds the scores, and the scores in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch

from audit.errors import InputError, ModelError
from audit.models.scores import unknown
from audit.text import printable

if TYPE_CHECKING:
    from onnx import ModelProto

_SCORES = ("tensor(float)", "tensor(float16)", "tensor(double)")
_MAPS = ("seq(map(int64,tensor(float)))", "seq(map(string,tensor(float)))")


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output that is read. `labels` are the keys of a sequence of maps, by column; `chosen` where there were several."""

    name: str
    labels: tuple[int | str, ...] = ()
    chosen: bool = False
    notes: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the columns, where the graph states words."""
        return tuple(printable(label) for label in self.labels if isinstance(label, str))


def choose(outputs: Sequence[Any], model: ModelProto, wanted: str | None, who: str) -> Output:
    """Take the output called `wanted`, or the likeliest: a float matrix, any other float tensor, label-to-score maps.

    Args:
        outputs: what the session gives, each with name, type and shape.
        model: the graph, for the labels of maps.
        wanted: a name that the user gave.
        who: the model, for messages.

    Raises:
        InputError: there is no output of the wanted name.
        ModelError: there are no scores in it.
    """
    listed = ", ".join(f"{printable(each.name, 40)!r} ({each.type})" for each in outputs)
    if wanted is not None:
        named = [each for each in outputs if each.name == wanted]
        if not named:
            raise InputError(unknown(who, wanted, [each.name for each in outputs]))
        only = named[0]
    else:
        floats = [each for each in outputs if each.type in _SCORES]
        maps = [each for each in outputs if each.type in _MAPS]
        usable = [each for each in floats if len(each.shape) == 2] or floats or maps
        only = usable[0] if usable else outputs[0]
    if only.type not in (*_SCORES, *_MAPS):
        why = "only class numbers" if "int" in only.type or "string" in only.type else only.type
        raise ModelError(
            f"{who}: gives {why} ({listed if wanted is None else repr(printable(only.name, 40))}), but an audit needs one score "
            "per class; export the graph with its scores, or name the output that has them with --output"
        )
    notes = []
    if len(outputs) > 1 and wanted is None:
        notes.append(f"The graph has {len(outputs)} outputs; {printable(only.name, 60)!r} was used.")
    labels = _labels(model, only.name, who) if only.type in _MAPS else ()
    if labels and not isinstance(labels[0], str) and labels != tuple(range(len(labels))):
        notes.append(
            f"The graph's labels are {', '.join(map(str, labels[:20]))}; they were taken for classes 0 to {len(labels) - 1}."
        )
    return Output(name=only.name, labels=labels, chosen=len(outputs) > 1, notes=tuple(notes))


def matrix(value: object, output: Output) -> torch.Tensor:
    """What the session gave for `output`, as a float32 tensor.

    Raises:
        ModelError: a row of maps has other labels than the graph states.
    """
    if output.labels:
        rows = cast("list[Mapping[int | str, float]]", value)
        try:
            value = [[row[label] for label in output.labels] for row in rows]
        except KeyError as error:
            raise ModelError(f"the graph gives scores without the label {error.args[0]!r}, which it states") from None
    # Writable and of our own, whatever the session returns.
    values: npt.NDArray[np.float32] = np.array(value, dtype=np.float32)
    return torch.from_numpy(values)


def _labels(model: ModelProto, name: str, who: str) -> tuple[int | str, ...]:
    """The labels of the ZipMap that makes `name`, by column."""
    for node in model.graph.node:
        if name in node.output and node.op_type == "ZipMap":
            for attribute in node.attribute:
                if attribute.name == "classlabels_int64s" and attribute.ints:
                    return tuple(map(int, attribute.ints))
                if attribute.name == "classlabels_strings" and attribute.strings:
                    return tuple(label.decode("utf-8", "replace") for label in attribute.strings)
    raise ModelError(
        f"{who}: gives maps from labels to scores, and its graph does not say which labels; export it with a matrix of scores "
        "(zipmap=False)"
    )
