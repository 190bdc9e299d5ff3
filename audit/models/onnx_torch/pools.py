"""Pools over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from audit.models.onnx_torch.convolutions import CONVOLUTIONS
from audit.models.onnx_torch.node import Node, Operator, Tensor
from audit.models.onnx_torch.windows import Window, window

_MAXIMA: tuple[Callable[..., Tensor], ...] = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
_AVERAGES: tuple[Callable[..., Tensor], ...] = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def _window(node: Node, x: Tensor) -> Window:
    axes = x.ndim - 2
    if not 1 <= axes <= len(_MAXIMA):
        raise node.refused(f"{axes} spatial axes")
    return window(node, x.shape[2:], node.integers("kernel_shape") or (1,) * axes)


def _plain(seen: Window) -> bool:
    """Whether torch's pool takes this padding itself: it allows half a kernel."""
    return seen.symmetric and all(2 * pad <= kernel for pad, kernel in zip(seen.before, seen.kernel, strict=True))


def _maximum(node: Node, x: Tensor) -> Tensor:
    seen = _window(node, x)
    padding = seen.before
    if not _plain(seen):
        x, padding = functional.pad(x, seen.padding(), value=-math.inf), (0,) * len(seen.kernel)
    return _MAXIMA[x.ndim - 3](x, seen.kernel, seen.strides, padding, seen.dilations)


def _average(node: Node, x: Tensor) -> Tensor:
    seen = _window(node, x)
    counts_padding = bool(node.integer("count_include_pad", 0))
    if _plain(seen) and set(seen.dilations) == {1}:
        return _AVERAGES[x.ndim - 3](x, seen.kernel, seen.strides, seen.before, False, counts_padding)
    # What ceil mode adds is never counted.
    inside = functional.pad(torch.ones_like(x[:1, :1]), seen.padding(extra=False), value=float(counts_padding))
    behind = [side for extra in reversed(seen.extra) for side in (0, extra)]
    return _sums(functional.pad(x, seen.padding()), seen) / _sums(functional.pad(inside, behind), seen)


def _sums(x: Tensor, seen: Window) -> Tensor:
    """The sum in every window, by a convolution with ones: the only pool of torch's with dilation is the maximum."""
    channels = x.shape[1]
    ones = x.new_ones(channels, 1, *seen.kernel)
    return CONVOLUTIONS[x.ndim - 3](x, ones, None, seen.strides, 0, seen.dilations, channels)


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


TABLE: Mapping[str, Operator] = {
    "AveragePool": _average,
    "GlobalAveragePool": lambda node, x: x.mean(_spatial(x), keepdim=True),
    "GlobalMaxPool": lambda node, x: x.amax(_spatial(x), keepdim=True),
    "MaxPool": _maximum,
}
