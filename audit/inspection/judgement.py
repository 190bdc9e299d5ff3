"""What the trial shows: which specification is right, which cannot be told from it, and what that means for epsilon. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from audit import statistics
from audit.engine.labels import Relabelling, relabelling
from audit.evidence import Bools, Ints
from audit.inspection.candidates import Candidate, scale
from audit.inspection.trial import Tried
from audit.result import Interval
from audit.statistics import PairedCounts

SIGNIFICANT = 1 - statistics.LEVEL


class Standing(StrEnum):
    """How the best specification stands."""

    ALONE = "alone"
    AMBIGUOUS = "ambiguous"
    CHANCE = "chance"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One specification's accuracy with its 95 % interval.

    `same` are candidates that gave the same scores on every image and take epsilon alike. `p_value` is that of the exact McNemar
    test against the best on the same images, after Holm over all candidates; None for the best itself. `epsilon` (lowest, highest
    over the channels) is how many times further a perturbation of the image moves the input of the model than under the best.
    `log_loss` is the mean over the images, in nats; a hint only, since the scale of the input changes it too. None where the labels
    are not the model's.
    """

    candidate: Candidate
    same: tuple[Candidate, ...]
    right: int
    interval: Interval
    log_loss: float | None
    p_value: float | None
    epsilon: tuple[float, float]

    @property
    def tied(self) -> bool:
        """Whether it cannot be told from the best."""
        return self.p_value is not None and self.p_value >= SIGNIFICANT


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Rows by accuracy, the best first; `chance` is the share of the largest class in the sample.

    `labels` is what looks wrong with the labels; where `corrected`, the rows rest on the labels put right, since with the given
    ones every candidate guesses.
    """

    standing: Standing
    rows: tuple[Row, ...]
    samples: int
    chance: float
    labels: Relabelling | None
    corrected: bool

    @property
    def best(self) -> Row:
        """The most accurate; among equals that of the smallest log loss, then the simplest."""
        return self.rows[0]

    @property
    def settled(self) -> bool:
        """Whether one specification stands alone, with the labels as they are."""
        return self.standing is Standing.ALONE and self.labels is None

    @property
    def rivals(self) -> tuple[Row, ...]:
        """Those that cannot be told from the best."""
        return tuple(row for row in self.rows if row.tied)


def judge(tried: Sequence[Tried], labels: Ints, channels: int) -> Judgement:
    """Rank what was tried.

    Labels that are off by one or in another order are noticed under any candidate, where none is better than guessing, and the
    ranking is then made with the labels put right.

    Args:
        tried: at least one that was not refused.
        labels: (n,) classes of the images.
        channels: of the data's images.
    """
    groups = _same_together([each for each in tried if each.refused is None], channels)
    leaders = [group[0] for group in groups]
    chance = float(np.bincount(labels).max()) / len(labels)
    guesses = _guesses(leaders, labels, chance)
    mended = _mended(leaders, labels, chance) if guesses else None
    truth = labels if mended is None else mended.labels
    correct = [each.predicted == truth for each in leaders]
    losses = [None if mended is not None or np.isnan(each.losses).any() else float(each.losses.mean()) for each in leaders]
    order = sorted(range(len(leaders)), key=lambda place: (-int(correct[place].sum()), losses[place] or 0.0))
    rows = _rows(
        [groups[place] for place in order], [correct[place] for place in order], [losses[place] for place in order], channels
    )
    best = leaders[order[0]]
    standing = Standing.AMBIGUOUS if any(row.tied for row in rows) else Standing.ALONE
    return Judgement(
        standing=Standing.CHANCE if guesses and mended is None else standing,
        rows=rows,
        samples=len(labels),
        chance=chance,
        labels=mended if guesses else relabelling(labels, best.predicted, best.classes),
        corrected=mended is not None,
    )


def _mended(leaders: Sequence[Tried], labels: Ints, chance: float) -> Relabelling | None:
    """The relabelling under which some candidate does best, unless that is luck: three more ways to read the labels were tried."""
    found = [relabelling(labels, each.predicted, each.classes) for each in leaders]
    best = max((each for each in found if each is not None), key=lambda each: each.accuracy, default=None)
    return None if best is None or _guesses(leaders, best.labels, chance, ways=4) else best


def _same_together(accepted: Sequence[Tried], channels: int) -> list[list[Tried]]:
    groups: dict[tuple[object, ...], list[Tried]] = {}
    for each in accepted:
        key = (each.outputs, each.candidate.spec.size, _by_colour(each.candidate, channels))
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _by_colour(candidate: Candidate, channels: int) -> tuple[float, ...]:
    """The scale per channel of the image, whatever order the model wants."""
    values = scale(candidate.spec, channels)
    return values[::-1] if candidate.spec.channels == "BGR" else values


def _guesses(leaders: Sequence[Tried], labels: Ints, chance: float, ways: int = 1) -> bool:
    """Whether the best of so many is no better than always answering the largest class (exact binomial test, Bonferroni)."""
    most = max(int(np.sum(each.predicted == labels)) for each in leaders)
    return statistics.exceeds(most, len(labels), chance) * len(leaders) * ways >= SIGNIFICANT


def _rows(
    groups: Sequence[Sequence[Tried]], correct: Sequence[Bools], losses: Sequence[float | None], channels: int
) -> tuple[Row, ...]:
    tests = [statistics.mcnemar(PairedCounts.of(correct[0], other)) for other in correct[1:]]
    p_values = [None, *statistics.holm(tests)]
    base = _by_colour(groups[0][0].candidate, channels)
    rows = []
    for group, right, loss, p_value in zip(groups, correct, losses, p_values, strict=True):
        own = _by_colour(group[0].candidate, channels)
        ratios = [mine / its for mine, its in zip(own, base, strict=True)] if len(own) == len(base) else [own[0] / base[0]]
        rows.append(
            Row(
                candidate=group[0].candidate,
                same=tuple(each.candidate for each in group[1:]),
                right=int(right.sum()),
                interval=statistics.proportion(int(right.sum()), len(right)),
                log_loss=loss,
                p_value=p_value,
                epsilon=(min(ratios), max(ratios)),
            )
        )
    return tuple(rows)
