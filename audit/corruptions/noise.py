"""Gaussian, speckle, shot and impulse noise."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.stats
import torch

from audit.corruptions.originals import Originals
from audit.corruptions.parameters import Row

# Intervals of probability that the guide of the inverse distribution starts from.
_GUIDES = 256
# Steps that most of these intervals need; the few that need more are searched.
_STEPS = 2


def gaussian_noise(images: Originals, row: Row) -> torch.Tensor:
    """Add sigma z."""
    return images.unit + row[0] * images.draws.normal("values", *images.shape)


def speckle_noise(images: Originals, row: Row) -> torch.Tensor:
    """Add sigma x z."""
    return images.unit + images.unit * (row[0] * images.draws.normal("values", *images.shape))


def impulse_noise(images: Originals, row: Row) -> torch.Tensor:
    """A share of the values becomes 0 or 1, as likely; one draw decides whether and which."""
    drawn, share = images.draws.uniform("values", *images.shape), row[0]
    return torch.where(drawn < share, (drawn >= share / 2).float(), images.unit)


class _Counts(NamedTuple):
    """Distribution functions of the counts at the 256 grey levels, and where to start looking in them."""

    sorted: torch.Tensor  # (256 * most,) level + probability, ascending
    flat: torch.Tensor  # the same probabilities, float32
    guide: torch.Tensor  # (256 * _GUIDES,) first possible count, int32
    far: torch.Tensor  # (256 * _GUIDES,) whether more than _STEPS further counts are possible
    most: int


@lru_cache(maxsize=32)
def _counts(photons: float) -> _Counts:
    levels = np.arange(256)
    most = int(scipy.stats.poisson.ppf(1 - 1e-9, photons)) + 2
    cumulative = scipy.stats.poisson.cdf(np.arange(most)[None], levels[:, None] / 255 * photons)
    # In float32, as they are compared; the last count takes what is left.
    cumulative = np.minimum(cumulative, 1 - 1e-12).astype(np.float32)
    cumulative[:, -1] = 2.0
    edges = np.arange(_GUIDES + 1, dtype=np.float32) / _GUIDES
    first = np.stack([np.searchsorted(line, edges[:-1], side="right") for line in cumulative])
    last = np.stack([np.searchsorted(line, np.nextafter(edges[1:], np.float32(0)), side="right") for line in cumulative])
    ordered = levels[:, None] * 4.0 + cumulative.astype(np.float64)
    return _Counts(
        sorted=torch.from_numpy(ordered.ravel()),
        flat=torch.from_numpy(cumulative.ravel()),
        guide=torch.from_numpy(first.astype(np.int32).ravel()),
        far=torch.from_numpy((last - first > _STEPS).ravel()),
        most=most,
    )


def poisson(levels: torch.Tensor, drawn: torch.Tensor, photons: float) -> torch.Tensor:
    """Poisson counts of mean photons * level / 255 by inversion: the count is the number of F(k) <= u, whatever the device.

    Args:
        levels: (...) uint8.
        drawn: (...) uniform on [0, 1).
        photons: the mean count at level 255.
    """
    table, level, drawn_flat = _counts(photons), levels.flatten().to(torch.int32), drawn.flatten()
    guide = level * _GUIDES + (drawn_flat * _GUIDES).to(torch.int32)
    start, flat = level * table.most, table.flat.to(levels.device)
    place = start + table.guide.to(levels.device).index_select(0, guide)
    for _ in range(_STEPS):
        place += flat.index_select(0, place) <= drawn_flat
    far = table.far.to(levels.device).index_select(0, guide).nonzero()[:, 0]
    if len(far):
        sought = level[far] * 4.0 + drawn_flat[far].double()
        place[far] = torch.searchsorted(table.sorted.to(levels.device), sought, right=True).to(torch.int32)
    return (place - start).view(levels.shape)


def shot_noise(images: Originals, row: Row) -> torch.Tensor:
    """Poisson counts of x times the photons, over the photons."""
    return poisson(images.levels, images.draws.uniform("values", *images.shape), row[0]).float() / row[0]
