"""Gather the evidence of one model, chunk by chunk, in this process; every partial goes through the journal.

Partials may arrive in any order and from any earlier audit; they are joined in canonical example order, and each depends only on
its own rows. Fingerprints follow from what is given, so what a journal already holds is known before anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from audit.collect import COLLECTORS, FITS
from audit.collect.universal_perturbation import images_at_once
from audit.data import Chunk, CorruptedImages, Dataset
from audit.data.sampling import chunk
from audit.engine import fingerprint
from audit.engine.apart import SetApart, set_apart
from audit.engine.journal import Journal
from audit.engine.memory import give_back
from audit.engine.summary import predictions_of
from audit.evidence import (
    AT_ONCE,
    OF_REFERENCE,
    SET_APART,
    AnyEvidence,
    Evidence,
    EvidenceKey,
    EvidenceStore,
    Fitted,
    Ints,
    NeuronProfile,
    RowEvidence,
    WorstCase,
    merge,
    rows,
)
from audit.models import Classifier
from audit.models.composed import surrogate_of
from audit.plan import Stage
from audit.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far one stage of one model has come, in examples; `done == total` ends it. `reused` of them came from a journal."""

    model: str
    stage: str
    done: int
    total: int
    reused: int = 0


Listener = Callable[[Progress], None]


