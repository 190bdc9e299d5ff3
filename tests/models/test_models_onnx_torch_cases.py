"""The test cases that the ONNX project ships for its operators: an independent word on what each of them means."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from audit.errors import MissingCapability
from audit.models.onnx_torch import convert
from audit.models.onnx_torch.operators import TABLE

# Where a case and ONNX Runtime disagree, the runtime is what is deployed.
OTHERWISE_IN_ONNX_RUNTIME = {
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
}
EMPTY = {"test_reduce_max_empty_set", "test_reduce_min_empty_set"}
FLOATS = (np.float32, np.float64, np.float16)
# As far as the cases are about the forms of operators that occur in classifiers.
REFUSED = ("Attention", "BatchNormalization", "Dropout", "LayerNormalization", "MaxPool", "QuantizeLinear", "Resize", "ScatterND")


def array(value: object) -> np.ndarray | None:
    """The value if it is one or more numbers of a usual type."""
    found = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
    return found if found is not None and found.dtype.kind in "fiub" else None


@pytest.mark.slow
def test_the_cases_of_the_onnx_project():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cases are computed with infinities on purpose
        cases = load_model_tests(kind="node")
    wrong, agreed, refused = [], 0, set()
    for one in cases:
        graph = one.model.graph
        if not graph.input or any(node.domain not in ("", "ai.onnx") or node.op_type not in TABLE for node in graph.node):
            continue
        for given, expected in one.data_sets:
            inputs, outputs = [array(value) for value in given], [array(value) for value in expected]
            if any(value is None for value in (*inputs, *outputs)) or inputs[0].dtype not in FLOATS:
                continue
            model = onnx.ModelProto.FromString(one.model.SerializeToString())
            # The first input plays the image, the others are weights.
            names = [each.name for each in graph.input]
            model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in list(zip(names, inputs, strict=True))[1:])
            for output, value in zip(graph.output, outputs, strict=True):
                try:
                    module = convert(model, image=names[0], output=output.name)
                    found = module(torch.from_numpy(inputs[0].copy())).numpy()
                except MissingCapability as error:
                    refused.add(str(error).split()[1])
                    continue
                except Exception as error:
                    wrong.append((one.name, str(error)))
                    continue
                same = found.shape == value.shape and np.allclose(
                    found.astype(float), value.astype(float), rtol=2e-3, atol=1e-5, equal_nan=True
                )
                agreed += same
                if not same:
                    wrong.append((one.name, "other values"))
    assert {name for name, _ in wrong} == OTHERWISE_IN_ONNX_RUNTIME | EMPTY
    assert agreed > 900
    assert refused <= set(REFUSED)
