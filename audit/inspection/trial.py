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
from audit.models.outputs import PROBABILITY_FLOOR, are_probabilities
from audit.models.scores import check_finite, check_scores
from audit.models.shapes import check_declared
from audit.text import printable


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What came of a candidate: `predicted` (n,) classes, or `refused`, the reason why there are none.

    `losses` (n,) is -log p of the label, NaN where the label is none of the model's classes. `outputs` is a digest of all scores:
    candidates that share it cannot be told apart by any score on this sample. `rows_run` are the images that were run for it alone;
    the others' prepared images were those of an earlier candidate.
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
        seen: dict[bytes, torch.Tensor | str] = {}
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
        self._parts: list[Ints] = []
        self._losses: list[Floats] = []
        self._digest = hashlib.sha256()
        self._classes: int | None = None
        self._rows_run = 0
        self._refused: str | None = None
        try:
            candidate.spec.check_channels(image_shape[0])
            check_declared(model.declared.shape, candidate.spec, image_shape, "the model")
        except InputError as error:
            self._refused = str(error).removeprefix("the model: ").removeprefix("input spec: ")

    def add(self, images: torch.Tensor, labels: Ints, seen: dict[bytes, torch.Tensor | str]) -> None:
        """Run one block of images (n, c, h, w) with their labels (n,); `seen` holds what prepared blocks gave."""
        if self._refused is not None:
            return
        prepared = self._candidate.spec.prepare(images)
        key = hashlib.sha256(repr(tuple(prepared.shape)).encode() + prepared.numpy().tobytes()).digest()
        if key not in seen:
            seen[key] = self._outcome(prepared)
            self._rows_run += len(labels)
        outcome = seen[key]
        if isinstance(outcome, torch.Tensor) and self._classes not in (None, outcome.shape[1]):
            outcome = f"gives {outcome.shape[1]} classes for some images and {self._classes} for others"
        if isinstance(outcome, str):
            self._refused = outcome
            return
        self._classes = outcome.shape[1]
        self._digest.update(outcome.numpy().tobytes())
        self._parts.append(outcome.argmax(dim=1).numpy().astype(np.int64))
        self._losses.append(_losses(outcome, labels))

    def _outcome(self, prepared: torch.Tensor) -> torch.Tensor | str:
        try:
            # `map_blocks` hands out copies, so a model may change its input in place.
            (scores,) = map_blocks(
                prepared, self._rows, lambda block, _: (check_scores(self._scores(block), len(block), "the model"),)
            )
            check_finite(scores, "the model")
        except OutOfMemory:
            raise
        except AuditError as error:
            return str(error).removeprefix("the model: ")
        except Exception as error:  # a model may raise anything on an input it was not made for
            return printable(str(error).strip().split("\n")[0] or type(error).__name__, 160)
        return scores

    def tried(self) -> Tried:
        """The result, once every block was added."""
        if self._refused is not None:
            return Tried(candidate=self._candidate, refused=self._refused)
        return Tried(
            candidate=self._candidate,
            predicted=np.concatenate(self._parts),
            losses=np.concatenate(self._losses),
            classes=self._classes or 0,
            outputs=self._digest.hexdigest(),
            rows_run=self._rows_run,
        )


def _losses(scores: torch.Tensor, labels: Ints) -> Floats:
    values = scores.double()
    logs = values.clamp(min=PROBABILITY_FLOOR).log() if are_probabilities(scores) else values.log_softmax(dim=1)
    known = (labels >= 0) & (labels < scores.shape[1])
    own = logs.gather(1, torch.from_numpy(np.where(known, labels, 0))[:, None])[:, 0].numpy()
    return np.where(known, -own, np.nan)
