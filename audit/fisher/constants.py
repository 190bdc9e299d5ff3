"""Lipschitz constants, in L2, of single layers in eval mode."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from audit.errors import MissingCapability

Shape: TypeAlias = "tuple[int, ...]"

# Above this many weights a norm that is no eigenvalue is taken.
_MOST_EXACT = 2**23
# Channels up to which a convolution's spectrum is evaluated on a grid of frequencies.
_MOST_ON_GRID = 64
_GRID_PER_TAP = 8
# For rounding.
_SLACK = 1 + 1e-9


def of_layer(module: nn.Module, shape: Shape | None) -> float:
    """The constant of one layer that receives `shape` (without the batch).

    Raises:
        MissingCapability: the layer is not known, or is used in a way that is not.
    """
    kind = type(module)
    if isinstance(module, nn.Linear) and kind in (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return spectral_norm(module.weight)
    if isinstance(module, nn.Conv2d) and kind is nn.Conv2d:
        return _convolution(module)
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and kind in (nn.BatchNorm1d, nn.BatchNorm2d):
        return _batch_norm(module)
    if isinstance(module, nn.LayerNorm) and kind is nn.LayerNorm:
        return _largest(module.weight) / math.sqrt(module.eps)
    if isinstance(module, nn.LeakyReLU) and kind is nn.LeakyReLU:
        return max(1.0, abs(module.negative_slope))
    if isinstance(module, nn.ELU) and kind is nn.ELU:
        return max(1.0, abs(module.alpha))
    if isinstance(module, nn.MaxPool2d) and kind is nn.MaxPool2d:
        return _max_pool(module)
    if isinstance(module, nn.AvgPool2d) and kind is nn.AvgPool2d:
        return _average_pool(module, _picture(shape))
    if isinstance(module, nn.AdaptiveAvgPool2d) and kind is nn.AdaptiveAvgPool2d:
        return _adaptive_pool(module, _picture(shape))
    raise MissingCapability("is of a kind whose constant is not known here")


def spectral_norm(weight: torch.Tensor) -> float:
    """The largest singular value of a matrix, or a bound on it where the matrix is very large."""
    matrix = weight.detach().double().flatten(1)
    if matrix.numel() > _MOST_EXACT:
        return float(torch.minimum(matrix.norm(), (matrix.abs().sum(0).max() * matrix.abs().sum(1).max()).sqrt()))
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return math.sqrt(max(float(torch.linalg.eigvalsh(product)[-1]), 0.0)) * _SLACK


def _convolution(layer: nn.Conv2d) -> float:
    if layer.padding_mode not in {"zeros", "circular"}:
        raise MissingCapability(f"pads by {layer.padding_mode}, which repeats pixels")
    weight = layer.weight.detach().double()
    taps = weight.shape[2:]
    # Groups work on channels of their own: the norm is that of the largest.
    return max(_group(part, taps, layer) for part in weight.chunk(layer.groups, 0))


def _group(weight: torch.Tensor, taps: torch.Size, layer: nn.Conv2d) -> float:
    """Of a kernel (o, i, kh, kw): the least of the unfolding bounds, and of its spectrum on a grid where that is affordable."""
    if all(size <= step for size, step in zip(taps, layer.stride, strict=True)) and layer.dilation == (1, 1):
        # Windows do not overlap: one matrix for each.
        return spectral_norm(weight.flatten(1))
    out, into, height, width = weight.shape
    unfolded = (
        weight.reshape(out, -1),
        weight.permute(1, 0, 2, 3).reshape(into, -1),
        weight.permute(0, 2, 1, 3).reshape(out * height, -1),
        weight.permute(0, 3, 1, 2).reshape(out * width, -1),
    )
    found = math.sqrt(height * width) * min(spectral_norm(each) for each in unfolded)
    if max(out, into) <= _MOST_ON_GRID:
        points = _GRID_PER_TAP * max(height, width)
        spectrum = torch.fft.fft2(weight, s=(points, points)).permute(2, 3, 0, 1)
        on_grid = float(torch.linalg.matrix_norm(spectrum, 2).max())
        # Between N points a trigonometric polynomial of degree D is at most 1 / cos(pi D / N) larger (Ehlich and Zeller 1964).
        between = math.prod(1 / math.cos(math.pi * (size // 2) / points) for size in (height, width))
        found = min(found, on_grid * between * _SLACK)
    return found


def _batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d) -> float:
    if layer.running_var is None:
        raise MissingCapability("normalises by the batch it is in")
    scale = 1 / (layer.running_var.double() + layer.eps).sqrt()
    if layer.weight is not None:
        scale = scale * layer.weight.detach().double().abs()
    return float(scale.max())


def _largest(weight: torch.Tensor | None) -> float:
    return 1.0 if weight is None else float(weight.detach().abs().max())


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _picture(shape: Shape | None) -> tuple[int, int]:
    if shape is None or len(shape) < 2:
        raise MissingCapability("is not given a picture, or is not called at all")
    return shape[-2], shape[-1]


def _max_pool(layer: nn.MaxPool2d) -> float:
    """The root of how many windows a value can be in."""
    size, step, apart = _pair(layer.kernel_size), _pair(layer.stride), _pair(layer.dilation)
    windows = [k if d > 1 else -(-k // s) for k, s, d in zip(size, step, apart, strict=True)]
    return math.sqrt(math.prod(windows))


def _average_pool(layer: nn.AvgPool2d, picture: tuple[int, int]) -> float:
    if layer.ceil_mode or layer.divisor_override is not None or (not layer.count_include_pad and layer.padding not in (0, (0, 0))):
        raise MissingCapability("averages over windows of several sizes")
    axes = zip(picture, _pair(layer.kernel_size), _pair(layer.stride), _pair(layer.padding), strict=True)
    return math.prod(
        _norm_of_means([(i * s - p, i * s - p + k) for i in range((n + 2 * p - k) // s + 1)], n) for n, k, s, p in axes
    )


def _adaptive_pool(layer: nn.AdaptiveAvgPool2d, picture: tuple[int, int]) -> float:
    wanted = layer.output_size if isinstance(layer.output_size, tuple) else (layer.output_size, layer.output_size)
    found = 1.0
    for size, given in zip(picture, wanted, strict=True):
        bins = size if given is None else given
        found *= _norm_of_means([(i * size // bins, -(-(i + 1) * size // bins)) for i in range(bins)], size)
    return found


def _norm_of_means(windows: list[tuple[int, int]], size: int) -> float:
    """The spectral norm of taking the mean over each [start, stop) of `size` values, zeros outside; of one axis."""
    matrix = np.zeros((len(windows), size))
    for row, (start, stop) in zip(matrix, windows, strict=True):
        row[max(start, 0) : stop] = 1 / (stop - start)
    return float(np.linalg.norm(matrix, 2)) * _SLACK


def log_attention(attention: nn.MultiheadAttention, norm: nn.LayerNorm, tokens: int) -> float:
    """The logarithm of the constant of self-attention on n `tokens` that a layer normalisation has kept within a radius R.

    A head with A = Wq^T Wk / sqrt(dh): |Wv| (sqrt n + R (1 + sqrt n) (R |A| + |Wq^T bk| + |Wk^T bq|)); heads combine as
    sqrt(sum L_h^2) |Wo|.
    """
    width, heads = attention.embed_dim, attention.num_heads
    if attention.in_proj_weight is None or attention.bias_k is not None or attention.add_zero_attn:
        raise MissingCapability("no architecture bound: an attention with separate projections or added keys is not known here")
    radius = _largest(norm.weight) * math.sqrt(width)
    radius += 0.0 if norm.bias is None else float(norm.bias.detach().double().norm())
    queries, keys, values = attention.in_proj_weight.detach().double().chunk(3, 0)
    biases = attention.in_proj_bias
    zeros = queries.new_zeros(3 * width)
    query_bias, key_bias, _ = (zeros if biases is None else biases.detach().double()).chunk(3, 0)
    head, root = width // heads, math.sqrt(tokens)
    total = 0.0
    for i in range(heads):
        rows = slice(i * head, (i + 1) * head)
        q, k = queries[rows], keys[rows]
        inner = spectral_norm(q.T @ k) / math.sqrt(head)
        offset = float((q.T @ key_bias[rows]).norm() + (k.T @ query_bias[rows]).norm()) / math.sqrt(head)
        total += (spectral_norm(values[rows]) * (root + radius * (1 + root) * (radius * inner + offset))) ** 2
    return 0.5 * math.log(total) + math.log(spectral_norm(attention.out_proj.weight)) if total > 0 else -math.inf
