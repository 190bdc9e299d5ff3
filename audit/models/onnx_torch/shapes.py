"""Operators that move values about without changing them, and those that compute shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch.nn import functional

from audit.models.onnx_torch.node import Node, Operator, Tensor, whole


def _reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    sizes = whole(shape) or ()
    if not node.integer("allowzero", 0):
        sizes = tuple(x.shape[i] if size == 0 else size for i, size in enumerate(sizes))
    return x.reshape(sizes)


def _flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.integer("axis", 1)
    return x.reshape(math.prod(x.shape[: axis if axis >= 0 else axis + x.ndim]), -1)


def _transpose(node: Node, x: Tensor) -> Tensor:
    return x.permute(node.integers("perm") or tuple(reversed(range(x.ndim))))


def _squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = whole(axes) or node.integers("axes")
    return x.squeeze() if chosen is None else x.squeeze(chosen)


def _unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = whole(axes) or node.integers("axes") or ()
    for axis in sorted(axis % (x.ndim + len(chosen)) for axis in chosen):
        x = x.unsqueeze(axis)
    return x


def _expand(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(np.broadcast_shapes(x.shape, whole(shape) or ()))


def _split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = node.integer("axis", 0)
    chosen = whole(sizes) or node.integers("split")
    if chosen is not None:
        return torch.split(x, list(chosen), axis)
    return torch.split(x, -(-x.shape[axis] // node.integer("num_outputs", len(node.outputs))), axis)


def _slice(
    node: Node,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    # Up to opset 9 these are attributes.
    begin = (whole(starts) if starts is not None else node.integers("starts")) or ()
    end = (whole(ends) if ends is not None else node.integers("ends")) or ()
    along = whole(axes) or node.integers("axes") or tuple(range(len(begin)))
    by = whole(steps) or (1,) * len(begin)
    for first, last, axis, step in zip(begin, end, along, by, strict=True):
        taken = range(*slice(first, last, step).indices(x.shape[axis]))
        if step > 0:
            x = x[(slice(None),) * (axis % x.ndim) + (slice(taken.start, taken.stop, step),)]
        else:
            x = x.index_select(axis, torch.tensor(taken, dtype=torch.int64, device=x.device))
    return x


def _pad(node: Node, x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
    # Up to opset 10 these are attributes.
    amounts = (whole(pads) if pads is not None else node.integers("pads")) or ()
    along = whole(axes) or tuple(range(len(amounts) // 2))
    sides = {axis % x.ndim: (amounts[i], amounts[i + len(along)]) for i, axis in enumerate(along)}
    mode = node.text("mode", "constant")
    if mode == "constant":
        fill = node.attributes.get("value", 0) if value is None else value.item()
        return functional.pad(x, [side for axis in reversed(range(x.ndim)) for side in sides.get(axis, (0, 0))], value=fill)
    for axis, (before, after) in sides.items():
        size = x.shape[axis]
        places = torch.arange(-before, size + after, device=x.device)
        if mode == "edge":
            places = places.clamp(0, size - 1)
        elif mode == "wrap":
            places = places % size
        elif mode == "reflect":
            period = max(2 * (size - 1), 1)
            places = places % period
            places = torch.minimum(places, period - places) if size > 1 else torch.zeros_like(places)
        else:
            raise node.refused(f"mode {mode}")
        x = x.index_select(axis, places)
    return x


def _shape(node: Node, x: Tensor) -> Tensor:
    sizes = list(x.shape)[node.integer("start", 0) : node.attributes.get("end")]
    return torch.tensor(sizes, dtype=torch.int64, device=x.device)


def _constant(node: Node) -> Tensor:
    (value,) = node.attributes.values()
    if isinstance(value, Tensor):
        return value
    whole_numbers = isinstance(value, int) or (not isinstance(value, float) and all(isinstance(each, int) for each in value))
    if any(isinstance(each, str | bytes) for each in (value if isinstance(value, list | tuple) else (value,))):
        raise node.refused("text")
    return torch.tensor(value, dtype=torch.int64 if whole_numbers else torch.float32)


def _filled(node: Node, shape: Tensor) -> Tensor:
    value = node.attributes.get("value")
    fill = torch.zeros(1) if value is None else value
    return fill.to(shape.device).reshape(()).expand(whole(shape) or ()).clone()


def _range(node: Node, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    return torch.arange(start.item(), limit.item(), step.item(), dtype=start.dtype, device=start.device)


def _depth_to_space(node: Node, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    size = node.integer("blocksize", 1)
    if node.text("mode", "DCR") == "DCR":
        y = x.reshape(n, size, size, c // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // size**2, size, size, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // size**2, h * size, w * size)


def _space_to_depth(node: Node, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    size = node.integer("blocksize", 1)
    y = x.reshape(n, c, h // size, size, w // size, size)
    y = y.permute(0, 3, 5, 1, 2, 4) if node.text("mode", "DCR") == "DCR" else y.permute(0, 1, 3, 5, 2, 4)
    return y.reshape(n, c * size**2, h // size, w // size)


TABLE: Mapping[str, Operator] = {
    "Concat": lambda node, *values: torch.cat(values, node.integer("axis", 1)),
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda node, x: torch.tensor(x.numel(), device=x.device),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": lambda node, x, repeats: x.repeat(whole(repeats) or ()),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
