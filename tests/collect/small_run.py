"""A small network, a sample, and a stand-in for the engine that runs the collectors chunk by chunk."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import small_arms
import torch

from audit.collect import COLLECTORS, FITS
from audit.data import Chunk
from audit.evidence import AT_ONCE, PER_THREAT, SET_APART, Evidence, EvidenceKey, EvidenceStore, merge, rows
from audit.models.torch_module import TorchClassifier, wrap
from audit.profiles import profile
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

SMALL = replace(
    profile("quick"),
    linf=small_arms.pgd(cross_entropy=4, margin=4),
    l2=small_arms.pgd(cross_entropy=4, margin=4),
    reference_steps=6,
    reference_queries=20,
    score_based=small_arms.queries(3, 20),
    curve_queries=20,
    curve_stages=2,
    fisher_samples=7,
    fisher_directions=12,
    boundary_samples=2,
    certified_samples=2,
    minimal_samples=2,
    corruption_samples=6,
    sequence_samples=3,
)


@cache
def network() -> torch.nn.Module:
    """A random CNN of 4 classes on 1x8x8 images with gradients that matter."""
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(384, 4)
        )
    with torch.no_grad():
        layers[3].weight.mul_(8)
    return layers.eval()


@cache
def sample() -> Chunk:
    """23 random images labelled by the network, every sixth wrongly."""
    images = torch.rand(23, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        labels = network()(images).argmax(dim=1).numpy()
    labels[::6] = (labels[::6] + 1) % 4
    ids = np.array([f"image {i}" for i in range(23)])
    return Chunk(positions=np.arange(23), ids=ids, labels=labels, images=images.numpy())


@cache
def apart() -> Chunk:
    """17 other images, and what a sample would have of them: nothing."""
    images = torch.rand(17, 1, 8, 8, generator=torch.Generator().manual_seed(3)).numpy()
    return Chunk(
        positions=np.full(17, -1), ids=np.array([f"other {i}" for i in range(17)]), labels=np.zeros(17, dtype=int), images=images
    )


def classifier() -> TorchClassifier:
    """The network behind the classifier contract."""
    return wrap(network(), image_shape=(1, 8, 8), device="cpu", block_rows=8)


def per_threat() -> list[Evidence]:
    """The kinds gathered per threat and what they rest on: the others are the same under every threat."""
    wanted = set(PER_THREAT)
    while more := {need for kind in wanted & set(COLLECTORS) for need in COLLECTORS[kind].needs} - wanted:
        wanted |= more
    return [kind for kind in Evidence if kind in wanted]


class WithoutGradients:
    """The same classifier, as an ONNX file would be: logits only."""

    def __init__(self, inner: TorchClassifier) -> None:
        self._inner = inner
        self.lacks = {Capability.GRADIENTS: "it has no backward pass", Capability.ACTIVATIONS: "nothing inside can be seen"}
        self.classes, self.device, self.logits = inner.classes, inner.device, inner.logits


@dataclass(frozen=True)
class Run:
    """Collects evidence on one sample cut into chunks, as an engine would."""

    classifier: object
    settings: Settings
    threat: Threat
    others: Chunk | None = None

    def key(self, kind: Evidence) -> EvidenceKey:
        return EvidenceKey(kind=kind, threat=self.threat if kind in PER_THREAT else None)

    def fit(self, kind: Evidence, store: EvidenceStore):
        return FITS[kind].fit(store, self.key(kind).threat)

    def collect(self, kind: Evidence, sample: Chunk, cuts: list[slice], needed: EvidenceStore):
        collector = COLLECTORS[kind]
        parts = []
        if kind in SET_APART:
            sample, cuts = (
                self.others or apart(),
                [slice(0, 17)] if kind in AT_ONCE else [slice(start, start + 8) for start in range(0, 17, 8)],
            )
        for cut in cuts:
            chunk = Chunk(
                positions=sample.positions[cut], ids=sample.ids[cut], labels=sample.labels[cut], images=sample.images[cut]
            )
            local = {
                key: value if key.kind in FITS else rows(value, *cut.indices(len(sample.labels))[:2])
                for key, value in needed.items()
            }
            threat = self.threat if kind in PER_THREAT else None
            parts.append(collector.collect(self.classifier, chunk, self.settings, EvidenceStore(local), threat))
        return merge(parts)

    def everything(self, sample: Chunk, size: int = 1000) -> EvidenceStore:
        cuts = [slice(start, min(start + size, len(sample.labels))) for start in range(0, len(sample.labels), size)]
        store = EvidenceStore()
        wanted = [*COLLECTORS, *FITS]
        while wanted:
            for kind in list(wanted):
                if kind in FITS:
                    if FITS[kind].capabilities & set(self.classifier.lacks):
                        wanted.remove(kind)
                    elif all(self.key(need) in store for need in FITS[kind].needs):
                        store = store.with_item(self.key(kind), self.fit(kind, store))
                        wanted.remove(kind)
                    continue
                collector = COLLECTORS[kind]
                if collector.capabilities & set(self.classifier.lacks):
                    wanted.remove(kind)
                elif all(self.key(need) in store for need in collector.needs_of(self.classifier.lacks)):
                    needed = EvidenceStore(
                        {self.key(need): store[self.key(need)] for need in collector.needs_of(self.classifier.lacks)}
                    )
                    store = store.with_item(self.key(kind), self.collect(kind, sample, cuts, needed))
                    wanted.remove(kind)
        return store


def small_run(*, gradients: bool = True) -> Run:
    """A run at linf:0.03 with a small profile."""
    subject = classifier() if gradients else WithoutGradients(classifier())
    return Run(subject, Settings(profile=SMALL, block_rows=8), Threat.parse("linf:0.03"))
