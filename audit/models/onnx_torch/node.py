"""One node of a graph: its operator, the names it reads and writes, and its attributes as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from audit.errors import MissingCapability
from audit.text import printable

Tensor: TypeAlias = torch.Tensor
# The node, then its inputs in order, None for one that is left out -> its outputs.
Operator: TypeAlias = Callable[..., Tensor | tuple[Tensor, ...]]

STANDARD = ("", "ai.onnx")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node as an operator sees it. `inputs` and `outputs` are names of values, "" for one that is left out."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers; None where the attribute is not there."""
        found = self.attributes.get(name)
        return None if found is None else tuple(int(value) for value in found)

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        return float(self.attributes.get(name, default))

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        return str(self.attributes.get(name, default))

    def refused(self, what: str) -> MissingCapability:
        """The reason why this node, with `what`, cannot be converted."""
        return MissingCapability(f"operator {self.op} with {what} has no conversion")


def whole(values: Tensor | None) -> tuple[int, ...] | None:
    """The integers in a tensor, as those that say an operator's axes or sizes; None stays None."""
    return None if values is None else tuple(int(value) for value in values.reshape(-1).tolist())


def read_node(proto: Any, opset: int) -> Node:
    """A node of the graph's protobuf.

    Raises:
        MissingCapability: an attribute holds what has no conversion, such as a graph inside the graph.
    """
    from onnx import AttributeProto, helper

    attributes: dict[str, Any] = {}
    for attribute in proto.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise MissingCapability(f"operator {printable(proto.op_type, 60)}, which holds a graph of its own, has no conversion")
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            value = read_tensor(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        attributes[attribute.name] = value
    return Node(op=proto.op_type, inputs=tuple(proto.input), outputs=tuple(proto.output), attributes=attributes, opset=opset)


def read_tensor(proto: Any) -> Tensor:
    """The values of a tensor's protobuf.

    Raises:
        MissingCapability: they are of a type that has no conversion.
    """
    from onnx import numpy_helper

    wanted = torch_dtype(proto.data_type)
    values = np.array(numpy_helper.to_array(proto))
    return torch.from_numpy(values.astype(_NUMPY[wanted], copy=False)).clone()


def torch_dtype(onnx_type: int) -> torch.dtype:
    """The type in which values of a type of ONNX are computed: half precision in float32, unsigned integers in wider signed ones.

    Raises:
        MissingCapability: there is none, as for strings and for 4-bit numbers.
    """
    from onnx import TensorProto

    dtypes: dict[int, torch.dtype] = {
        TensorProto.FLOAT: torch.float32,
        TensorProto.FLOAT16: torch.float32,
        TensorProto.BFLOAT16: torch.float32,
        TensorProto.DOUBLE: torch.float64,
        TensorProto.BOOL: torch.bool,
        TensorProto.UINT8: torch.uint8,
        TensorProto.INT8: torch.int8,
        TensorProto.INT16: torch.int16,
        TensorProto.UINT16: torch.int32,
        TensorProto.INT32: torch.int32,
        TensorProto.UINT32: torch.int64,
        TensorProto.INT64: torch.int64,
        TensorProto.UINT64: torch.int64,
    }
    if onnx_type not in dtypes:
        name = TensorProto.DataType.Name(onnx_type) if onnx_type in TensorProto.DataType.values() else str(onnx_type)
        raise MissingCapability(f"values of type {name} have no conversion")
    return dtypes[onnx_type]


_NUMPY: Mapping[torch.dtype, type[np.generic]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
}
