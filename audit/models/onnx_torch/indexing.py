"""Operators that read or write values at places given by indices."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from audit.models.onnx_torch.node import Node, Operator, Tensor

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
_SAMPLED = {"linear": "bilinear", "cubic": "bicubic"}


def _counted_from_the_front(indices: Tensor, size: int) -> Tensor:
    return torch.where(indices < 0, indices + size, indices).to(torch.int64)


def _gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.integer("axis", 0) % x.ndim
    places = _counted_from_the_front(indices, x.shape[axis])
    return x.index_select(axis, places.reshape(-1)).reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def _gather_elements(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.integer("axis", 0)
    return torch.gather(x, axis, _counted_from_the_front(indices, x.shape[axis]))


def _gather_nd(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    batch, places = node.integer("batch_dims", 0), indices.shape[:-1]
    own = [
        torch.arange(places[axis], device=x.device).view([-1 if i == axis else 1 for i in range(len(places))])
        for axis in range(batch)
    ]
    return x[(*own, *indices.unbind(-1))]


def _scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis, reduction = node.integer("axis", 0), node.text("reduction", "none")
    places = _counted_from_the_front(indices, x.shape[axis])
    return (
        x.scatter(axis, places, updates) if reduction == "none" else x.scatter_reduce(axis, places, updates, _REDUCTIONS[reduction])
    )


def _scatter_nd(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    reduction = node.text("reduction", "none")
    if reduction not in ("none", "add"):
        raise node.refused(f"reduction {reduction}")
    return x.index_put(indices.unbind(-1), updates, accumulate=reduction == "add")


def _grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    mode = node.text("mode", "linear")
    return functional.grid_sample(
        x, grid, _SAMPLED.get(mode, mode), node.text("padding_mode", "zeros"), bool(node.integer("align_corners", 0))
    )


TABLE: Mapping[str, Operator] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "GridSample": _grid_sample,
    "NonZero": lambda node, x: torch.nonzero(x).T,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
