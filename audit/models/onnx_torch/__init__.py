"""An ONNX graph as a torch module: the same numbers as the runtime that is deployed, with gradients of the image.

`convert` reads a graph into `Node`s, looks each operator up in `operators.TABLE`, folds what does not depend on the image, and
gives an `OnnxModule` that interprets the rest. What it has no operator for is refused by name. Whether the module really computes
what the runtime computes is not taken on trust: `audit.models.onnx_gradients` compares them.

Values that a graph holds in half precision are computed in float32: gradients would underflow otherwise.
"""

from __future__ import annotations

from audit.models.onnx_torch.module import OnnxModule, convert

__all__ = ["OnnxModule", "convert"]
