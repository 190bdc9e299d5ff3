"""Gather one kind of evidence, chunk by chunk, in this process.

Parts may be computed in any order; they are joined in canonical example order, and a part depends only on its own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from audit.collect import COLLECTORS, FITS
from audit.data import Dataset
from audit.data.sampling import chunks
from audit.evidence import AnyEvidence, EvidenceKey, EvidenceStore, Ints, RowEvidence, Temperature, WorstCase, merge, rows
from audit.models import Classifier
from audit.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far one stage of one model has come, in examples; `done == total` ends it."""

    model: str
    stage: str
    done: int
    total: int


Listener = Callable[[Progress], None]


def gather(
    classifier: Classifier,
    dataset: Dataset,
    indices: Ints,
    key: EvidenceKey,
    store: EvidenceStore,
    settings: Settings,
    listen: Listener,
) -> AnyEvidence:
    """The evidence at `key` over the sampled `indices`, joined in canonical order.

    Args:
        classifier: the model under audit.
        dataset: where images are read from, lazily.
        indices: the sample in canonical order; positions in evidence count along it.
        key: what to gather.
        store: the evidence gathered so far; whatever this kind needs is in it.
        settings: the audit's settings.
        listen: told at the start and after every chunk.
    """
    if key.kind in FITS:
        return FITS[key.kind].fit(store)
    collector = COLLECTORS[key.kind]
    parts: list[RowEvidence] = []
    shown = 0
    listen(Progress(model=classifier.identity.label, stage=str(key), done=0, total=len(indices)))
    for chunk in chunks(dataset, indices, settings.chunk_rows):
        start, stop = int(chunk.positions[0]), int(chunk.positions[-1]) + 1
        part = collector.collect(classifier, chunk, settings, _rows_of(store, start, stop), key.threat)
        if isinstance(part, WorstCase):
            # The report shows the first failures of the sample; keeping more would tie memory to the data set.
            part = replace(part, shown=part.shown[: settings.shown_failures - shown])
            shown += len(part.shown)
        parts.append(part)
        listen(Progress(model=classifier.identity.label, stage=str(key), done=stop, total=len(indices)))
    return merge(parts)


def _rows_of(store: EvidenceStore, start: int, stop: int) -> EvidenceStore:
    return EvidenceStore(
        {key: value if isinstance(value, Temperature) else rows(value, start, stop) for key, value in store.items()}
    )
