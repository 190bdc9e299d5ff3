"""Operators that draw values together along axes: sums and the like, the largest ones, running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from audit.models.onnx_torch.node import Node, Operator, Tensor, whole

Axes = tuple[int, ...]


def _reduction(function: Callable[[Tensor, Axes, bool], Tensor]) -> Operator:
    def apply(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        # An attribute at first; an input from opset 13 (sum) or 18 (the others) on.
        chosen = whole(axes) or node.integers("axes")
        if not chosen:
            if node.integer("noop_with_empty_axes", 0):
                return x
            chosen = tuple(range(x.ndim))
        return function(x, chosen, bool(node.integer("keepdims", 1)))

    return apply


def _product(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def _mean(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return x.mean(axes, keep) if x.is_floating_point() else (x.double().mean(axes, keep)).to(x.dtype)


def _sum(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    return x.sum(axes, keep, dtype=x.dtype)


def _argument(function: Callable[[Tensor, int, bool], Tensor]) -> Operator:
    def apply(node: Node, x: Tensor) -> Tensor:
        axis, keep = node.integer("axis", 0), bool(node.integer("keepdims", 1))
        if node.integer("select_last_index", 0):
            return x.shape[axis] - 1 - function(x.flip(axis), axis, keep)
        return function(x, axis, keep)

    return apply


def _largest(node: Node, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    axis = node.integer("axis", -1)
    # Among equals ONNX takes the first, and only a stable sort does.
    values, indices = torch.sort(x, dim=axis, descending=bool(node.integer("largest", 1)), stable=True)
    return values.narrow(axis, 0, int(count)), indices.narrow(axis, 0, int(count))


def _running_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    along, backwards = int(axis), node.integer("reverse", 0)
    values = x.flip(along) if backwards else x
    sums = values.cumsum(along, dtype=x.dtype)
    if node.integer("exclusive", 0):
        sums = sums - values
    return sums.flip(along) if backwards else sums


TABLE: Mapping[str, Operator] = {
    **{
        name: _reduction(function)
        for name, function in {
            "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
            "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
            "ReduceLogSum": lambda x, axes, keep: _sum(x, axes, keep).log(),
            "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
            "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keep),
            "ReduceMean": _mean,
            "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keep),
            "ReduceProd": _product,
            "ReduceSum": _sum,
            "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
        }.items()
    },
    "ArgMax": _argument(torch.argmax),
    "ArgMin": _argument(torch.argmin),
    "CumSum": _running_sum,
    "TopK": _largest,
}
