"""Networks whose gradients do not lead attacks: what looks robust about them is the mask."""

from __future__ import annotations

import torch


class RoundedInputs(torch.nn.Module):
    """Rounds every pixel to one of a few levels first: gradients are zero."""

    def __init__(self, inner: torch.nn.Module, levels: int = 8) -> None:
        super().__init__()
        self.inner, self.levels = inner, levels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner((x * self.levels).round() / self.levels)


class ColdSoftmax(torch.nn.Module):
    """Probabilities at temperature 1e-3: saturated, so that gradients underflow."""

    def __init__(self, inner: torch.nn.Module, temperature: float = 1e-3) -> None:
        super().__init__()
        self.inner, self.temperature = inner, temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.inner(x) / self.temperature).softmax(dim=1)


class RandomResizing(torch.nn.Module):
    """Shrinks and pads the images by random amounts in every call (Xie et al. 2018, arXiv 1711.01991)."""

    def __init__(self, inner: torch.nn.Module, most: int = 2) -> None:
        super().__init__()
        self.inner, self.most = inner, most
        self.source = torch.Generator().manual_seed(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = x.shape[-1]
        less, top, left = torch.randint(0, self.most + 1, (3,), generator=self.source).tolist()
        small = torch.nn.functional.interpolate(x, (side - less, side - less), mode="bilinear", align_corners=False)
        top, left = min(top, less), min(left, less)
        return self.inner(torch.nn.functional.pad(small, (left, less - left, top, less - top)))


class KWinners(torch.nn.Module):
    """Keeps the largest tenth of all activations (Xiao et al. 2020, arXiv 1905.10510): the output jumps between them."""

    def __init__(self, share: float = 0.1) -> None:
        super().__init__()
        self.share = share

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        flat = h.flatten(1)
        least = flat.topk(max(1, int(self.share * flat.shape[1])), dim=1).values[:, -1:]
        return (flat * (flat >= least)).view_as(h)


def k_winners_cnn() -> torch.nn.Module:
    """The demo's CNN for 8 x 8 digits with winners instead of rectifiers, untrained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 32, 3, padding=1),
            KWinners(),
            torch.nn.Conv2d(32, 64, 3, padding=1),
            KWinners(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * 4 * 4, 64),
            KWinners(),
            torch.nn.Linear(64, 10),
        )
