"""What inner layers did: sums, extremes and bitsets over examples, never one row per example and neuron.

Neurons of all layers stand side by side: `units` (L,) says how many each of `layers` has, and arrays (U,) follow that order.
Parts of consecutive chunks are `joined`; minima, maxima and bitsets do not depend on how examples were cut, and running moments
are taken over fixed compute blocks, in canonical order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from audit.evidence.arrays import Bools, Floats, Ints
from audit.vocabulary import Threat

# k of k-multisection coverage, and how many bytes its bits take.
SECTIONS = 1000
SECTION_BYTES = SECTIONS // 8

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class NeuronProfile:
    """The range of every neuron on images set apart from those that are scored: `low` and `high` (U,), infinite without an image.

    `positions` (m,) are the places of these images in the sample, -1 where they are not in it; `source` says in words what
    they are.
    """

    layers: tuple[str, ...]
    units: Ints
    low: Floats
    high: Floats
    positions: Ints
    source: str = ""

    @property
    def dead(self) -> Bools:
        """Neurons that never moved, (U,)."""
        return np.asarray(self.low >= self.high)

    def joined(self, other: NeuronProfile) -> NeuronProfile:
        """This part and the next one."""
        return replace(
            self,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
            positions=np.concatenate([self.positions, other.positions]),
        )


@dataclass(frozen=True, kw_only=True)
class Neurons:
    """The clean sample inside the network.

    `sections` (U, 125) are the bits of the k = 1000 equal sections of a neuron's profiled range that were met, `below` and `above`
    (U,) whether the range was left, by `scored` images, which are not those of the profile. `top` (U,) marks neurons that were
    among the k most active of their layer for some image. Of all images: `counts` (B,) per block, with `means` and `squares` (B, U)
    the mean and the sum of squared deviations from it, and `magnitudes` (B, L) the mean absolute activation of a layer.
    """

    layers: tuple[str, ...]
    units: Ints
    scored: int
    sections: Bits
    below: Bools
    above: Bools
    top: Bools
    counts: Ints
    means: Floats
    squares: Floats
    magnitudes: Floats

    def joined(self, other: Neurons) -> Neurons:
        """This part and the next one; what was joined before is one block."""
        counts, means, squares, magnitudes = self.moments()
        return replace(
            self,
            scored=self.scored + other.scored,
            sections=self.sections | other.sections,
            below=self.below | other.below,
            above=self.above | other.above,
            top=self.top | other.top,
            counts=np.concatenate([[counts], other.counts]),
            means=np.concatenate([means[None], other.means]),
            squares=np.concatenate([squares[None], other.squares]),
            magnitudes=np.concatenate([magnitudes[None], other.magnitudes]),
        )

    def moments(self) -> tuple[int, Floats, Floats, Floats]:
        """Count, means (U,), sums of squared deviations (U,) and mean magnitudes (L,) of all blocks, added up in their order.

        Source: Chan, Golub & LeVeque 1983 (The American Statistician 37, 242-247), pairwise updating of Welford's sums.
        """
        count, mean, squares, magnitude = int(self.counts[0]), self.means[0], self.squares[0], self.magnitudes[0]
        for more, other, spread, size in zip(
            self.counts[1:].tolist(), self.means[1:], self.squares[1:], self.magnitudes[1:], strict=True
        ):
            total = count + more
            away = other - mean
            mean = mean + away * (more / total)
            squares = squares + spread + away**2 * (count * more / total)
            magnitude = magnitude + (size - magnitude) * (more / total)
            count = total
        return count, mean, squares, magnitude


@dataclass(frozen=True, kw_only=True)
class AdversarialNeurons:
    """The images of the reference attack inside the network: coverage as in `Neurons`, of the `attacked` (n,) examples.

    `difference` (n, L) is the mean over a layer's neurons of |a(x') - a(x)|, `magnitude` (n, L) that of |a(x)|, 0 where not
    attacked.
    """

    threat: Threat
    layers: tuple[str, ...]
    units: Ints
    scored: int
    sections: Bits
    below: Bools
    above: Bools
    top: Bools
    attacked: Bools
    difference: Floats
    magnitude: Floats
    forward_passes: Ints
    backward_passes: Ints

    def joined(self, other: AdversarialNeurons) -> AdversarialNeurons:
        """This part and the next one."""
        return replace(
            self,
            scored=self.scored + other.scored,
            sections=self.sections | other.sections,
            below=self.below | other.below,
            above=self.above | other.above,
            top=self.top | other.top,
            attacked=np.concatenate([self.attacked, other.attacked]),
            difference=np.concatenate([self.difference, other.difference]),
            magnitude=np.concatenate([self.magnitude, other.magnitude]),
            forward_passes=np.concatenate([self.forward_passes, other.forward_passes]),
            backward_passes=np.concatenate([self.backward_passes, other.backward_passes]),
        )
