"""Sliding windows: how far a kernel reaches and what is padded, the same for convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.models.onnx_torch.node import Node


@dataclass(frozen=True, kw_only=True)
class Window:
    """A kernel over the spatial axes of an image. `before` and `after` are the padding, `extra` what ceil mode adds behind it."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def symmetric(self) -> bool:
        """Whether one number per axis says all of the padding."""
        return self.before == self.after and not any(self.extra)

    def padding(self, *, extra: bool = True) -> list[int]:
        """The padding as `torch.nn.functional.pad` wants it: last axis first."""
        behind = [a + e for a, e in zip(self.after, self.extra, strict=True)] if extra else self.after
        return [side for pair in reversed(list(zip(self.before, behind, strict=True))) for side in pair]


def window(node: Node, size: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window of a node's attributes on an image of spatial `size`."""
    axes = range(len(kernel))
    strides = node.integers("strides") or (1,) * len(kernel)
    dilations = node.integers("dilations") or (1,) * len(kernel)
    reach = [(kernel[i] - 1) * dilations[i] + 1 for i in axes]
    auto = node.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [max(0, (-(-size[i] // strides[i]) - 1) * strides[i] + reach[i] - size[i]) for i in axes]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        before, after = (less, more) if auto == "SAME_UPPER" else (more, less)
    else:
        pads = (node.integers("pads") if auto == "NOTSET" else None) or (0,) * (2 * len(kernel))
        before, after = list(pads[: len(kernel)]), list(pads[len(kernel) :])
    extra = [0 for _ in axes]
    if node.integer("ceil_mode", 0):
        for i in axes:
            rest = size[i] + before[i] + after[i] - reach[i]
            steps = -(-rest // strides[i])
            # A last window that would begin in the padding behind the image is left out.
            steps -= steps * strides[i] >= size[i] + before[i]
            extra[i] = max(0, steps * strides[i] - rest)
    return Window(
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        before=tuple(before),
        after=tuple(after),
        extra=tuple(extra),
    )
