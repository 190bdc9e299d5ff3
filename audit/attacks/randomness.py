"""Noise that belongs to an example: derived from (seed, example id, purpose), never from its place in a batch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

# Values that the draws of one example may fill at once, for a chunk of the usual size some 64 MB.
_MOST_VALUES = 1 << 17


def generator(seed: int, example_id: str, purpose: str) -> torch.Generator:
    """A CPU generator for one example and one purpose; equal arguments give equal noise on every device."""
    text = "\x00".join((str(seed), purpose, str(example_id)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def generators(seed: int, example_ids: Iterable[str], purpose: str) -> list[torch.Generator]:
    """One generator per example, in the order of `example_ids`."""
    return [generator(seed, example_id, purpose) for example_id in example_ids]


# (c, h, w with a leading count, source) -> as many draws of one example.
Draw = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]


def normal(shape: tuple[int, ...], source: torch.Generator) -> torch.Tensor:
    """Independent standard normal values."""
    return torch.randn(shape, generator=source)


def signs(shape: tuple[int, ...], source: torch.Generator) -> torch.Tensor:
    """Independent values of -1 and 1, equally likely."""
    return torch.randint(0, 2, shape, generator=source).float() * 2 - 1


def in_parts(sources: Sequence[torch.Generator], count: int, like: torch.Tensor, draw: Draw) -> Iterator[torch.Tensor]:
    """`count` draws for each row of `like` (n, c, h, w), in parts (n, m, c, h, w) that memory holds.

    How many come at once depends on the image size only: a generator gives other numbers when it is asked in other portions.
    """
    shape = tuple(like.shape[1:])
    most = max(1, _MOST_VALUES // math.prod(shape))
    for start in range(0, count, most):
        part = min(most, count - start)
        yield torch.stack([draw((part, *shape), source) for source in sources]).to(like)
