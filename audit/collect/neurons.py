"""Inner layers on clean images: which neurons count, the profile of their ranges, and what the sample does to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch

from audit.data import Chunk
from audit.errors import InputError
from audit.evidence import Bools, Evidence, EvidenceKey, EvidenceStore, Floats, Ints, NeuronProfile, Neurons
from audit.evidence.neurons import SECTIONS, Bits
from audit.models import Classifier
from audit.settings import Settings
from audit.text import nearest, printable
from audit.vocabulary import Threat

# k of top-k neuron coverage: the one that says something also about layers of few neurons.
TOP_K = 1


@dataclass(frozen=True, kw_only=True)
class Activity:
    """The neurons of some images: `values` (n, U) float64, layer after layer, `units` (L,) of each of `layers`."""

    layers: tuple[str, ...]
    units: Ints
    values: Floats

    def by_layer(self, values: Floats) -> list[Floats]:
        """Columns (n, U) cut into the layers they belong to."""
        return np.split(values, np.cumsum(self.units)[:-1], axis=1)

    def layer_means(self, values: Floats) -> Floats:
        """The mean over each layer's neurons of (n, U), (n, L)."""
        return np.stack([part.mean(axis=1) for part in self.by_layer(values)], axis=1)


def chosen(units: Mapping[str, int], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The layers that `patterns` name, in the order in which they run; all without a pattern.

    Raises:
        InputError: a pattern names none.

    >>> chosen({"features.0": 8, "features.1": 8, "head": 10}, ("features.*",))
    ('features.0', 'features.1')
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in units):
            listed = ", ".join(printable(name, 40) for name in list(units)[:8]) + (", ..." if len(units) > 8 else "")
            raise InputError(
                f"no layer is called {printable(pattern, 60)!r}{nearest(pattern, list(units))}; the layers are {listed}"
            )
    return tuple(name for name in units if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns))


def activity(classifier: Classifier, images: torch.Tensor, patterns: tuple[str, ...]) -> Activity:
    """The neurons of images (n, c, h, w) on the classifier's device, n >= 0.

    Raises:
        InputError: a pattern names no layer.
        ModelError: values are not finite.
    """
    found = classifier.activations(images)
    names = chosen({name: values.shape[1] for name, values in found.items()}, patterns)
    return Activity(
        layers=names,
        units=np.array([found[name].shape[1] for name in names], dtype=np.int64),
        values=torch.cat([found[name] for name in names], dim=1).double().cpu().numpy(),
    )


def collect_profile(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> NeuronProfile:
    """The least and the largest activation of every neuron on the chunk's images, which are set apart for this."""
    seen = activity(classifier, _images(chunk, classifier), settings.layers)
    return NeuronProfile(
        layers=seen.layers,
        units=seen.units,
        low=seen.values.min(axis=0, initial=np.inf),
        high=seen.values.max(axis=0, initial=-np.inf),
        positions=chunk.positions,
    )


def collect(classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None) -> Neurons:
    """Coverage by the images that are not the profile's, and running moments over all, in blocks of the compute block's size."""
    profile = profile_of(needed)
    seen = activity(classifier, _images(chunk, classifier), settings.layers)
    scored = scored_rows(chunk, profile)
    sections, below, above = met(seen.values[scored], profile)
    blocks = [seen.values[start : start + settings.block_rows] for start in range(0, len(seen.values), settings.block_rows)]
    means = np.stack([block.mean(axis=0) for block in blocks])
    return Neurons(
        layers=seen.layers,
        units=seen.units,
        scored=int(scored.sum()),
        sections=sections,
        below=below,
        above=above,
        top=topped(seen),
        counts=np.array([len(block) for block in blocks], dtype=np.int64),
        means=means,
        squares=np.stack([((block - mean) ** 2).sum(axis=0) for block, mean in zip(blocks, means, strict=True)]),
        magnitudes=np.stack([seen.layer_means(np.abs(block)).mean(axis=0) for block in blocks]),
    )


def profile_of(needed: EvidenceStore) -> NeuronProfile:
    """The profile among the evidence a collector was given."""
    return needed.get_as(NeuronProfile, EvidenceKey(kind=Evidence.NEURON_PROFILE))


def scored_rows(chunk: Chunk, profile: NeuronProfile) -> Bools:
    """Which rows of the chunk (n,) count towards coverage: those that the profile was not made of."""
    return ~np.isin(chunk.positions, profile.positions)


def met(values: Floats, profile: NeuronProfile) -> tuple[Bits, Bools, Bools]:
    """Sections met (U, 125 bytes), and whether a range was left downwards and upwards (U,), by activations (n, U).

    A dead neuron has no range: it meets nothing and leaves nothing.
    """
    alive = ~profile.dead
    low, high = np.where(alive, profile.low, 0.0), np.where(alive, profile.high, 1.0)
    bits = np.zeros((len(low), SECTIONS), dtype=np.bool_)
    for row in values:
        inside = np.flatnonzero(alive & (row >= low) & (row <= high))
        place = (row[inside] - low[inside]) / (high[inside] - low[inside]) * SECTIONS
        bits[inside, np.minimum(place.astype(np.int64), SECTIONS - 1)] = True
    return np.packbits(bits, axis=1), alive & (values < low).any(axis=0), alive & (values > high).any(axis=0)


def topped(seen: Activity) -> Bools:
    """Neurons (U,) among the k most active of their layer for some image.

    A neuron is where fewer than k others of its layer are at least as active, so that a layer of equal neurons has none.
    """
    parts: list[Bools] = []
    for values in seen.by_layer(seen.values):
        if values.shape[1] <= TOP_K:
            parts.append(np.full(values.shape[1], len(values) > 0))
            continue
        # The (k + 1)-th largest: whoever exceeds it has fewer than k rivals.
        rival = np.partition(values, -TOP_K - 1, axis=1)[:, -TOP_K - 1]
        parts.append(np.asarray((values > rival[:, None]).any(axis=0)))
    return np.concatenate(parts)


def _images(chunk: Chunk, classifier: Classifier) -> torch.Tensor:
    return torch.tensor(chunk.images, dtype=torch.float32, device=classifier.device)
