"""The harness: what an attack is given, and what is believed of what it returns.

`Oracle` is the model as an attack sees it (passes counted per example, unanswerable rows set aside); `verify` clips proposals
into the ball and [0, 1], measures them in float64, and asks the model again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from audit.attacks.ball import Ball, distance
from audit.attacks.losses import Loss
from audit.data import Chunk
from audit.errors import ModelError
from audit.evidence import Bools, Floats, Ints
from audit.models import Classifier
from audit.vocabulary import Norm, Threat

# A proposal further out than float32 rounding explains has left its ball.
OUTSIDE_TOLERANCE = 1e-6
# Up to this many classes, a whole Jacobian costs less than the forward passes that single rows need.
MOST_CLASSES_AT_ONCE = 20


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The examples an attack works on: `images` (n, c, h, w) and `labels` (n,) on the device; `rows` (n,) index the chunk.

    `targets` (n,) are the classes that targeted losses aim at; the labels themselves where nothing was aimed.
    """

    images: torch.Tensor
    labels: torch.Tensor
    targets: torch.Tensor
    ids: tuple[str, ...]
    rows: Ints

    @classmethod
    def of(cls, chunk: Chunk, device: torch.device) -> Batch:
        """All examples of a chunk."""
        labels = torch.tensor(chunk.labels, dtype=torch.int64, device=device)
        return cls(
            images=torch.tensor(chunk.images, dtype=torch.float32, device=device),
            labels=labels,
            targets=labels,
            ids=tuple(str(example_id) for example_id in chunk.ids),
            rows=np.arange(len(chunk.labels), dtype=np.int64),
        )

    def take(self, index: torch.Tensor) -> Batch:
        """The examples at `index`, positions (m,) inside this batch."""
        picked = index.cpu().numpy()
        return Batch(
            images=self.images[index],
            labels=self.labels[index],
            targets=self.targets[index],
            ids=tuple(self.ids[i] for i in picked),
            rows=self.rows[picked],
        )

    def aimed(self, targets: torch.Tensor) -> Batch:
        """The same examples with the classes (n,) that targeted losses aim at."""
        return replace(self, targets=targets)

    def __len__(self) -> int:
        return len(self.ids)


