"""The spectrum of the Fisher information of a model that can only be asked: `audit.estimate_fisher_spectrum`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from audit.errors import InputError, ModelError
from audit.evidence import Floats, Ints, Strings
from audit.fisher.directions import Directions, best_kind, check_budget
from audit.fisher.given import Array, check_repeatable, images_of, temperature_of
from audit.fisher.queries import MEASURED, directions_within, estimate
from audit.fisher.sampling import interval

DEFAULT_DIRECTIONS = 128
OUTPUTS = ("auto", "probabilities", "logits")
# Sums that differ from 1 by more are no probabilities; rounding to two decimals over ten classes stays below.
_SUM_TOLERANCE = 0.05
_FLOOR = 1e-30


@dataclass(frozen=True, kw_only=True)
class EstimateOfImages:
    """Per image (n,), in 1 / pixel range²; NaN where no output could be seen to move.

    `interval` is (low, high) at 95 %, from the sampling of directions and the finite-difference step; `lower_bound` holds but for
    that step. `standard_error` is relative; `step` is in L2. `status` is "measured", "saturated" or "not_smooth".
    """

    temperature: float
    directions: int
    kind: Directions
    lambda_max: Floats
    trace: Floats
    interval: tuple[Floats, Floats]
    lower_bound: Floats
    standard_error: Floats
    step: Floats
    queries: Ints
    status: Strings

    @property
    def effective_rank(self) -> Floats:
        """Trace / lambda_max, (n,)."""
        return self.trace / self.lambda_max

    def kl_radius(self, tau: float = 0.1) -> Floats:
        """sqrt(2 tau / lambda_max), (n,): the L2 change that moves the outputs by tau nats; second order, not a guarantee."""
        return np.sqrt(2 * tau / self.lambda_max)


def estimate_fisher_spectrum(
    predict: Callable[[np.ndarray], Array],
    inputs: Array,
    *,
    directions: int | None = None,
    max_queries: int | None = None,
    kind: str = "auto",
    labels: Array | None = None,
    temperature: float | None = None,
    outputs: str = "auto",
    seed: int = 0,
) -> EstimateOfImages:
    """Estimate the spectrum of F(x) at each image from answers alone: central differences of 2 sqrt(p).

    Args:
        predict: images (m, c, h, w), NumPy, -> logits or probabilities (m, K). Images leave [0, 1] by the step, up to 0.01 per
            value; where `predict` raises, they are asked inside.
        inputs: images (n, c, h, w) in [0, 1].
        directions: m per image; 128 by default.
        max_queries: images that `predict` may be given in all, from which m follows where `directions` does not say it.
        kind: orthogonal, stratified (half of them low frequencies) or coordinate (every pixel); auto takes the best for m.
        labels: (n,) class numbers, to fit the temperature by likelihood.
        temperature: T of softmax(z / T); by default fitted to the labels, or to a mean entropy of 0.1 ln K without any.
        outputs: auto, probabilities or logits.
        seed: of the directions.

    Raises:
        InputError: inputs cannot be used, the budget leaves fewer than two directions, or `predict` gives labels only.
        ModelError: its answers are not finite (m, K) scores with K >= 2, no probabilities although stated or looking so, or random.

    >>> import audit, numpy as np
    >>> def predict(images):
    ...     z = 2 * images.reshape(len(images), -1)[:, :1]
    ...     return np.concatenate([z, 0 * z], axis=1)
    >>> images = np.zeros((1, 1, 2, 2))
    >>> found = audit.estimate_fisher_spectrum(predict, images, temperature=1, outputs="logits")  # all 4 directions
    >>> round(float(found.lambda_max[0]), 4), found.status[0].item(), int(found.queries[0])
    (1.0, 'measured', 40)
    """
    images = images_of(inputs)
    if outputs not in OUTPUTS:
        raise InputError(f"outputs {outputs!r} is not known; write {', '.join(OUTPUTS)}")
    if kind != "auto" and kind not in set(Directions):
        raise InputError(f"kind {kind!r} is not known; write auto, {', '.join(Directions)}")
    dimension = images[0].numel()
    m = _directions(directions, max_queries, len(images), dimension, kind)
    chosen = best_kind(dimension, m) if kind == "auto" else Directions(kind)
    asked = _Asked(predict, outputs)
    clean = asked.settle(images)
    check_repeatable(clean, asked.logits(images).numpy())
    t = temperature_of(clean, labels, temperature)
    found = []
    for place, image in enumerate(images):
        state = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
        found.append(estimate(asked, image, t, m, torch.Generator().manual_seed(state), chosen))

    def column(name: str) -> Floats:
        return np.array([getattr(each, name) for each in found], dtype=np.float64)

    status = np.array([each.status for each in found], dtype=np.str_)
    if len(found) and (status != MEASURED).all() and asked.one_hot:
        raise InputError(
            "every answer is one-hot: with label-only access the Fisher information cannot be estimated; ask for probabilities or "
            "logits, or measure distances to the decision boundary instead"
        )
    return EstimateOfImages(
        temperature=t,
        directions=dimension if chosen is Directions.COORDINATE else min(m, dimension),
        kind=chosen,
        lambda_max=column("lambda_max"),
        trace=column("trace"),
        interval=interval(column("lambda_max"), column("standard_error"), column("step_error")),
        lower_bound=column("lower_bound"),
        standard_error=column("standard_error"),
        step=column("step"),
        queries=np.array([each.queries for each in found], dtype=np.int64),
        status=status,
    )


def _directions(stated: int | None, budget: int | None, images: int, dimension: int, kind: str) -> int:
    """How many directions per image are asked for and allowed."""
    if budget is None:
        m = DEFAULT_DIRECTIONS if stated is None else stated
        check_budget(m, dimension)
        return m
    # Each image is asked about twice before anything is measured.
    allowed = directions_within(budget // images - 2, dimension)
    check_budget(allowed, dimension, f" ({budget} queries for {images} images)")
    if (stated is not None and stated > allowed) or (kind == Directions.COORDINATE and allowed < dimension):
        raise InputError(
            f"{budget} queries for {images} images allow {allowed} directions, fewer than asked for; allow more queries"
        )
    m = allowed if stated is None else stated
    check_budget(m, dimension)
    return m


class _Asked:
    """Answers as logits or log-probabilities, checked."""

    def __init__(self, predict: Callable[[np.ndarray], Array], outputs: str) -> None:
        self._predict = predict
        self._outputs = outputs
        self.one_hot = True

    def settle(self, images: torch.Tensor) -> Floats:
        """The answers (n, K) to the clean images, which decide what the outputs are."""
        scores = self._scores(images)
        shares = bool(((scores >= 0) & (scores <= 1)).all())
        sums = bool((np.abs(scores.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())
        if self._outputs == "auto":
            if shares and not sums:
                raise ModelError(
                    "all outputs lie in [0, 1], but rows do not sum to 1, as with one sigmoid per class; give softmax "
                    "probabilities, or state outputs='logits' if that is what they are"
                )
            self._outputs = "probabilities" if shares else "logits"
        return self._as_logits(scores)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits or log-probabilities (m, K), float64."""
        return torch.from_numpy(self._as_logits(self._scores(images)))

    def _as_logits(self, scores: Floats) -> Floats:
        self.one_hot = self.one_hot and bool(((scores == 0) | (scores == 1)).all())
        if self._outputs == "logits":
            return scores
        if scores.min() < 0 or (np.abs(scores.sum(axis=1) - 1) > _SUM_TOLERANCE).any():
            raise ModelError(
                f"outputs are no probabilities: rows sum to {scores.sum(axis=1).min():.3g} and up, the smallest value is "
                f"{scores.min():.3g}; give softmax probabilities, or state outputs='logits' if that is what they are"
            )
        return np.log(np.maximum(scores, _FLOOR))

    def _scores(self, images: torch.Tensor) -> Floats:
        try:
            answer = self._predict(images.numpy())
        except Exception as error:  # a function may raise anything
            raise ModelError(f"predict raises {type(error).__name__}: {error}") from error
        scores = np.asarray(answer.detach().cpu() if isinstance(answer, torch.Tensor) else answer)
        if scores.ndim == 1 or scores.dtype.kind in "iuUS":
            raise InputError(
                "predict gives labels only: with label-only access the Fisher information cannot be estimated; let it return "
                "probabilities or logits (n, K)"
            )
        if scores.ndim != 2 or len(scores) != len(images) or scores.shape[1] < 2:
            raise ModelError(f"predict gives the shape {scores.shape} for {len(images)} images, expected (n, K) with K >= 2")
        scores = scores.astype(np.float64)
        if not np.isfinite(scores).all():
            raise ModelError(f"{int((~np.isfinite(scores)).any(axis=1).sum())} of {len(scores)} answers are not finite")
        return scores
