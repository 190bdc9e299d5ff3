"""The layers of torch models: leaf modules of an ordinary module, operators in the graph of an exported program.

Of a module these are the leaves that have parameters or are an activation such as ReLU, by their names in it; what a forward method
computes with functions is not seen. Of a graph they are the operators that read weights and the activations, by their names there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from audit.models.neurons import Neurons, Reader

_FEATURES_SECOND = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
_FEATURES_LAST = (nn.Linear, nn.Bilinear, nn.Embedding, nn.RNNBase, nn.MultiheadAttention)
# A subclass of these may normalise channels that come second, as those of convolutional networks do.
_EXACTLY_LAST = (nn.LayerNorm, nn.RMSNorm)
_ACTIVATIONS = (
    *(nn.CELU, nn.ELU, nn.GELU, nn.GLU, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid, nn.Mish),
    *(nn.ReLU, nn.RReLU, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold),
)

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution")
_NORMALISATIONS = ("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "group_norm", "native_group_norm")
_PRODUCTS = ("linear", "addmm", "mm", "matmul", "bmm", "baddbmm", "layer_norm", "native_layer_norm", "rms_norm", "embedding")
_WEIGHTED: Mapping[str, int] = {
    **dict.fromkeys((*_CONVOLUTIONS, *_NORMALISATIONS, "instance_norm"), 1),
    **dict.fromkeys(_PRODUCTS, -1),
}
_ELEMENTWISE = frozenset(
    (
        *(
            "celu",
            "elu",
            "gelu",
            "glu",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "leaky_relu",
            "log_sigmoid",
            "mish",
            "prelu",
            "relu",
        ),
        *("relu6", "rrelu", "selu", "sigmoid", "silu", "softplus", "softsign", "tanh", "threshold"),
    )
)


def reader(network: nn.Module, *, exported: bool) -> Reader:
    """How one pass through the network reads its layers."""
    if exported and isinstance(network, torch.fx.GraphModule):
        return partial(_read_graph, network, _operators(network.graph))
    return partial(_read_module, network, _leaves(network))


def _leaves(network: nn.Module) -> dict[str, tuple[nn.Module, int | None]]:
    """The layers by name, and the axis of their features where it is known."""
    found: dict[str, tuple[nn.Module, int | None]] = {}
    for name, module in network.named_modules():
        # A parametrised layer, as with a weight norm, is still one layer; what computes its weights is none.
        inner = [child for child, _ in module.named_children() if child != "parametrizations"]
        whole = not inner or isinstance(module, nn.MultiheadAttention)
        inside = "parametrizations" in name.split(".") or any(
            isinstance(layer, nn.MultiheadAttention) and name.startswith(f"{outer}.") for outer, (layer, _) in found.items()
        )
        if whole and not inside and (isinstance(module, _ACTIVATIONS) or any(True for _ in module.parameters())):
            found[name or type(module).__name__] = module, _axis(module)
    return found


def _axis(module: nn.Module) -> int | None:
    if isinstance(module, _FEATURES_SECOND):
        return 1
    return -1 if isinstance(module, _FEATURES_LAST) or type(module) in _EXACTLY_LAST else None


def _read_module(
    network: nn.Module, leaves: Mapping[str, tuple[nn.Module, int | None]], prepared: torch.Tensor
) -> Mapping[str, torch.Tensor]:
    neurons = Neurons(len(prepared))

    def seen(name: str, axis: int | None) -> Callable[[nn.Module, Any, object], None]:
        return lambda _module, _given, value: neurons.add(name, value, axis)

    hooks = [module.register_forward_hook(seen(name, axis)) for name, (module, axis) in leaves.items()]
    try:
        network(prepared)
    finally:
        for hook in hooks:
            hook.remove()
    return neurons.found


def _operators(graph: torch.fx.Graph) -> dict[torch.fx.Node, int | None]:
    """The layers of a graph, and the axis of their features where it is known."""
    found: dict[torch.fx.Node, int | None] = {}
    weights: set[torch.fx.Node] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "get_attr" or (inputs and weights.issuperset(inputs)):
            weights.add(node)
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            name = node.target.overloadpacket.__name__.removesuffix("_")
            if name in _WEIGHTED and not weights.isdisjoint(inputs):
                found[node] = _WEIGHTED[name]
            elif name in _ELEMENTWISE:
                found[node] = None
    return found


class _Watched(torch.fx.Interpreter):
    """Runs a graph node by node and shows the layers' outputs to `neurons`."""

    def __init__(self, module: torch.fx.GraphModule, layers: Mapping[torch.fx.Node, int | None], neurons: Neurons) -> None:
        super().__init__(module)
        self._layers = layers
        self._neurons = neurons

    def run_node(self, n: torch.fx.Node) -> object:
        """See `torch.fx.Interpreter`."""
        value = super().run_node(n)
        if n in self._layers:
            self._neurons.add(n.name, value, self._layers[n])
        return value


def _read_graph(
    network: torch.fx.GraphModule, layers: Mapping[torch.fx.Node, int | None], prepared: torch.Tensor
) -> Mapping[str, torch.Tensor]:
    neurons = Neurons(len(prepared))
    _Watched(network, layers, neurons).run(prepared)
    return neurons.found
