"""Graphs of a few nodes, written out for the tests of the conversion, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from audit.models import Classifier, ModelRef, load

Constants = dict[str, np.ndarray]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal values, float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def graph(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str],
    constants: Constants | None = None,
    *,
    opset: int = 17,
    output: str = "y",
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A graph from the value x of `shape` to `output`, whose own type and shape are left open."""
    made = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [onnx.ValueInfoProto(name=output)],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def runtime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The first output, of a session without optimisations, so that operators are met as they are written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def opened(path: Path, *, shape: tuple[int, int, int] = (3, 8, 8), **options: object) -> Classifier:
    """The file as `load` gives it, on the CPU."""
    return load(ModelRef.parse(str(path)), image_shape=shape, device="cpu", **options)  # type: ignore[arg-type]