class Gatherer:
    """One model on one sample: what has been gathered so far, and the fingerprints of its partials."""

    def __init__(
        self,
        classifier: Classifier,
        dataset: Dataset,
        indices: Ints,
        settings: Settings,
        journal: Journal,
        listen: Listener,
        apart: SetApart | None = None,
        reference: Gatherer | None = None,
        corrupted: CorruptedImages | None = None,
    ) -> None:
        """`indices` is the sample in canonical order, along which positions in evidence count; `apart` is chosen unless given.

        `reference` is the model beside it, `corrupted` the folder that corrupted images are taken from.
        """
        self.classifier = classifier
        self.reference = reference
        self.store = EvidenceStore()
        self._dataset = dataset
        self._corrupted = corrupted
        self.indices = indices
        self._settings = settings
        self._journal = journal
        self._listen = listen
        self._model = fingerprint.model(classifier.identity, classifier.lacks, settings.block_rows)
        other = surrogate_of(classifier)
        self._surrogate = "" if other is None else fingerprint.model(other.identity, other.lacks, settings.block_rows)
        self._apart = set_apart(dataset, indices, settings) if apart is None else apart
        self._chunk_digests: dict[tuple[bool, int, int], list[str]] = {}
        self._prints: dict[EvidenceKey, tuple[str, ...]] = {}

    def gather(self, key: EvidenceKey, needs: Sequence[EvidenceKey], beside: Stage | None = None) -> None:
        """Add the evidence at `key` to the store; what it needs is already there.

        `beside` is a later stage whose evidence comes on the way: it goes to the journal, where that stage will find it.
        """
        prints = self.fingerprints(key, needs)
        found: AnyEvidence | None
        if key.kind in OF_REFERENCE:
            found = self._of_reference(key)
        elif key.kind in FITS:
            found = self._journal.find(prints[0])
            if found is None:
                found = FITS[key.kind].fit(self.store, key.threat)
                self._journal.keep(prints[0], found)
        else:
            on_the_way = [None] * len(prints) if beside is None else self.fingerprints(beside.key, beside.needs)
            found = merge(self._partials(key, prints, on_the_way))
            if isinstance(found, NeuronProfile):
                found = replace(found, source=self._apart.words)
        self.store = self.store.with_item(key, found)

    def _of_reference(self, key: EvidenceKey) -> AnyEvidence:
        """What the reference model gave: measured now, unless it has been already, and then never again."""
        assert self.reference is not None, "what a reference gave is planned beside one only"
        own = EvidenceKey(kind=OF_REFERENCE[key.kind])
        if own not in self.reference.store:
            self.reference.gather(own, ())
        return self.reference.store[own]

    def gather_answers(self, key: EvidenceKey) -> None:
        """Gather an opaque model's predictions, `key`, whatever a journal holds; every fingerprint then covers all of them.

        Nothing else stands in for its weights, and two models that answer with labels often agree on a part of the sample.
        """
        unknown = [None] * len(self._digests(key.kind))
        found = merge(self._partials(key, unknown, unknown))
        self.store = self.store.with_item(key, found)
        answers = fingerprint.answers(predictions_of(self.store).logits)
        self._model = fingerprint.model(self.classifier.identity, self.classifier.lacks, self._settings.block_rows, answers)
        self._prints.clear()
        self.fingerprints(key, ())

    def fingerprints(self, key: EvidenceKey, needs: Sequence[EvidenceKey]) -> tuple[str, ...]:
        """One per chunk (one for a fit), in canonical order; those of `needs` must have been asked for before."""
        if key not in self._prints:
            if key.kind in OF_REFERENCE:
                assert self.reference is not None, "what a reference gave is planned beside one only"
                self._prints[key] = self.reference.fingerprints(EvidenceKey(kind=OF_REFERENCE[key.kind]), ())
            elif key.kind in FITS:
                self._prints[key] = (fingerprint.fit(key, [text for need in needs for text in self._prints[need]]),)
            else:
                beside = self._beside(key.kind)
                self._prints[key] = tuple(
                    fingerprint.partial(
                        key, self._model, digest, self._settings, {str(need): self._print_of(need, i) for need in needs} | beside
                    )
                    for i, digest in enumerate(self._digests(key.kind))
                )
        return self._prints[key]

    def _beside(self, kind: Evidence) -> dict[str, str]:
        """What evidence of a kind depends on besides the model and the chunk."""
        if kind is Evidence.WORST_CASE_BLACK_BOX:
            return {"surrogate": self._surrogate}
        if kind is Evidence.CORRUPTIONS and self._corrupted is not None:
            return {"corrupted": self._corrupted.digest}
        return {}

    def held(self, key: EvidenceKey, needs: Sequence[EvidenceKey]) -> tuple[int, int]:
        """How many of the partials at `key` a journal already holds, and how many there are."""
        prints = self.fingerprints(key, needs)
        return sum(self._journal.holds(text) for text in prints), len(prints)

    def _print_of(self, need: EvidenceKey, chunk: int) -> str:
        """A chunk depends on the same chunk of rows, and of a fit on what is relied on, whatever it was fitted to.

        A fit that is not made yet may lie in a journal; else its own fingerprint stands in, which no evidence depends on.
        """
        if need.kind in SET_APART:
            return fingerprint.digest(self._prints[need])
        if need.kind not in FITS:
            return self._prints[need][chunk]
        own = self._prints[need][0]
        fit = self.store[need] if need in self.store else self._journal.find(own)
        return fingerprint.digest(fit.relied_on) if isinstance(fit, Fitted) else own

    def _digests(self, kind: Evidence) -> list[str]:
        total, rows = self._extent(kind)
        given = kind in SET_APART, total, rows
        if given not in self._chunk_digests:
            parts = (self._chunk(start, min(start + rows, total), apart=kind in SET_APART) for start in range(0, total, rows))
            self._chunk_digests[given] = [fingerprint.chunk(part) for part in parts]
        return self._chunk_digests[given]

    def _extent(self, kind: Evidence) -> tuple[int, int]:
        """How many images a kind is gathered on, and how many of them at a time."""
        if kind in AT_ONCE:
            count = min(len(self._apart.indices), images_at_once(self._apart.dataset.image_shape))
            return count, count
        return len(self._apart.indices if kind in SET_APART else self.indices), self._settings.chunk_rows

    def _chunk(self, start: int, stop: int, *, apart: bool) -> Chunk:
        """Rows [start, stop) of the sample, or of the images set apart, where positions still say where they are in the sample."""
        if not apart:
            return replace(chunk(self._dataset, self.indices, start, stop), corrupted=self._corrupted)
        found = chunk(self._apart.dataset, self._apart.indices, start, stop)
        return replace(found, positions=self._apart.positions[start:stop])

    def _partials(self, key: EvidenceKey, prints: Sequence[str | None], on_the_way: Sequence[str | None]) -> Iterator[RowEvidence]:
        """In order, from the journal where it holds them; without a fingerprint, past the journal.

        Where `on_the_way` has fingerprints, what comes beside is kept under them.
        """
        shown = reused = 0
        apart, collector = key.kind in SET_APART, COLLECTORS[key.kind]
        total, size = self._extent(key.kind)
        self._tell(key, 0, 0, total)
        for place, (text, other) in enumerate(zip(prints, on_the_way, strict=True)):
            start = place * size
            stop = min(start + size, total)
            part = None if text is None else self._journal.find(text)
            if part is None:
                given = (
                    self.classifier,
                    self._chunk(start, stop, apart=apart),
                    self._settings,
                    self._rows(start, stop),
                    key.threat,
                )
                if collector.beside is None or other is None:
                    part = collector.collect(*given)
                else:
                    part, found = collector.beside.collect(*given)
                    self._journal.keep(other, found)
                if text is not None:
                    self._journal.keep(text, part)
            else:
                reused += stop - start
            if isinstance(part, WorstCase):
                # The report shows the first failures of the sample; keeping more would tie memory to the data set.
                part = replace(part, shown=part.shown[: self._settings.shown_failures - shown])
                shown += len(part.shown)
            yield cast(RowEvidence, part)
            give_back()
            self._tell(key, stop, reused, total)

    def _rows(self, start: int, stop: int) -> EvidenceStore:
        return EvidenceStore(
            {key: value if isinstance(value, Fitted) else rows(value, start, stop) for key, value in self.store.items()}
        )

    def _tell(self, key: EvidenceKey, done: int, reused: int, total: int) -> None:
        label = self.classifier.identity.label
        self._listen(Progress(model=label, stage=str(key), done=done, total=total, reused=reused))
