"""Layers that were left in training mode when a model was exported: an exported graph refuses `eval()`, so they stay live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from audit.models.onnx_content import constants
from audit.text import printable

if TYPE_CHECKING:
    from onnx import ModelProto

_SHOWN = 3
_RANDOM_OPERATORS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def live_layers(module: torch.nn.Module) -> tuple[str, ...]:
    """Name the live dropout and batch normalisation in an exported program's module; empty for any other module."""
    if not isinstance(module, torch.fx.GraphModule):
        return ()
    random, batch = [], []
    for node in module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        given = _arguments(node, node.target)
        training = given.get("train", given.get("training"))
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            # Dropout says whether it trains, attention how much it drops; anything else with that tag always draws.
            if given.get("dropout_p", training is not False) and given.get("p", 1) != 0:
                random.append(_place(node))
        elif "batch_norm" in node.target.overloadpacket.__name__ and training is not False:
            batch.append(_place(node))
    return tuple(_sentences(random, batch))


def live_nodes(model: ModelProto) -> tuple[str, ...]:
    """Name the live dropout, batch normalisation and random operators in an ONNX graph."""
    known = constants(model.graph)
    random, batch = [], []
    for node in model.graph.node:
        place = printable(node.name or node.output[0], 60)
        if node.op_type in _RANDOM_OPERATORS:
            random.append(place)
        elif node.op_type == "Dropout" and len(node.input) == 3 and node.input[2] in known:
            flag = known[node.input[2]]
            # A boolean is stored in either of two fields.
            if any(flag.int32_data) or any(flag.raw_data):
                random.append(place)
        elif node.op_type == "BatchNormalization" and any(a.name == "training_mode" and a.i for a in node.attribute):
            batch.append(place)
    return tuple(_sentences(random, batch))


def _arguments(node: torch.fx.Node, target: torch._ops.OpOverload) -> dict[str, object]:
    """The operator's arguments by name, those left out with their defaults."""
    declared = target._schema.arguments
    given = {argument.name: argument.default_value for argument in declared if argument.has_default_value()}
    return {**given, **dict(zip((argument.name for argument in declared), node.args, strict=False)), **node.kwargs}


def _place(node: torch.fx.Node) -> str:
    """The layer's name in the module that was exported, or the node's own."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return printable(str(stack[-1][0]) if stack and stack[-1][0] else node.name, 60)


def _sentences(random: list[str], batch: list[str]) -> Iterator[str]:
    if random:
        yield (
            f"The exported graph is random at {_shortened(random)}: dropout was live when it was exported, and every number below "
            "is a draw. Call model.eval() and log or export it again."
        )
    if batch:
        yield (
            f"The exported graph normalises with the statistics of the batch at {_shortened(batch)}: it was exported in training "
            "mode, and numbers depend on the order of the data. Call model.eval() and log or export it again."
        )


def _shortened(places: list[str]) -> str:
    more = len(places) - _SHOWN
    return ", ".join(places[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
