"""Convolutions and their transposes over one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch.nn import functional

from audit.models.onnx_torch.node import Node, Operator, Tensor
from audit.models.onnx_torch.windows import window

CONVOLUTIONS: tuple[Callable[..., Tensor], ...] = (functional.conv1d, functional.conv2d, functional.conv3d)
_TRANSPOSED: tuple[Callable[..., Tensor], ...] = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


def _convolution(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = _axes(node, weight)
    seen = window(node, x.shape[2:], weight.shape[2:])
    padding = seen.before
    if not seen.symmetric:
        x, padding = functional.pad(x, seen.padding()), (0,) * axes
    return CONVOLUTIONS[axes - 1](x, weight, bias, seen.strides, padding, seen.dilations, node.integer("group", 1))


def _transposed(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = _axes(node, weight)
    strides, dilations = node.integers("strides") or (1,) * axes, node.integers("dilations") or (1,) * axes
    added = node.integers("output_padding") or (0,) * axes
    full = [(x.shape[2 + i] - 1) * strides[i] + (weight.shape[2 + i] - 1) * dilations[i] + 1 for i in range(axes)]
    auto = node.text("auto_pad", "NOTSET")
    wanted = node.integers("output_shape")
    if wanted is None and auto.startswith("SAME"):
        wanted = tuple(x.shape[2 + i] * strides[i] for i in range(axes))
    if wanted is None:
        pads = (node.integers("pads") if auto == "NOTSET" else None) or (0,) * (2 * axes)
        before, after = pads[:axes], pads[axes:]
    else:
        total = [full[i] + added[i] - wanted[-axes + i] for i in range(axes)]
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        before, after = (less, more) if auto == "SAME_UPPER" else (more, less)
    y = _TRANSPOSED[axes - 1](x, weight, None, strides, 0, 0, node.integer("group", 1), dilations)
    # Cut at both ends, or grown by values that no input reaches.
    y = functional.pad(y, [side for i in reversed(range(axes)) for side in (-before[i], added[i] - after[i])])
    return y if bias is None else y + bias.view(1, -1, *(1,) * axes)


def _axes(node: Node, weight: Tensor) -> int:
    if not 1 <= weight.ndim - 2 <= len(CONVOLUTIONS):
        raise node.refused(f"{weight.ndim - 2} spatial axes")
    return weight.ndim - 2


TABLE: Mapping[str, Operator] = {"Conv": _convolution, "ConvTranspose": _transposed}
