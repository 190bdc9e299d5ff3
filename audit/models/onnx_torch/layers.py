"""The layers of a converted graph: values made by nodes that read weights, and by activations.

A sum with a constant right after a matrix product is that layer's bias, so the sum stands for both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

from audit.models.onnx_torch.node import Node

# Where the features of a weighted layer's output are.
_WEIGHTED = {
    **dict.fromkeys(("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization"), 1),
    **dict.fromkeys(("Gemm", "MatMul", "LayerNormalization", "RMSNormalization"), -1),
}
_ACTIVATIONS = frozenset(
    (
        *("Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu", "Selu", "Sigmoid"),
        *("Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu"),
    )
)


def layers_of(nodes: Sequence[Node], constants: Container[str]) -> dict[str, int | None]:
    """The values that are layers' outputs, each with the axis of its features, None where it is that of its input.

    Args:
        nodes: those that depend on the image, in the order they run.
        constants: the names of the values that do not.
    """
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for name in node.inputs:
            readers[name].append(node)
    found: dict[str, int | None] = {}
    for node in nodes:
        if node.op in _ACTIVATIONS:
            found[node.outputs[0]] = None
        elif node.op in _WEIGHTED and any(name in constants for name in node.inputs if name):
            name = node.outputs[0]
            after = readers[name]
            biased = node.op == "MatMul" and len(after) == 1 and after[0].op == "Add"
            if biased and any(each in constants for each in after[0].inputs):
                name = after[0].outputs[0]
            found[name] = _WEIGHTED[node.op]
    return found
