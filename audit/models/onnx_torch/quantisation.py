"""Rounding to 8-bit integers and back. Forward it is exact; rounding has no useful gradient, which `gradients` names."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from audit.models.onnx_torch.node import Node, Operator, Tensor, torch_dtype


def _quantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    stated = node.integer("output_dtype", 0)
    dtype = zero.dtype if zero is not None else torch_dtype(stated) if stated else torch.uint8
    if dtype not in (torch.uint8, torch.int8):
        raise node.refused("integers of other than 8 bits")
    limits = torch.iinfo(dtype)
    steps = torch.round(x / _along(node, x, scale))
    if zero is not None:
        steps = steps + _along(node, x, zero).to(x.dtype)
    return steps.clamp(limits.min, limits.max).to(dtype)


def _dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    values = x.to(scale.dtype)
    if zero is not None:
        values = values - _along(node, x, zero).to(scale.dtype)
    return values * _along(node, x, scale)


def _along(node: Node, x: Tensor, values: Tensor) -> Tensor:
    """One value for all, or one per slice of the node's axis, in a shape that fits `x`."""
    if node.integer("block_size", 0):
        raise node.refused("blocks")
    if values.numel() == 1:
        return values.reshape(())
    axis = node.integer("axis", 1) % x.ndim
    return values.view([-1 if i == axis else 1 for i in range(x.ndim)])


TABLE: Mapping[str, Operator] = {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
