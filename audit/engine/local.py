"""Gather the evidence of one model, chunk by chunk, in this process; every partial goes through the journal.

Partials may arrive in any order and from any earlier audit; they are joined in canonical example order, and each depends only on
its own rows. Fingerprints follow from what is given, so what a journal already holds is known before anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from audit.collect import COLLECTORS, FITS
from audit.data import Dataset
from audit.data.sampling import chunk, chunks
from audit.engine import fingerprint
from audit.engine.journal import Journal
from audit.engine.memory import give_back
from audit.engine.summary import predictions_of
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, Fitted, Ints, RowEvidence, WorstCase, merge, rows
from audit.models import Classifier
from audit.models.composed import surrogate_of
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
    ) -> None:
        """`indices` is the sample in canonical order; positions in evidence count along it."""
        self.classifier = classifier
        self.store = EvidenceStore()
        self._dataset = dataset
        self.indices = indices
        self._settings = settings
        self._journal = journal
        self._listen = listen
        self._model = fingerprint.model(classifier.identity, classifier.lacks, settings.block_rows)
        other = surrogate_of(classifier)
        self._surrogate = "" if other is None else fingerprint.model(other.identity, other.lacks, settings.block_rows)
        self._chunk_digests: list[str] = []
        self._prints: dict[EvidenceKey, tuple[str, ...]] = {}

    def gather(self, key: EvidenceKey, needs: Sequence[EvidenceKey]) -> None:
        """Add the evidence at `key` to the store; what it needs is already there."""
        prints = self.fingerprints(key, needs)
        if key.kind in FITS:
            found = self._journal.find(prints[0])
            if found is None:
                found = FITS[key.kind].fit(self.store, key.threat)
                self._journal.keep(prints[0], found)
        else:
            found = merge(list(self._partials(key, prints)))
        self.store = self.store.with_item(key, found)

    def gather_answers(self, key: EvidenceKey) -> None:
        """Gather an opaque model's predictions, `key`, whatever a journal holds; every fingerprint then covers all of them.

        Nothing else stands in for its weights, and two models that answer with labels often agree on a part of the sample.
        """
        found = merge(list(self._partials(key, [None] * len(self._digests()))))
        self.store = self.store.with_item(key, found)
        answers = fingerprint.answers(predictions_of(self.store).logits)
        self._model = fingerprint.model(self.classifier.identity, self.classifier.lacks, self._settings.block_rows, answers)
        self._prints.clear()
        self.fingerprints(key, ())

    def fingerprints(self, key: EvidenceKey, needs: Sequence[EvidenceKey]) -> tuple[str, ...]:
        """One per chunk (one for a fit), in canonical order; those of `needs` must have been asked for before."""
        if key not in self._prints:
            if key.kind in FITS:
                self._prints[key] = (fingerprint.fit(key, [text for need in needs for text in self._prints[need]]),)
            else:
                beside = {"surrogate": self._surrogate} if key.kind is Evidence.WORST_CASE_BLACK_BOX else {}
                self._prints[key] = tuple(
                    fingerprint.partial(
                        key, self._model, digest, self._settings, {str(need): self._print_of(need, i) for need in needs} | beside
                    )
                    for i, digest in enumerate(self._digests())
                )
        return self._prints[key]

    def held(self, key: EvidenceKey, needs: Sequence[EvidenceKey]) -> tuple[int, int]:
        """How many of the partials at `key` a journal already holds, and how many there are."""
        prints = self.fingerprints(key, needs)
        return sum(self._journal.holds(text) for text in prints), len(prints)

    def _print_of(self, need: EvidenceKey, chunk: int) -> str:
        """A chunk depends on the same chunk of rows, and of a fit on what is relied on, whatever it was fitted to.

        A fit that is not made yet may lie in a journal; else its own fingerprint stands in, which no evidence depends on.
        """
        if need.kind not in FITS:
            return self._prints[need][chunk]
        own = self._prints[need][0]
        fit = self.store[need] if need in self.store else self._journal.find(own)
        return fingerprint.digest(fit.relied_on) if isinstance(fit, Fitted) else own

    def _digests(self) -> list[str]:
        if not self._chunk_digests:
            parts = chunks(self._dataset, self.indices, self._settings.chunk_rows)
            self._chunk_digests = [fingerprint.chunk(part) for part in parts]
        return self._chunk_digests

    def _partials(self, key: EvidenceKey, prints: Sequence[str | None]) -> Iterator[RowEvidence]:
        """In order, from the journal where it holds them; without a fingerprint, past the journal."""
        shown = reused = 0
        self._tell(key, 0, 0)
        for place, text in enumerate(prints):
            start = place * self._settings.chunk_rows
            stop = min(start + self._settings.chunk_rows, len(self.indices))
            part = None if text is None else self._journal.find(text)
            if part is None:
                images = chunk(self._dataset, self.indices, start, stop)
                part = COLLECTORS[key.kind].collect(self.classifier, images, self._settings, self._rows(start, stop), key.threat)
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
            self._tell(key, stop, reused)

    def _rows(self, start: int, stop: int) -> EvidenceStore:
        return EvidenceStore(
            {key: value if isinstance(value, Fitted) else rows(value, start, stop) for key, value in self.store.items()}
        )

    def _tell(self, key: EvidenceKey, done: int, reused: int) -> None:
        label = self.classifier.identity.label
        self._listen(Progress(model=label, stage=str(key), done=done, total=len(self.indices), reused=reused))
