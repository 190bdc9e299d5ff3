"""Rankings of the audited models, one per dimension, on the same examples and the same kind of attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from audit.compare.ranking import rank
from audit.engine.summary import ARMS, predictions_of
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, WorstCase
from audit.metrics.probe_checks import beats_white_box
from audit.result import LeftOut, Ranking
from audit.vocabulary import Threat

WHITE_BOX, BLACK_BOX = Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX
METRICS = {WHITE_BOX: "adversarial_accuracy_white_box", BLACK_BOX: "adversarial_accuracy_black_box"}


def rankings(
    stores: Sequence[EvidenceStore], threats: tuple[Threat, ...], skipped: Sequence[Mapping[str, str]]
) -> tuple[Ranking, ...]:
    """Clean accuracy, then accuracy under attack per threat; nothing for a single model.

    A query-only accuracy is not comparable with a white-box one: all models are ranked by one arm, the one that most of them have.
    That is the white-box one among equals, unless one of the models is better at hiding its gradients than at resisting (honesty
    check 7). Models that lack the arm are left out and named.

    Args:
        stores: the evidence of each model.
        threats: the audited budgets.
        skipped: per model why evidence is missing, by its key in words.
    """
    if len(stores) < 2:
        return ()
    found = [rank("Clean accuracy", "clean_accuracy", [predictions_of(store).correct for store in stores])]
    return (*found, *(_under_attack(stores, threat, skipped) for threat in threats))


def _under_attack(stores: Sequence[EvidenceStore], threat: Threat, skipped: Sequence[Mapping[str, str]]) -> Ranking:
    keys = {kind: EvidenceKey(kind=kind, threat=threat) for kind in (WHITE_BOX, BLACK_BOX)}
    having = {kind: [index for index, store in enumerate(stores) if key in store] for kind, key in keys.items()}
    kind = WHITE_BOX
    if len(having[BLACK_BOX]) > len(having[WHITE_BOX]) or _gradients_mislead(
        [stores[index] for index in having[WHITE_BOX]], threat
    ):
        kind = BLACK_BOX
    dimension, metric = f"Accuracy under {ARMS[kind]} attack, {threat.label}", f"{METRICS[kind]}/{threat.key}"
    left_out = tuple(
        LeftOut(model=index, because=skipped[index].get(str(keys[kind]), f"no {ARMS[kind]} attack was run"))
        for index in range(len(stores))
        if index not in having[kind]
    )
    if len(having[kind]) < 2:
        return Ranking(
            dimension=dimension,
            metric=metric,
            samples=len(predictions_of(stores[0]).labels),
            rows=(),
            tests=(),
            smallest_detectable=None,
            left_out=left_out,
        )
    columns = [stores[index].get_as(WorstCase, keys[kind]).robust for index in having[kind]]
    return replace(rank(dimension, metric, columns, models=having[kind]), left_out=left_out)


def _gradients_mislead(stores: Sequence[EvidenceStore], threat: Threat) -> bool:
    """Whether the query-only arm could rank all of these models, and broke what the white-box arm of one of them could not."""
    white_box, query_only = (EvidenceKey(kind=kind, threat=threat) for kind in (WHITE_BOX, BLACK_BOX))
    if not all(query_only in store for store in stores):
        return False
    return any(
        beats_white_box(store.get_as(WorstCase, white_box), store.get_as(WorstCase, query_only).broken_by >= 0) for store in stores
    )
