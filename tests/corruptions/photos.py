"""Crops of a photograph that scikit-image brings along, at any size."""

from __future__ import annotations

import skimage.data
import torch
import torch.nn.functional as F

from audit.corruptions.kinds import levels_of

IDS = [f"crop-{index}" for index in range(6)]


def photos(size: int, channels: int = 3, count: int = 6) -> torch.Tensor:
    """(count, channels, size, size) uint8: overlapping crops of one photograph, shrunk."""
    whole = torch.from_numpy(skimage.data.astronaut()).permute(2, 0, 1)[None].float() / 255
    corners = [(0, 0), (0, 100), (60, 40), (0, 200), (160, 100), (200, 0)][:count]
    crops = torch.cat([whole[:, :, top : top + 300, left : left + 300] for top, left in corners])
    found = levels_of(F.interpolate(crops, size=(size, size), mode="bilinear", antialias=True))
    return found if channels == 3 else levels_of(found.float().mean(dim=1, keepdim=True) / 255)
