"""Resize and Upsample: along each axis a linear map of the values, written out as a matrix (new size, old size)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch

from audit.models.onnx_torch.node import Node, Operator, Tensor, whole

Floats = npt.NDArray[np.float32]

_NEAREST: Mapping[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda at: np.ceil(at - np.float32(0.5)),
    "round_prefer_ceil": lambda at: np.floor(at + np.float32(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _resize(node: Node, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None) -> Tensor:
    if node.opset < 11:  # no region, and scales as the second input
        scales = roi
    if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.refused(f"keep_aspect_ratio_policy {node.text('keep_aspect_ratio_policy', '')}")
    axes = node.integers("axes") or tuple(range(x.ndim))
    given = None if scales is None else scales.reshape(-1).tolist()
    wanted = whole(sizes)
    for i, axis in enumerate(axes):
        old = x.shape[axis]
        new = wanted[i] if wanted else math.floor(old * given[i]) if given else old
        scale = given[i] if given else new / old
        if new != old or scale != 1:
            x = _along(x, axis, _matrix(node, old, new, np.float32(scale)))
    return x


def _upsample(node: Node, x: Tensor, scales: Tensor | None = None) -> Tensor:
    stated = node.attributes.get("scales") if scales is None else None  # an attribute up to opset 8
    return _resize(node, x, torch.tensor(stated) if stated is not None else scales)


def _along(x: Tensor, axis: int, matrix: Floats) -> Tensor:
    weights = torch.from_numpy(matrix).to(device=x.device, dtype=x.dtype)
    return (x.transpose(axis, -1) @ weights.T).transpose(axis, -1)


def _matrix(node: Node, old: int, new: int, scale: np.float32) -> Floats:
    at, mode = _coordinates(node, old, new, scale), node.text("mode", "nearest")
    if mode == "nearest":
        rounding = node.text("nearest_mode", "round_prefer_floor")
        if node.opset < 11:
            rounding = "ceil" if scale < 1 and node.op == "Resize" else "floor"
        taps, weights = _NEAREST[rounding](at)[:, None], np.ones((new, 1), dtype=np.float32)
        shrink = np.float32(1)
    elif mode in ("linear", "cubic"):
        # When it shrinks an image, an antialiasing kernel is as wide as the pixels that become one.
        shrink = np.float32(min(float(scale), 1.0)) if node.integer("antialias", 0) else np.float32(1)
        reach = math.ceil((1 if mode == "linear" else 2) / shrink)
        taps = np.floor(at)[:, None] + np.arange(1 - reach, reach + 1, dtype=np.float32)
        away = np.abs(at[:, None] - taps) * shrink
        weights = np.maximum(0, 1 - away) if mode == "linear" else _cubic(away, np.float32(node.number("cubic_coeff_a", -0.75)))
    else:
        raise node.refused(f"mode {mode}")
    if node.integer("exclude_outside", 0):
        weights = np.where((taps >= 0) & (taps < old), weights, 0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((new, old), dtype=np.float32)
    rows = np.broadcast_to(np.arange(new)[:, None], taps.shape)
    np.add.at(matrix, (rows, taps.clip(0, old - 1).astype(np.int64)), weights)
    return matrix


def _coordinates(node: Node, old: int, new: int, scale: np.float32) -> Floats:
    """Where each new value lies among the old ones, (new,); in float32, as the runtime computes it."""
    half, one = np.float32(0.5), np.float32(1)
    i = np.arange(new, dtype=np.float32)
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    if node.opset < 11:
        mode = "asymmetric"
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and new > 1):
        return (i + half) / scale - half
    if mode == "pytorch_half_pixel":
        return np.zeros(new, dtype=np.float32)
    if mode == "half_pixel_symmetric":
        adjusted = np.float32(new) / (np.float32(old) * scale)
        return np.float32(old) / 2 * (one - adjusted) + (i + half) / scale - half
    if mode == "align_corners":
        return i * np.float32(old - 1) / np.float32(max(new - 1, 1))
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_half_pixel_for_nn":
        return (i + half) / scale
    raise node.refused(f"coordinate_transformation_mode {mode}")


def _cubic(away: Floats, a: np.float32) -> Floats:
    """Keys' kernel at the distances `away`."""
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
    return np.where(away <= 1, near, np.where(away < 2, far, 0)).astype(np.float32)


TABLE: Mapping[str, Operator] = {"Resize": _resize, "Upsample": _upsample}
