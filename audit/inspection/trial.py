"""One pass over the sample under every candidate at once: predictions, or why the model does not take it.

Memory holds one block of images, one prepared block at a time, and one class and one loss per image and candidate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from audit.data import Dataset
from audit.data.sampling import chunks
from audit.errors import AuditError, InputError, OutOfMemory
from audit.evidence import Floats, Ints
from audit.inspection.candidates import Candidate
from audit.models.blocks import map_blocks
from audit.models.loading import Opened
from audit.models.outputs import Outputs, as_logits, look
from audit.models.scores import check_finite, check_scores, is_one_value
from audit.models.shapes import check_declared
from audit.text import printable


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What the model gave for one block: scores (b, K), and whether they were one value per image."""

    scores: torch.Tensor
    one_value: bool


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Classes and losses, block by block, where the scores are taken for logits, or for probabilities."""

    predicted: list[Ints] = field(default_factory=list)
    losses: list[Floats] = field(default_factory=list)

    def add(self, scores: torch.Tensor, outputs: Outputs, labels: Ints) -> None:
        """Read one block (b, K) with its labels (b,)."""
        logits = as_logits(scores.double(), outputs)
        self.predicted.append(logits.argmax(dim=1).numpy().astype(np.int64))
        known = (labels >= 0) & (labels < logits.shape[1])
        own = logits.log_softmax(dim=1).gather(1, torch.from_numpy(np.where(known, labels, 0))[:, None])[:, 0].numpy()
        self.losses.append(np.where(known, -own, np.nan))


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What came of a candidate: `predicted` (n,) classes, or `refused`, the reason why there are none.

    `losses` (n,) is -log p of the label, NaN where the label is none of the model's classes, or the model answers with labels.
    `outputs` is a digest of all scores: candidates that share it cannot be told apart by any score on this sample. `rows_run` are
    the images that were run for it alone; the others' prepared images were those of an earlier candidate.
    """

    candidate: Candidate
    predicted: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    losses: Floats = field(default_factory=lambda: np.zeros(0))
    classes: int = 0
    outputs: str = ""
    rows_run: int = 0
    refused: str | None = None


def try_all(
    model: Opened,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    indices: Ints,
    labels: Ints,
    block_rows: int,
    listen: Callable[[int], None] = lambda _: None,
) -> list[Tried]:
    """Run every candidate on the sample; each distinct prepared block is run once, however many candidates make it.

    Args:
        model: as opened.
        candidates: what to try; see `candidates`.
        dataset: the images.
        indices: which of them, (n,).
        labels: (n,) their classes.
        block_rows: rows per block, unless the model fixes them; the last block is padded.
        listen: called with the number of images done.

    Raises:
        DataError: an image cannot be read.
        OutOfMemory: a block does not fit.
    """
    rows = model.declared.rows or block_rows
    runs = [_Run(candidate, model, dataset.image_shape, rows) for candidate in candidates]
    for chunk in chunks(dataset, indices, rows):
        seen: dict[bytes, _Answer | str] = {}
        for run in runs:
            run.add(torch.from_numpy(chunk.images), labels[chunk.positions], seen)
        listen(int(chunk.positions[-1]) + 1)
    return [run.tried() for run in runs]


class _Run:
    """A candidate on its way through the sample."""

    def __init__(self, candidate: Candidate, model: Opened, image_shape: tuple[int, int, int], rows: int) -> None:
        self._candidate = candidate
        self._rows = rows
        self._scores = model.scores
        # Which of the two holds is known once every block was seen: one image may look like either.
        self._as_logits, self._as_probabilities = _Reading(), _Reading()
        self._labels_only = True
        self._digest = hashlib.sha256()
        self._classes: int | None = None
        self._rows_run = 0
        self._refused: str | None = None
        try:
            candidate.spec.check_channels(image_shape[0])
            check_declared(model.declared.shape, candidate.spec, image_shape, "the model")
        except InputError as error:
            self._refused = str(error).removeprefix("the model: ").removeprefix("input spec: ")

    def add(self, images: torch.Tensor, labels: Ints, seen: dict[bytes, _Answer | str]) -> None:
        """Run one block of images (n, c, h, w) with their labels (n,); `seen` holds what prepared blocks gave."""
        if self._refused is not None:
            return
        prepared = self._candidate.spec.prepare(images)
        bytes_of = prepared.flatten().view(torch.uint8).numpy().tobytes()  # NumPy has no bfloat16
        key = hashlib.sha256(repr(tuple(prepared.shape)).encode() + bytes_of).digest()
        if key not in seen:
            seen[key] = self._outcome(prepared)
            self._rows_run += len(labels)
        outcome = seen[key]
        if isinstance(outcome, _Answer) and self._classes not in (None, outcome.scores.shape[1]):
            outcome = f"gives {outcome.scores.shape[1]} classes for some images and {self._classes} for others"
        if isinstance(outcome, str):
            self._refused = outcome
            return
        scores = outcome.scores
        self._classes = scores.shape[1]
        self._digest.update(scores.numpy().tobytes())
        self._as_logits.add(scores, Outputs.LOGITS, labels)
        outputs, _ = look(scores, one_value=outcome.one_value)
        if outputs.stated_as == "probabilities":
            self._as_probabilities.add(scores, outputs, labels)
        self._labels_only = self._labels_only and not outcome.one_value and bool(((scores == 0) | (scores == 1)).all())

    def _outcome(self, prepared: torch.Tensor) -> _Answer | str:
        one_value = False

        def run(block: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor]:
            nonlocal one_value
            given = self._scores(block)
            one_value = is_one_value(given, len(block))
            return (check_scores(given, len(block), "the model"),)

        try:
            # `map_blocks` hands out copies, so a model may change its input in place.
            (scores,) = map_blocks(prepared, self._rows, run)
            check_finite(scores, "the model")
        except OutOfMemory:
            raise
        except AuditError as error:
            return str(error).removeprefix("the model: ")
        except Exception as error:  # a model may raise anything on an input it was not made for
            return printable(str(error).strip().split("\n")[0] or type(error).__name__, 160)
        return _Answer(scores=scores, one_value=one_value)

    def tried(self) -> Tried:
        """The result, once every block was added."""
        stated = self._candidate.spec.outputs
        look_so = len(self._as_probabilities.predicted) == len(self._as_logits.predicted)
        if self._refused is None and stated == "probabilities" and not look_so:
            self._refused = "outputs=probabilities was stated, but the outputs are not; state outputs=logits or leave it out"
        if self._refused is not None:
            return Tried(candidate=self._candidate, refused=self._refused)
        reading = self._as_probabilities if look_so and stated != "logits" else self._as_logits
        losses = np.concatenate(reading.losses)
        return Tried(
            candidate=self._candidate,
            predicted=np.concatenate(reading.predicted),
            # Labels arrive as one-hot rows, which have no probabilities.
            losses=np.full_like(losses, np.nan) if self._labels_only else losses,
            classes=self._classes or 0,
            outputs=self._digest.hexdigest(),
            rows_run=self._rows_run,
        )
