"""What a model is, read from its files and, where that runs no code of its own, from the opened model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from audit.models.loading import Opened
from audit.models.located import Located
from audit.models.mlmodel import Port, Route
from audit.models.onnx_content import read_graph
from audit.text import printable

if TYPE_CHECKING:
    from onnx import ValueInfoProto

FORMATS = {
    Route.ONNX: "ONNX",
    Route.PT2: "PyTorch exported program (pt2)",
    Route.PICKLE: "PyTorch module (pickle)",
    Route.PYFUNC: "Python function (pyfunc)",
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a model. None and empty mean that the files do not say, or that saying it needs code of the model.

    `versions` are words such as "IR 10"; `parameters` and `parameter_bytes` count the trained values.
    """

    format: str
    versions: tuple[str, ...] = ()
    producer: str | None = None
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    parameters: int | None = None
    parameter_bytes: int | None = None
    requirements: tuple[str, ...] = ()


def describe(found: Located, model: Opened | None) -> Facts:
    """Describe a located model; `model` is the same one opened, None where it could not be.

    Raises:
        ModelError: an ONNX file cannot be read.
    """
    registered = "" if found.fetched is None else ", logged with MLflow"
    kind = f"{FORMATS[found.route]}{registered}"
    if found.route is Route.ONNX:
        return _of_onnx(found.file, kind, found.identity.label)
    signature = {} if found.fetched is None else found.fetched.model.signature
    requirements = () if found.fetched is None else found.fetched.model.requirements
    ports = _of_program(model.network) if model is not None and isinstance(model.network, torch.fx.GraphModule) else None
    inputs, outputs = ports or (signature.get("inputs", ()), signature.get("outputs", ()))
    parameters = None if model is None or model.network is None else list(model.network.parameters())
    return Facts(
        format=kind,
        inputs=inputs,
        outputs=outputs,
        parameters=None if parameters is None else sum(each.numel() for each in parameters),
        parameter_bytes=None if parameters is None else sum(each.numel() * each.element_size() for each in parameters),
        requirements=requirements,
    )


def _of_onnx(path: Path, kind: str, who: str) -> Facts:
    import onnx

    model = read_graph(path, who)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    # Exporters write shapes and axes as initialisers too, always in 64-bit integers.
    elements = {name: math.prod(tensor.dims) for name, tensor in weights.items() if tensor.data_type != onnx.TensorProto.INT64}
    producer = " ".join(filter(None, (model.producer_name, model.producer_version)))
    return Facts(
        format=kind,
        versions=(
            f"IR {model.ir_version}",
            *(f"opset {each.version} of {printable(each.domain or 'ai.onnx', 40)}" for each in model.opset_import),
        ),
        producer=printable(producer, 80) or None,
        inputs=tuple(_port(value) for value in model.graph.input if value.name not in weights),
        outputs=tuple(_port(value) for value in model.graph.output),
        parameters=sum(elements.values()),
        parameter_bytes=sum(count * _item_bytes(weights[name].data_type) for name, count in elements.items()),
    )


def _port(value: ValueInfoProto) -> Port:
    from onnx import TensorProto

    tensor = value.type.tensor_type
    sizes = (size.dim_value if size.HasField("dim_value") else (printable(size.dim_param, 20) or None) for size in tensor.shape.dim)
    # A damaged file may hold a number that stands for no type.
    kinds = {number: name.lower() for name, number in TensorProto.DataType.items()} | {
        TensorProto.FLOAT: "float32",
        TensorProto.DOUBLE: "float64",
    }
    kind = kinds.get(tensor.elem_type, "unknown") if value.type.HasField("tensor_type") else "no tensor"
    return Port(name=printable(value.name, 60), dtype=kind, shape=tuple(sizes) if tensor.HasField("shape") else None)


def _item_bytes(data_type: int) -> int:
    from onnx import helper

    try:
        return int(helper.tensor_dtype_to_np_dtype(data_type).itemsize)
    except (KeyError, ValueError, TypeError):
        return 1


def _of_program(module: torch.fx.GraphModule) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Inputs and outputs of an exported program's graph."""
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    results = next(node for node in nodes if node.op == "output").all_input_nodes
    return _ports_of(inputs), _ports_of(results)


def _ports_of(nodes: Sequence[torch.fx.Node]) -> tuple[Port, ...]:
    values = [(node.name, node.meta.get("val")) for node in nodes]
    return tuple(
        Port(
            name=printable(name, 60),
            dtype=str(value.dtype).removeprefix("torch."),
            shape=tuple(size if isinstance(size, int) else printable(str(size), 20) for size in value.shape),
        )
        for name, value in values
        if isinstance(value, torch.Tensor)
    )
