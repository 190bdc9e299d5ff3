"""The settings of one audit: frozen, each default with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from audit.profiles import Profile, profile
from audit.vocabulary import Norm, Threat

# 8 grey levels: the budget most published Linf results on natural images use. It is printed, never searched.
DEFAULT_THREAT = Threat.parse("linf:8/255")
# Padded blocks of this many rows make every row's result independent of its neighbours; 32 costs 25-38 % over free batching.
DEFAULT_BLOCK_ROWS = 32
# Memory is bounded by the chunk; a multiple of the block. The survivors of a chunk are attacked in padded blocks, so that chunks of
# 256 take 5-21 % less than chunks of 128 (500 images of 28x28); 512 would take another 4-26 % less, but leave a time budget too
# little to choose from. Of large images a chunk takes fewer: attacks hold a chunk many times over, in float64 where they measure
# distances.
DEFAULT_CHUNK_ROWS = 256
MOST_CHUNK_VALUES = 1 << 22
# Enough to see a pattern, few enough to keep the report small.
SHOWN_FAILURES = 24
# Below this, denominators of the local standard deviation are noise of 8-bit storage (one grey level is 1/255).
PSD_TAU = 1 / 255


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an audit was asked to do. `samples` of None means the profile's number.

    `eot` is how many calls are averaged where a model answers at random, 1 for none. `halved_from` is the block size that did not
    fit into memory, None where the first one did. `layers` are patterns of the inner layers to look at, none for all.
    `corrupted_kinds` are those of a folder of corrupted images, none where corruptions are made here.
    """

    profile: Profile
    threats: tuple[Threat, ...] = (DEFAULT_THREAT,)
    samples: int | None = None
    seed: int = 0
    device: str = "auto"
    block_rows: int = DEFAULT_BLOCK_ROWS
    halved_from: int | None = None
    chunk_rows: int = DEFAULT_CHUNK_ROWS
    shown_failures: int = SHOWN_FAILURES
    keep_images: bool = True
    eot: int = 1
    layers: tuple[str, ...] = ()
    corrupted_kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, profile_name: str) -> Settings:
        """The defaults of a profile."""
        return cls(profile=profile(profile_name))

    def for_images(self, shape: tuple[int, int, int]) -> Settings:
        """The same settings with a chunk that images of this shape (c, h, w) allow; no number depends on it.

        >>> Settings.of("quick").for_images((3, 224, 224)).chunk_rows, Settings.of("quick").for_images((1, 28, 28)).chunk_rows
        (32, 256)
        """
        fitting = MOST_CHUNK_VALUES // math.prod(shape) // self.block_rows * self.block_rows
        return replace(self, chunk_rows=max(self.block_rows, min(self.chunk_rows, fitting)))

    def halved(self) -> Settings:
        """The same settings with compute blocks of half the size; their evidence has fingerprints of its own."""
        return replace(self, block_rows=max(1, self.block_rows // 2), halved_from=self.block_rows)

    @property
    def sample_size(self) -> int:
        """How many examples to draw at most."""
        return self.profile.samples if self.samples is None else self.samples

    def curve_epsilons(self, threat: Threat) -> tuple[float, ...]:
        """The budgets of the accuracy-epsilon curve, ascending: 0, the threat's own, and the profile's multiples of it.

        >>> [round(255 * e) for e in Settings.of("quick").curve_epsilons(DEFAULT_THREAT)]
        [0, 2, 4, 8, 16]
        """
        limit = 1.0 if threat.norm is Norm.LINF else float("inf")
        return tuple(sorted({0.0, threat.epsilon, *(min(multiple * threat.epsilon, limit) for multiple in self.profile.curve)}))