class Oracle:
    """A classifier that counts per example. A row the model cannot answer comes back as NaN and is noted in `unanswered`."""

    def __init__(self, classifier: Classifier, size: int) -> None:
        self._classifier = classifier
        self.forward: Ints = np.zeros(size, dtype=np.int64)
        self.backward: Ints = np.zeros(size, dtype=np.int64)
        self.unanswered: Bools = np.zeros(size, dtype=np.bool_)

    def logits(self, batch: Batch, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, K) of `images` (n, c, h, w), which belong to the examples of `batch`."""
        self.forward[batch.rows] += 1
        (logits,) = self._answers(lambda index: (self._classifier.logits(images[index]),), images, (self._classifier.classes,))
        return self._noted(batch.rows, logits)

    def several(self, batch: Batch, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, m, K) of m images (n, m, c, h, w) for each example of `batch`, asked in one go."""
        count, most = images.shape[:2]
        self.forward[batch.rows] += most
        flat = images.flatten(0, 1)
        (logits,) = self._answers(lambda index: (self._classifier.logits(flat[index]),), flat, (self._classifier.classes,))
        repeated = np.repeat(batch.rows, most)
        return self._noted(repeated, logits).view(count, most, -1)

    def gradient(self, batch: Batch, images: torch.Tensor, loss: Loss) -> tuple[torch.Tensor, torch.Tensor]:
        """`loss_gradient` without the losses."""
        logits, _, gradient = self.loss_gradient(batch, images, loss)
        return logits, gradient

    def loss_gradient(self, batch: Batch, images: torch.Tensor, loss: Loss) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits (n, K), losses (n,) and the gradient of `loss` at `images` (n, c, h, w); components not finite count as zero."""
        self.forward[batch.rows] += 1
        self.backward[batch.rows] += 1

        def answer(index: torch.Tensor) -> tuple[torch.Tensor, ...]:
            labels, targets = batch.labels[index], batch.targets[index]
            return self._classifier.loss_gradient(images[index], lambda z, rows: loss(z, labels[rows], targets[rows]))

        logits, losses, gradient = self._answers(answer, images, (self._classifier.classes,), (), tuple(images.shape[1:]))
        if not bool(gradient.sum().isfinite()):
            gradient = torch.where(gradient.isfinite(), gradient, torch.zeros_like(gradient))
        return self._noted(batch.rows, logits), losses, gradient

    def class_gradients(self, batch: Batch, images: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, K) and the gradients (n, m, c, h, w) of the logits of `classes` (n, m) at `images` (n, c, h, w).

        All K at once from one forward pass where K is small; with many classes one pass for each of the m. Components that are
        not finite count as zero.
        """
        count, wanted = self._classifier.classes, classes.shape[1]
        if count <= max(MOST_CLASSES_AT_ONCE, wanted):
            self.forward[batch.rows] += 1
            self.backward[batch.rows] += count
            shape = tuple(images.shape[1:])
            logits, rows = self._answers(
                lambda index: self._classifier.jacobian(images[index]), images, (count,), (count, images[:1].numel())
            )
            logits = self._noted(batch.rows, logits)
            chosen = rows.gather(1, classes[:, :, None].expand(-1, -1, rows.shape[2])).view(-1, wanted, *shape)
            return logits, torch.where(chosen.isfinite(), chosen, torch.zeros_like(chosen))
        parts = []
        for column in range(wanted):
            logits, gradient = self.gradient(batch.aimed(classes[:, column]), images, _logit_of_target)
            parts.append(gradient)
        return logits, torch.stack(parts, dim=1)

    def _answers(
        self, call: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], images: torch.Tensor, *shapes: tuple[int, ...]
    ) -> tuple[torch.Tensor, ...]:
        """`call` on all rows, halving where the model refuses, until only the rows it cannot answer are left as NaN."""

        def halve(index: torch.Tensor) -> tuple[torch.Tensor, ...]:
            try:
                return call(index)
            except ModelError:
                if len(index) == 1:
                    return tuple(torch.full((1, *shape), torch.nan, device=images.device) for shape in shapes)
                middle = len(index) // 2
                halves = zip(halve(index[:middle]), halve(index[middle:]), strict=True)
                return tuple(torch.cat(pair) for pair in halves)

        return halve(torch.arange(len(images), device=images.device))

    def _noted(self, rows: Ints, logits: torch.Tensor) -> torch.Tensor:
        unanswered = ~logits.isfinite().all(dim=1)
        self.unanswered[rows[unanswered.cpu().numpy()]] = True
        return torch.where(unanswered[:, None], torch.full_like(logits, torch.nan), logits)


def _logit_of_target(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return logits.gather(1, targets[:, None])[:, 0]


def misclassified(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Whether the largest logit is not the label's, (n,); False for a row that was not answered."""
    return (logits.argmax(dim=1) != labels) & ~logits.isnan().any(dim=1)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """Proposals after the harness: `images` inside the ball and [0, 1], the model's `logits` (n, K) on them, NaN if unanswered.

    `distance` (n,) is measured in float64 in the threat's norm; `outside` (n,) marks proposals that had left the ball or range.
    """

    images: torch.Tensor
    logits: Floats
    broken: Bools
    answered: Bools
    distance: Floats
    outside: Bools


def verify(oracle: Oracle, batch: Batch, proposals: torch.Tensor, threat: Threat) -> Verified:
    """Clip `proposals` (n, c, h, w), measure them, and ask the model again; a proposal that is not finite counts as x itself."""
    finite = proposals.isfinite().flatten(1).all(dim=1)
    points = torch.where(finite.view(-1, 1, 1, 1), proposals, batch.images)
    beyond = torch.maximum(
        distance(points, points.clamp(0, 1), Norm.LINF), distance(points, batch.images, threat.norm) - threat.epsilon
    )
    images = Ball.around(batch.images, threat).confine(points)
    logits = oracle.logits(batch, images)
    return Verified(
        images=images,
        logits=logits.double().cpu().numpy(),
        broken=misclassified(logits, batch.labels).cpu().numpy(),
        answered=~logits.isnan().any(dim=1).cpu().numpy(),
        distance=distance(images, batch.images, threat.norm).cpu().numpy(),
        outside=(~finite | (beyond > OUTSIDE_TOLERANCE)).cpu().numpy(),
    )
