"""Neurons of inner layers: what counts as one, and which layers have them.

A neuron is a channel (its mean over the places) of an image-like activation, a unit of a vector, a feature (its mean over the
tokens) of a sequence. A layer counts where its output is a float tensor whose rows belong to the images, one to each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from audit.models.probe import NEIGHBOUR_TOLERANCE
from audit.text import printable

NO_LAYERS = "none of the model's layers shows one row per image"


class Neurons:
    """Collects the neurons of one pass over `rows` images, layer by layer, in the order in which the layers run."""

    def __init__(self, rows: int) -> None:
        self.found: dict[str, torch.Tensor] = {}
        self._rows = rows
        self._axes: dict[tuple[int, ...], int] = {}

    def add(self, name: str, value: object, axis: int | None) -> None:
        """Reduce a layer's output at once: a later layer may write over it.

        Args:
            name: the layer; one that runs again becomes `name:2` and so on.
            value: its output, or a tuple that starts with it; ignored unless it is a float tensor (rows, ...).
            axis: where its features are, 1 after a convolution and -1 after a linear layer. None, as for an activation, is
                where the latest layer with an output of this shape had them; else 1 of four and more axes, the last of fewer.
        """
        value = value[0] if isinstance(value, tuple | list) and value else value
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.ndim < 2 or value.shape[0] != self._rows:
            return
        shape = tuple(value.shape)
        if axis is None:
            axis = self._axes.get(shape, 1 if value.ndim >= 4 else -1)
        else:
            self._axes[shape] = axis
        key, times = name, 1
        while key in self.found:
            times += 1
            key = f"{name}:{times}"
        features_second = value.detach().to(torch.float32).movedim(axis, 1)
        self.found[key] = features_second.reshape(*features_second.shape[:2], -1).mean(dim=2)


# Prepared rows (b, ...) -> neurons (b, units) of each layer.
Reader = Callable[[torch.Tensor], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """How many neurons each layer has, in the order in which they run, and how they are read."""

    units: Mapping[str, int]
    read: Reader


def settle(read: Reader, same: torch.Tensor) -> Layers | str:
    """Which layers can be read, or why none can.

    Args:
        read: one pass through the model.
        same: prepared rows (b, ...), all of them one image. A layer that works on windows or puts its tokens first may have b rows
            by chance, but then they differ.
    """
    try:
        found = read(same)
    except Exception as error:  # a model may do anything where it is looked into
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        return f"the model fails when its layers are read: {printable(reason, 200)}"
    units = {name: values.shape[1] for name, values in found.items() if _one_row_each(values)}
    return Layers(units=units, read=read) if units else NO_LAYERS


def _one_row_each(values: torch.Tensor) -> bool:
    values = values.nan_to_num()
    return values.numel() > 0 and bool((values - values[:1]).abs().max() <= NEIGHBOUR_TOLERANCE * values.abs().max())
