"""Products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from audit.models.onnx_torch.node import Node, Operator, Tensor


def _gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    product = (a.T if node.integer("transA", 0) else a) @ (b.T if node.integer("transB", 0) else b)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if alpha != 1:
        product = alpha * product
    return product if c is None else product + (c if beta == 1 else beta * c)


def _triangle(node: Node, x: Tensor, offset: Tensor | None = None) -> Tensor:
    diagonal = 0 if offset is None else int(offset)
    return torch.triu(x, diagonal) if node.integer("upper", 1) else torch.tril(x, diagonal)


def _attention(node: Node, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *more: Tensor | None) -> Tensor:
    windowed = max(node.integer("left_window_size", -1), node.integer("right_window_size", -1)) >= 0
    if any(extra is not None for extra in more) or node.number("softcap", 0.0) or windowed:
        raise node.refused("a cache, a window or a soft cap")
    flat = query.ndim == 3
    if flat:
        heads, shared = node.integer("q_num_heads", 1), node.integer("kv_num_heads", 1)
        query = _by_head(query, heads)
        key, value = (_by_head(each, shared) for each in (key, value))
    if node.integer("is_causal", 0):
        past = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
        future = torch.zeros_like(past, dtype=query.dtype).masked_fill(~past, -torch.inf)
        mask = future if mask is None else torch.where(past, mask, False) if mask.dtype == torch.bool else mask + future
    scale = node.attributes.get("scale")
    y = functional.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1])
    return y.transpose(1, 2).flatten(2) if flat else y


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


TABLE: Mapping[str, Operator] = {
    "Attention": _attention,
    "Einsum": lambda node, *values: torch.einsum(node.text("equation", ""), *values),
    "Gemm": _gemm,
    "MatMul": lambda node, x, y: torch.matmul(x, y),
    "Trilu": _triangle,
}
