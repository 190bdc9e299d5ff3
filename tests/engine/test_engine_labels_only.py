from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.collect import why_not
from audit.engine.journal import decode, encode
from audit.evidence import Evidence, Predictions, merge
from audit.vocabulary import Capability, Threat

LACKS = {Capability.SCORES: "labels only"}
LABELLED = Predictions(
    positions=np.arange(2), ids=np.array(["a", "b"]), labels=np.array([0, 1]), logits=np.eye(2), no_scores="labels only"
)


def test_that_there_are_no_scores_survives_the_journal_and_the_chunks() -> None:
    (found, joined) = (decode(encode(LABELLED)), merge([LABELLED, LABELLED]))
    assert isinstance(found, Predictions) and isinstance(joined, Predictions)
    assert found.no_scores == joined.no_scores == "labels only"
    np.testing.assert_array_equal(found.logits, LABELLED.logits)
    with pytest.raises(ValueError, match=r"disagree on Predictions\.no_scores"):
        merge([LABELLED, replace(LABELLED, no_scores=None)])


def test_only_the_clean_predictions_do_without_scores() -> None:
    threat = Threat.parse("linf:8/255")
    reasons = {kind: why_not(kind, LACKS, threat) for kind in Evidence}
    assert reasons.pop(Evidence.PREDICTIONS) is None
    attacks = {Evidence.REFERENCE_ATTACK, Evidence.WORST_CASE_BLACK_BOX, Evidence.ACCURACY_EPSILON}
    assert {kind for kind, why in reasons.items() if "label-only attacks are not part" in (why or "")} == attacks
    assert {reasons[kind] for kind in reasons if kind not in attacks} == {"labels only"}
