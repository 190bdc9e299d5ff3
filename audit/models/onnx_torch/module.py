"""The module: nodes in the order they run, what does not depend on the image computed once and kept as buffers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from audit.errors import MissingCapability
from audit.models.neurons import Neurons
from audit.models.onnx_torch.gradients import GradientPath, gradient_path
from audit.models.onnx_torch.layers import layers_of
from audit.models.onnx_torch.node import STANDARD, Node, Tensor, read_node, read_tensor
from audit.models.onnx_torch.operators import TABLE, check_known

_OLDEST_OPSET = 7  # before it, arithmetic broadcast in another way
# After a softmax these only move its values about, so the logarithm may be taken before them.
_MOVES = frozenset(("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A node, how many of its outputs are used, and the values that nobody reads after it."""

    node: Node
    used: int
    last: tuple[str, ...]


class OnnxModule(torch.nn.Module):
    """A graph that was converted; build it with `convert`. Rows of the input are images as the graph takes them."""

    def __init__(self, nodes: Sequence[Node], constants: Mapping[str, Tensor], image: str, output: str, *, from_half: bool) -> None:
        super().__init__()
        self._nodes = tuple(nodes)
        self._image = image
        self._output = output
        self.from_half = from_half
        self.gradients: GradientPath = gradient_path(self._nodes, image, output)
        self._layers = layers_of(self._nodes, constants)
        self._steps = _steps(self._nodes, kept={output, *constants})
        self._constants: dict[str, str] = {}
        for name, value in constants.items():
            self._constants[name] = f"constant_{len(self._constants)}"
            self.register_buffer(self._constants[name], value, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """The output for `images`, differentiable."""
        return self.values(images, (self._output,))[self._output]

    def values(self, images: Tensor, names: Collection[str]) -> dict[str, Tensor]:
        """The values called `names` in the graph, for `images`."""
        return {name: value for name, value in self._computed(images) if name in names}

    def neurons(self, images: Tensor) -> Mapping[str, Tensor]:
        """The neurons (n, units) of each layer, by the name of its value in the graph."""
        found = Neurons(len(images))
        for name, value in self._computed(images):
            if name in self._layers:
                found.add(name, value, self._layers[name])
        return found.found

    def _computed(self, images: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Every value of the graph as it is computed, the given ones first."""
        # Half precision is computed in float32.
        images = images.float() if images.dtype in (torch.float16, torch.bfloat16) else images
        given = {self._image: images, **self._values()}
        known: dict[str, Tensor | None] = {**given, "": None}
        yield from given.items()
        for step in self._steps:
            results = {name: value for name, value in zip(step.node.outputs, _run(step, known), strict=False) if name}
            known.update(results)
            yield from results.items()
            for name in step.last:
                known.pop(name, None)

    def in_log_space(self) -> OnnxModule | None:
        """The module with log p for an output, where its last step is a softmax over classes; None where it is not."""
        made_by = {name: place for place, node in enumerate(self._nodes) for name in node.outputs}
        name = self._output
        while name in made_by and self._nodes[made_by[name]].op in _MOVES:
            name = self._nodes[made_by[name]].inputs[0]
        if name not in made_by or self._nodes[made_by[name]].op != "Softmax":
            return None
        nodes = list(self._nodes)
        nodes[made_by[name]] = replace(nodes[made_by[name]], op="LogSoftmax")
        return OnnxModule(nodes, self._values(), self._image, self._output, from_half=self.from_half)

    def _values(self) -> dict[str, Tensor]:
        # `_buffers` follows a move to another device, as references kept here would not.
        return {name: cast("Tensor", self._buffers[buffer]) for name, buffer in self._constants.items()}


def convert(model: Any, *, image: str | None = None, output: str | None = None) -> OnnxModule:
    """Convert the part of an `onnx.ModelProto` that leads from the value `image` to `output`; its first ones if left out.

    Raises:
        MissingCapability: an operator, attribute or type has no conversion; says which.
    """
    from onnx import TensorProto
    from onnx.inliner import inline_local_functions

    if len(model.functions):
        model = inline_local_functions(model)
    graph = model.graph
    opset = max((each.version for each in model.opset_import if each.domain in STANDARD), default=0)
    if opset < _OLDEST_OPSET:
        raise MissingCapability(f"opset {opset} is older than the oldest that has a conversion, {_OLDEST_OPSET}")
    if len(graph.sparse_initializer):
        raise MissingCapability("sparse weights have no conversion")
    weights = {tensor.name: tensor for tensor in graph.initializer}
    image = image or next(value.name for value in graph.input if value.name not in weights)
    output = output or graph.output[0].name
    protos = _leading_to(graph.node, output)
    wanted = {name for proto in protos for name in proto.input}
    check_known(protos)
    nodes = [read_node(proto, opset) for proto in protos]
    constants = {name: read_tensor(tensor) for name, tensor in weights.items() if name in wanted and name != image}
    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    from_half = any(weights[name].data_type in halves for name in constants) or any(
        node.op == "Cast" and node.integer("to", 0) in halves for node in nodes
    )
    left = _fold(nodes, constants)
    read = {output, *(name for node in left for name in node.inputs)}
    return OnnxModule(left, {name: value for name, value in constants.items() if name in read}, image, output, from_half=from_half)


def _leading_to(protos: Sequence[Any], output: str) -> list[Any]:
    """The nodes that `output` depends on, each after those it reads from; not every writer of graphs keeps that order."""
    made_by = {name: place for place, proto in enumerate(protos) for name in proto.output if name}
    ordered: list[Any] = []
    seen: set[int] = set()
    open_places = [(made_by[output], False)] if output in made_by else []
    while open_places:
        place, inputs_done = open_places.pop()
        if inputs_done:
            ordered.append(protos[place])
        elif place not in seen:
            seen.add(place)
            open_places.append((place, True))
            open_places.extend((made_by[name], False) for name in protos[place].input if name in made_by)
    return ordered


def _fold(nodes: Iterable[Node], constants: dict[str, Tensor]) -> list[Node]:
    """Run every node whose inputs are known into `constants`, and give back the others."""
    left = []
    with torch.no_grad():
        for node in nodes:
            if all(name == "" or name in constants for name in node.inputs):
                step = _Step(node=node, used=1, last=())
                constants.update(zip(node.outputs, _run(step, {**constants, "": None}), strict=False))
            else:
                left.append(node)
    return left


def _steps(nodes: Sequence[Node], kept: Collection[str]) -> tuple[_Step, ...]:
    """The nodes with what may be forgotten after each."""
    read = {name for node in nodes for name in node.inputs} | set(kept)
    steps: list[_Step] = []
    later = set(kept)
    for node in reversed(nodes):
        names = {*node.inputs, *node.outputs} - {""}
        used = max((i + 1 for i, name in enumerate(node.outputs) if name in read), default=1)
        steps.append(_Step(node=node, used=used, last=tuple(sorted(names - later))))
        later |= names
    return tuple(reversed(steps))


def _run(step: _Step, known: Mapping[str, Tensor | None]) -> tuple[Tensor, ...]:
    node = step.node
    result = TABLE[node.op](node, *(known[name] for name in node.inputs))
    results = result if isinstance(result, tuple) else (result,)
    if step.used > len(results):
        raise node.refused(f"{step.used} outputs")
    return results
