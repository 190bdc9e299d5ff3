"""Along which directions a model is asked: random orthonormal ones, half of them low-frequency waves, or every pixel in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import torch

from audit.errors import InputError

LEAST_DIRECTIONS = 2
# From so many directions on, or this share of the dimension, measuring low frequencies exactly pays on images (measured).
_STRATIFIED_FROM = 512
_STRATIFIED_SHARE = 1 / 6


class Directions(StrEnum):
    """How directions are chosen."""

    ORTHOGONAL = "orthogonal"
    STRATIFIED = "stratified"
    COORDINATE = "coordinate"


@dataclass(frozen=True, kw_only=True)
class DirectionSet:
    """Orthonormal `rows` (m, d), float32: the first `sampled` stand for all that the others, measured for themselves, leave."""

    rows: torch.Tensor
    sampled: int

    @property
    def measured(self) -> int:
        """Directions that stand for themselves only."""
        return len(self.rows) - self.sampled


def best_kind(dimension: int, directions: int) -> Directions:
    """The kind with the smallest error for images of d values.

    >>> best_kind(784, 64).value, best_kind(784, 256).value, best_kind(784, 784).value
    ('orthogonal', 'stratified', 'coordinate')
    """
    if directions >= dimension:
        return Directions.COORDINATE
    enough = directions >= min(_STRATIFIED_FROM, _STRATIFIED_SHARE * dimension)
    return Directions.STRATIFIED if enough and directions >= 2 * LEAST_DIRECTIONS else Directions.ORTHOGONAL


def check_budget(directions: int, dimension: int, queries: str = "") -> None:
    """Refuse fewer directions than an eigenvalue can be told from.

    Raises:
        InputError: fewer than two, of an input that has more.
    """
    if directions < min(LEAST_DIRECTIONS, dimension):
        raise InputError(f"{max(directions, 0)} directions{queries} are too few for an eigenvalue; allow at least two")


def draw(kind: Directions, shape: Sequence[int], count: int, generator: torch.Generator) -> DirectionSet:
    """Directions for images of `shape` (c, h, w); more than d count as d.

    Args:
        kind: a coordinate sweep takes all d, whatever `count` is.
        shape: of one image.
        count: m.
        generator: the example's own.
    """
    dimension = math.prod(shape)
    count = min(count, dimension)
    match kind:
        case Directions.COORDINATE:
            return DirectionSet(rows=torch.eye(dimension), sampled=0)
        case Directions.STRATIFIED:
            waves = low_frequencies(tuple(shape), count // 2)
            normal = torch.randn(dimension, count - len(waves), generator=generator)
            # Twice, since float32 leaves a trace of the waves the first time.
            for _ in range(2):
                normal = torch.linalg.qr(normal - waves.T @ (waves @ normal)).Q
            return DirectionSet(rows=torch.cat([normal.T, waves]), sampled=normal.shape[1])
        case Directions.ORTHOGONAL:
            rows = orthonormal_directions(dimension, count, generator)
            return DirectionSet(rows=rows, sampled=len(rows))


def orthonormal_directions(dimension: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Min(count, d) random orthonormal rows (m, d), float32 on the CPU, uniformly distributed up to signs."""
    normal = torch.randn(dimension, min(count, dimension), generator=generator)
    basis: torch.Tensor = torch.linalg.qr(normal).Q
    return basis.T.contiguous()


@lru_cache(maxsize=1)
def low_frequencies(shape: tuple[int, int, int], count: int) -> torch.Tensor:
    """The first `count` rows (count, d) of the orthonormal two-dimensional DCT-II, from low frequency to high, float32.

    For each frequency all channels together come first, then the differences between them.
    """
    channels, height, width = shape
    rows, columns = _cosines(height), _cosines(width)
    mixed = torch.linalg.qr(torch.cat([torch.ones(channels, 1), torch.eye(channels)[:, 1:]], dim=1).double()).Q.T
    order = sorted(((i / height) ** 2 + (j / width) ** 2, i, j) for i in range(height) for j in range(width))
    found = []
    for _, i, j in order[: -(-count // channels)]:
        wave = rows[i][:, None] * columns[j][None, :]
        found += [(channel[:, None, None] * wave).flatten().float() for channel in mixed]
    return torch.stack(found[:count]) if count else torch.zeros(0, math.prod(shape))


def _cosines(size: int) -> torch.Tensor:
    """Rows of the orthonormal DCT-II (size, size), float64."""
    places = torch.arange(size, dtype=torch.float64)
    table = torch.cos(math.pi * (places[None, :] + 0.5) * places[:, None] / size) * math.sqrt(2 / size)
    table[0] /= math.sqrt(2)
    return table
