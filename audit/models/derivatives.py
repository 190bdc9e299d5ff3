"""Derivatives of a network along directions of its input: forward mode, or two reverse passes where an operator has none."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

# What a network raises where an operator lacks a forward derivative; some wrap the first in the second.
_NO_FORWARD_MODE = (NotImplementedError, RuntimeError)


def directional(
    forward: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, directions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores (b, K) and their derivatives along `directions`, (b, K), both detached.

    Args:
        forward: images (b, c, h, w) -> scores (b, K), rows independent of each other.
        images: (b, c, h, w).
        directions: (b, c, h, w).
    """
    # Fused attention has neither a forward derivative nor a second reverse one.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        try:
            return _forward_mode(forward, images, directions)
        except torch.OutOfMemoryError:
            raise
        except _NO_FORWARD_MODE:
            return _twice_reverse(forward, images, directions)


def _forward_mode(
    forward: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, directions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    # An input that asks for gradients keeps layers from the fast paths of inference, which know no derivative.
    x = images.clone().requires_grad_(True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, directions)  # type: ignore[no-untyped-call]
        scores, slopes = forward_ad.unpack_dual(forward(dual))  # type: ignore[no-untyped-call]
    return scores.detach(), torch.zeros_like(scores.detach()) if slopes is None else slopes.detach()


def _twice_reverse(
    forward: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, directions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient J^T u is linear in u, so that its own derivative along u, against v, is J v."""
    x = images.clone().requires_grad_(True)
    scores = forward(x.clone())  # a model may change its input in place
    weights = torch.zeros_like(scores, requires_grad=True)
    (gradient,) = torch.autograd.grad(scores, x, weights, create_graph=True)
    (slopes,) = torch.autograd.grad(gradient, weights, directions)
    return scores.detach(), slopes.detach()
