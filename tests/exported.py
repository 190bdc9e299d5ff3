"""Networks as ONNX files, by either of torch's exporters."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import torch


def exported(module: torch.nn.Module, images: torch.Tensor, path: Path, *, dynamo: bool) -> Path:
    """Write `module` with a free batch size to `path`, and give that back."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            batch = ({0: torch.export.Dim("n")},)
            torch.onnx.export(module.eval(), (images,), path, dynamic_shapes=batch, external_data=False, verbose=False)
        else:
            axes = {"x": {0: "n"}}
            torch.onnx.export(module.eval(), (images,), path, dynamo=False, input_names=["x"], dynamic_axes=axes)
    return path
