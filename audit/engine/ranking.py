"""Rankings of the audited models, one per dimension, on the same examples and the same kind of attack."""

from __future__ import annotations

from collections.abc import Sequence

from audit.compare import rank
from audit.engine.summary import ARMS, predictions_of
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, WorstCase
from audit.metrics.honesty import beats_white_box
from audit.result import Ranking
from audit.vocabulary import Threat

WHITE_BOX = Evidence.WORST_CASE_WHITE_BOX
METRICS = {
    Evidence.WORST_CASE_WHITE_BOX: "adversarial_accuracy_white_box",
    Evidence.WORST_CASE_BLACK_BOX: "adversarial_accuracy_black_box",
}


def rankings(stores: Sequence[EvidenceStore], threats: tuple[Threat, ...]) -> tuple[Ranking, ...]:
    """Clean accuracy, then accuracy under attack per threat; nothing for a single model.

    A query-only accuracy is not comparable with a white-box one: all models are ranked by one arm, the white-box one if every model
    has it and none of them is better at hiding its gradients than at resisting (honesty check 7), else the query-only one.
    """
    if len(stores) < 2:
        return ()
    found = [rank("Clean accuracy", "clean_accuracy", [predictions_of(store).correct for store in stores])]
    for threat in threats:
        for kind, arm in ARMS.items():
            key = EvidenceKey(kind=kind, threat=threat)
            if all(key in store for store in stores) and not (kind is WHITE_BOX and _gradients_mislead(stores, threat)):
                columns = [store.get_as(WorstCase, key).robust for store in stores]
                found.append(rank(f"Accuracy under {arm} attack, {threat.label}", f"{METRICS[kind]}/{threat.key}", columns))
                break
    return tuple(found)


def _gradients_mislead(stores: Sequence[EvidenceStore], threat: Threat) -> bool:
    """Whether the query-only arm could rank all of these models, and broke what the white-box arm of one of them could not."""
    white_box, query_only = (EvidenceKey(kind=kind, threat=threat) for kind in (WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX))
    if not all(query_only in store for store in stores):
        return False
    return any(
        beats_white_box(store.get_as(WorstCase, white_box), store.get_as(WorstCase, query_only).broken_by >= 0) for store in stores
    )
