"""Operators that work value by value: arithmetic, comparisons, logic, choice and change of type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch

from audit.models.onnx_torch.node import Node, Operator, Tensor, torch_dtype


def of_one(function: Callable[[Tensor], Tensor]) -> Operator:
    """An operator of one input without attributes."""
    return lambda node, x: function(x)


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return lambda node, x, y: function(x, y)


def _of_many(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return lambda node, *values: reduce(function, values)


def _divide(x: Tensor, y: Tensor) -> Tensor:
    whole = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc") if whole else x / y


def _modulo(node: Node, x: Tensor, y: Tensor) -> Tensor:
    return torch.fmod(x, y) if node.integer("fmod", 0) else torch.remainder(x, y)


def _mean(node: Node, *values: Tensor) -> Tensor:
    return reduce(torch.add, values) / len(values)


def _clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    # Up to opset 10 the bounds are attributes.
    bounds: list[Any] = [
        node.attributes.get(name) if bound is None else bound if bound.requires_grad else bound.item()
        for name, bound in (("min", low), ("max", high))
    ]
    return x if bounds == [None, None] else torch.clamp(x, *bounds)


def _cast(node: Node, x: Tensor) -> Tensor:
    return x.to(torch_dtype(node.integer("to", 0)))


def _is_infinite(node: Node, x: Tensor) -> Tensor:
    positive = torch.isposinf(x) if node.integer("detect_positive", 1) else torch.zeros_like(x, dtype=torch.bool)
    return positive | torch.isneginf(x) if node.integer("detect_negative", 1) else positive


_ONE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
}
_TWO: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "Div": _divide,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Pow": lambda x, y: torch.pow(x, y).to(x.dtype),
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}
_MANY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"Max": torch.maximum, "Min": torch.minimum, "Sum": torch.add}

TABLE: Mapping[str, Operator] = {
    **{name: of_one(function) for name, function in _ONE.items()},
    **{name: _of_two(function) for name, function in _TWO.items()},
    **{name: _of_many(function) for name, function in _MANY.items()},
    "Cast": _cast,
    "CastLike": lambda node, x, like: x.to(like.dtype),
    "Clip": _clip,
    "Identity": lambda node, x: x,
    "IsInf": _is_infinite,
    "Mean": _mean,
    "Mod": _modulo,
    "Where": lambda node, condition, x, y: torch.where(condition, x, y),
}
