"""Activation functions, and the softmax in its two meanings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from audit.models.onnx_torch.elementwise import of_one
from audit.models.onnx_torch.node import Node, Operator, Tensor

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _softmax(function: Callable[..., Tensor]) -> Operator:
    def apply(node: Node, x: Tensor) -> Tensor:
        if node.opset >= 13:
            return function(x, dim=node.integer("axis", -1))
        # Up to opset 12 it runs over all axes from `axis` on, as if they were one.
        axis = node.integer("axis", 1) % max(x.ndim, 1)
        return function(x.flatten(axis), dim=axis).reshape(x.shape)

    return apply


def _hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    return torch.clamp(x * node.number("alpha", 0.2) + node.number("beta", 0.5), 0, 1)


def _gelu(node: Node, x: Tensor) -> Tensor:
    return functional.gelu(x, approximate=node.text("approximate", "none"))


def _selu(node: Node, x: Tensor) -> Tensor:
    return node.number("gamma", _SELU_GAMMA) * functional.elu(x, node.number("alpha", _SELU_ALPHA))


def _thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return torch.where(x > node.number("alpha", 1.0), x, torch.zeros_like(x))


def _shrink(node: Node, x: Tensor) -> Tensor:
    threshold, bias = node.number("lambd", 0.5), node.number("bias", 0.0)
    inside = torch.zeros_like(x)
    return torch.where(x < -threshold, x + bias, torch.where(x > threshold, x - bias, inside))


TABLE: Mapping[str, Operator] = {
    "Celu": lambda node, x: functional.celu(x, node.number("alpha", 1.0)),
    "Elu": lambda node, x: functional.elu(x, node.number("alpha", 1.0)),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": of_one(functional.hardswish),
    "LeakyRelu": lambda node, x: functional.leaky_relu(x, node.number("alpha", 0.01)),
    "LogSoftmax": _softmax(torch.log_softmax),
    "Mish": of_one(functional.mish),
    "PRelu": lambda node, x, slope: torch.where(x >= 0, x, x * slope),
    "Relu": of_one(torch.relu),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": of_one(torch.sigmoid),
    "Softmax": _softmax(torch.softmax),
    "Softplus": of_one(functional.softplus),
    "Softsign": of_one(functional.softsign),
    "Swish": lambda node, x: x * torch.sigmoid(node.number("alpha", 1.0) * x),
    "Tanh": of_one(torch.tanh),
    "ThresholdedRelu": _thresholded_relu,
}
