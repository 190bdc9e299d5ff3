"""Rankings of the audited models, one per dimension, on the same examples and the same kind of attack."""

from __future__ import annotations

from collections.abc import Sequence

from audit.compare import rank
from audit.engine.summary import ARMS, predictions_of
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, WorstCase
from audit.result import Ranking
from audit.vocabulary import Threat

METRICS = {
    Evidence.WORST_CASE_WHITE_BOX: "adversarial_accuracy_white_box",
    Evidence.WORST_CASE_BLACK_BOX: "adversarial_accuracy_black_box",
}


def rankings(stores: Sequence[EvidenceStore], threats: tuple[Threat, ...]) -> tuple[Ranking, ...]:
    """Clean accuracy, then accuracy under attack per threat; nothing for a single model.

    A query-only accuracy is not comparable with a white-box one: models are ranked by the strongest arm that all of them have.
    """
    if len(stores) < 2:
        return ()
    found = [rank("Clean accuracy", "clean_accuracy", [predictions_of(store).correct for store in stores])]
    for threat in threats:
        for kind, arm in ARMS.items():
            key = EvidenceKey(kind=kind, threat=threat)
            if all(key in store for store in stores):
                columns = [store.get_as(WorstCase, key).robust for store in stores]
                found.append(rank(f"Accuracy under {arm} attack, {threat.label}", f"{METRICS[kind]}/{threat.key}", columns))
                break
    return tuple(found)
