"""Noise that belongs to an example: derived from (seed, example id, purpose), never from its place in a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch


def generator(seed: int, example_id: str, purpose: str) -> torch.Generator:
    """A CPU generator for one example and one purpose; equal arguments give equal noise on every device."""
    text = "\x00".join((str(seed), purpose, str(example_id)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def generators(seed: int, example_ids: Iterable[str], purpose: str) -> list[torch.Generator]:
    """One generator per example, in the order of `example_ids`."""
    return [generator(seed, example_id, purpose) for example_id in example_ids]
