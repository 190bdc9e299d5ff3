"""Normalisations, all as at inference: with stored statistics, or with those of each image by itself."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from audit.models.onnx_torch.node import Node, Operator, Tensor

_EPSILON = 1e-5


def _batch(node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    if node.integer("training_mode", 0):
        raise node.refused("statistics of the batch (training mode)")
    return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, node.number("epsilon", _EPSILON))


def _instance(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    axes = tuple(range(2, x.ndim))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    shape = (1, -1, *(1,) * len(axes))
    return (x - mean) * torch.rsqrt(variance + node.number("epsilon", _EPSILON)) * scale.view(shape) + bias.view(shape)


def _group(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups, channels = node.integer("num_groups", 1), x.shape[1]
    if node.opset < 21:  # one value per group, not per channel
        scale, bias = scale.repeat_interleave(channels // groups), bias.repeat_interleave(channels // groups)
    return functional.group_norm(x, groups, scale, bias, node.number("epsilon", _EPSILON))


def _layer(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    shape = x.shape[node.integer("axis", -1) % x.ndim :]
    shift = None if bias is None else bias.expand(shape)
    return functional.layer_norm(x, shape, scale.expand(shape), shift, node.number("epsilon", _EPSILON))


def _root_mean_square(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    axes = tuple(range(node.integer("axis", -1) % x.ndim, x.ndim))
    return x * torch.rsqrt((x * x).mean(axes, keepdim=True) + node.number("epsilon", _EPSILON)) * scale


def _local_response(node: Node, x: Tensor) -> Tensor:
    size = node.integer("size", 1)
    around = [0, 0] * (x.ndim - 2) + [(size - 1) // 2, size // 2]
    sums = functional.pad(x * x, around).unfold(1, size, 1).sum(-1)
    return x / (node.number("bias", 1.0) + node.number("alpha", 1e-4) / size * sums) ** node.number("beta", 0.75)


def _unit_length(node: Node, x: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(x, node.integer("p", 2), node.integer("axis", -1), keepdim=True)
    return torch.where(length == 0, torch.zeros_like(x), x / length)


def _mean_variance(node: Node, x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, node.integers("axes") or (0, 2, 3), correction=0, keepdim=True)
    return (x - mean) / (variance.sqrt() + 1e-9)


def _dropout(node: Node, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> tuple[Tensor, Tensor]:
    if training is not None and bool(training):
        raise node.refused("random choice (training mode)")
    return x, torch.ones_like(x, dtype=torch.bool)


TABLE: Mapping[str, Operator] = {
    "BatchNormalization": _batch,
    "Dropout": _dropout,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LayerNormalization": _layer,
    "LpNormalization": _unit_length,
    "LRN": _local_response,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _root_mean_square,
}
