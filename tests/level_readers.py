"""Models for which exactly one input specification is right: the class is the grey level of one pixel, read to a 64th.

Where the specification is wrong, the level that arrives is another one. The model undoes the right preparation, written here a
second time, by hand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from audit.data.arrays import ArrayDataset
from audit.models.input_spec import InputSpec, PartialSpec
from audit.models.loading import Opened
from audit.models.shapes import Declared
from audit.models.torch_module import Serialisation, in_memory_identity, plain_scores, wrap

LEVELS = 32
ROW, COLUMN = 1, 3  # off the diagonal, so that a transposed image shows another pixel there


def level_images(count: int, shape: tuple[int, int, int], *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random images (count, c, h, w) and their labels: the level of the red pixel there (of the grey one, of a grey image)."""
    generator = np.random.default_rng(seed)
    images = generator.random((count, *shape), dtype=np.float32)
    labels = generator.integers(0, LEVELS, count)
    images[:, 0, ROW, COLUMN] = (labels + 0.5) / LEVELS
    return images, labels


def dataset(images: np.ndarray, labels: np.ndarray) -> ArrayDataset:
    return ArrayDataset(
        reference="levels",
        source="levels",
        digest="0",
        ids=np.array([str(row) for row in range(len(labels))]),
        labels=labels.astype(np.int64),
        class_names=tuple(map(str, range(LEVELS))),
        pixels=images,
    )


def undone(x: torch.Tensor, spec: InputSpec, shape: tuple[int, int, int]) -> torch.Tensor:
    """Images (n, c, h, w) as they were before the layout, the normalisation and the channel order; `shape` is the model's."""
    n, (c, h, w) = len(x), shape
    x = {
        "NCHW": lambda: x,
        "NHWC": lambda: x.permute(0, 3, 1, 2),
        "NHW": lambda: x[:, None],
        "NCHW1": lambda: x[..., 0],
        "NCD": lambda: x.reshape(n, c, h, w),
        "NDC": lambda: x.permute(0, 2, 1).reshape(n, c, h, w),
        "FLAT": lambda: x.reshape(n, c, h, w),
        "FLAT_COLUMN": lambda: x.reshape(n, c, w, h).transpose(2, 3),
        "FLAT_LAST": lambda: x.reshape(n, h, w, c).permute(0, 3, 1, 2),
    }[spec.layout]()
    mean, std = (torch.tensor(values * (c if len(values) == 1 else 1)).view(1, c, 1, 1) for values in (spec.mean, spec.std))
    low, high = spec.range
    x = (x * std + mean - low) / (high - low)
    return x[:, [2, 1, 0]] if spec.channels == "BGR" else x


class Reader(torch.nn.Module):
    """Right under `spec` alone; `shape` (c, h, w) is the model's."""

    def __init__(self, spec: InputSpec, shape: tuple[int, int, int], *, grey: bool = False) -> None:
        super().__init__()
        self.spec, self.shape, self.grey = spec, shape, grey
        self.centres = (torch.arange(LEVELS) + 0.5) / LEVELS

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = tuple(self.spec.shape_seen((1, *self.shape[1:]) if self.spec.colour == "repeat" else self.shape))
        if tuple(x.shape[1:]) != seen and self.spec.colour != "luma":
            raise ValueError(f"takes {seen}, not {tuple(x.shape[1:])}")
        value = undone(x.float(), self.spec, self.shape)[:, 0, ROW, COLUMN]
        return -((value[:, None] - self.centres) ** 2) * 1000


def opened(module: torch.nn.Module, declared: tuple[int | None, ...] | None, rows: int | None = None) -> Opened:
    """A torch module as `loading.opened` gives one."""
    device = torch.device("cpu")
    return Opened(
        identity=in_memory_identity("reader"),
        given=PartialSpec(),
        declared=Declared(rows=rows, shape=declared),
        scores=plain_scores(module, Serialisation.MODULE, device, "reader"),
        wrap=lambda spec, shape: wrap(module, image_shape=shape, spec=spec, device="cpu"),
        network=module,
    )


def reader_file(path: Path, shape: tuple[object, ...], pixel: int, scale: float = 1.0, offset: float = 0.0) -> Path:
    """An ONNX graph that reads the level of element `pixel` of the flattened input, after value * scale + offset."""
    initial = {
        "flat": np.array([0, -1], dtype=np.int64),
        "pixel": np.array([pixel], dtype=np.int64),
        "scale": np.array([scale], dtype=np.float32),
        "offset": np.array([offset], dtype=np.float32),
        "centres": ((np.arange(LEVELS) + 0.5) / LEVELS).astype(np.float32)[None],
        "sharp": np.array([-1000], dtype=np.float32),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["rows"]),
        helper.make_node("Gather", ["rows", "pixel"], ["value"], axis=1),
        helper.make_node("Mul", ["value", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "offset"], ["level"]),
        helper.make_node("Sub", ["level", "centres"], ["distance"]),
        helper.make_node("Mul", ["distance", "distance"], ["square"]),
        helper.make_node("Mul", ["square", "sharp"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "reader",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", LEVELS])],
        [numpy_helper.from_array(value, name) for name, value in initial.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="by hand")
    onnx.save(model, path)
    return path
