"""Rank intervals of models on the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from audit import statistics
from audit.evidence import Bools
from audit.result import PairTest, Ranking, RankRow


def rank(dimension: str, metric: str, outcomes: Sequence[Bools], *, models: Sequence[int] | None = None) -> Ranking:
    """Rank K models by the share of successes on the same n examples; more is better.

    A model's rank interval runs from 1 + (models significantly better) to K - (models significantly worse), by exact McNemar tests
    with Holm's adjustment over all pairs. Models that the tests cannot tell apart share ranks.

    Args:
        dimension: what is ranked, in words.
        metric: the key of the ranked metric.
        outcomes: one (n,) column per model, in the order of the models.
        models: what each is called in the ranking; by default its place.
    """
    samples, names = len(outcomes[0]), range(len(outcomes)) if models is None else models
    if any(len(column) != samples for column in outcomes):
        raise ValueError("models can only be ranked on the same examples")
    pairs = list(combinations(range(len(outcomes)), 2))
    counts = [statistics.PairedCounts.of(outcomes[a], outcomes[b]) for a, b in pairs]
    p_values = [statistics.mcnemar(table) for table in counts]
    adjusted = statistics.holm(p_values) if pairs else []
    better = [0] * len(outcomes)
    worse = [0] * len(outcomes)
    tests = []
    for (a, b), table, p_value, adjusted_p in zip(pairs, counts, p_values, adjusted, strict=True):
        if adjusted_p < 1 - statistics.LEVEL:
            winner, loser = (a, b) if table.only_first > table.only_second else (b, a)
            better[loser] += 1
            worse[winner] += 1
        tests.append(
            PairTest(
                first=names[a],
                second=names[b],
                both_right=table.both_right,
                only_first=table.only_first,
                only_second=table.only_second,
                both_wrong=table.both_wrong,
                p_value=p_value,
                adjusted_p_value=adjusted_p,
            )
        )
    rows = []
    for index, column in enumerate(outcomes):
        interval = statistics.proportion(int(column.sum()), samples)
        rows.append(
            RankRow(
                model=names[index],
                rank_low=1 + better[index],
                rank_high=len(outcomes) - worse[index],
                value=float(column.mean()),
                low=interval.low,
                high=interval.high,
            )
        )
    rows.sort(key=lambda row: (row.rank_low, row.rank_high, -row.value, row.model))
    return Ranking(
        dimension=dimension,
        metric=metric,
        samples=samples,
        rows=tuple(rows),
        tests=tuple(tests),
        smallest_detectable=statistics.smallest_detectable_difference(samples, max(1, len(pairs))),
    )
