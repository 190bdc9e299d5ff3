"""A graph that was exported for a fixed number of images, rewritten to take any number.

The rewriting is a proposal: whoever uses it compares both graphs' outputs on real images, and keeps the fixed one unless they are
the same. So it need not understand the graph; it changes what exporters are known to write down of the batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audit.errors import ModelError
from audit.models.onnx_content import constants
from audit.text import printable

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

# Protocol buffers end at 2 GB, and the rewritten graph is held in memory beside the first one.
MOST_BYTES = 1 << 30
_BATCH = "audit_batch"


def with_any_batch(path: Path, rows: int) -> ModelProto:
    """The graph in `path`, made for `rows` images, with a batch of any size where that is only a matter of declarations.

    Raises:
        ModelError: the graph is too large, or says so little of its batch that nothing can be changed.
    """
    import onnx

    size = path.stat().st_size
    model = onnx.load(str(path), load_external_data=False)
    size += sum(_external_bytes(tensor) for tensor in model.graph.initializer)
    if size > MOST_BYTES:
        raise ModelError(f"it has {size / 1e9:.1f} GB of weights, too much to hold twice")
    model = onnx.load(str(path))
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    for value in (*(each for each in graph.input if each.name not in stored), *graph.output):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value == rows:
            dims[0].dim_param = _BATCH
    # Sizes in between follow from the operators; what was written down of them is for the old batch.
    del graph.value_info[:]
    for tensor in _reshape_targets(graph):
        _free_first(tensor, rows)
    return model


def _external_bytes(tensor: TensorProto) -> int:
    return next((int(entry.value) for entry in tensor.external_data if entry.key == "length"), 0)


def _reshape_targets(graph: GraphProto) -> Iterator[TensorProto]:
    """The constant shapes of Reshape nodes, each with an initialiser of its own."""
    from onnx import TensorProto

    known = constants(graph)
    for place, node in enumerate(graph.node):
        if node.op_type != "Reshape" or len(node.input) != 2 or node.input[1] not in known:
            continue
        sizes = _sizes(known[node.input[1]])
        if not sizes or sizes[0] <= 0:
            continue
        # Another node may read the same constant and mean something else by it.
        own = TensorProto()
        own.CopyFrom(known[node.input[1]])
        own.name = f"audit_shape_{place}"
        if 0 not in sizes:
            # Without a 0 in it, whether a 0 would be copied or taken literally makes no difference; now it is to be copied.
            kept = [attribute for attribute in node.attribute if attribute.name != "allowzero"]
            del node.attribute[:]
            node.attribute.extend(kept)
        graph.initializer.append(own)
        node.input[1] = own.name
        yield graph.initializer[-1]


def _free_first(tensor: TensorProto, rows: int) -> None:
    """Let the first size follow from the input: inferred (-1), or copied (0) where another one is inferred already."""
    from onnx import numpy_helper

    sizes = _sizes(tensor)
    if -1 not in sizes:
        sizes[0] = -1
    elif sizes[0] == rows:
        sizes[0] = 0
    tensor.CopyFrom(numpy_helper.from_array(np.array(sizes, dtype=np.int64), tensor.name))


def _sizes(tensor: TensorProto) -> list[int]:
    from onnx import numpy_helper

    return [int(size) for size in numpy_helper.to_array(tensor).reshape(-1)]


def why_not(error: Exception) -> str:
    """What stood in the way, in a few words."""
    text = str(error).strip().split("\n")[0] or type(error).__name__
    if node := re.search(r"while running (\w+) node\. Name:'([^']*)'", text):
        return f"its {node[1]} {printable(node[2], 60)!r} has the batch built in"
    return printable(text, 160)
