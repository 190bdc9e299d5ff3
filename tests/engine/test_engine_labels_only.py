from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from audit.collect import accuracy_epsilon, predictions, why_not, worst_case
from audit.data import Chunk
from audit.engine.journal import decode, encode
from audit.errors import MissingCapability
from audit.evidence import NOT_BROKEN, OF_REFERENCE, Evidence, EvidenceKey, EvidenceStore, Predictions, merge
from audit.metrics import CATALOG
from audit.plan import beyond, plan, requirements
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

LACKS = {Capability.SCORES: "labels only", Capability.GRADIENTS: "labels only"}
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


def test_what_reads_scores_is_ruled_out_by_their_absence() -> None:
    reasons = {kind: why_not(kind, LACKS) for kind in Evidence}
    possible = {kind for kind, why in reasons.items() if why is None}
    of_labels = {Evidence.PREDICTIONS, Evidence.PROBE_SAMPLE, Evidence.WORST_CASE_BLACK_BOX, Evidence.ACCURACY_EPSILON}
    of_labels |= {Evidence.BOUNDARY_DISTANCE, Evidence.CERTIFICATION, Evidence.CORRUPTIONS, Evidence.SEQUENCES, *OF_REFERENCE}
    # A model that gives no scores may show its layers all the same.
    of_labels |= {Evidence.NEURON_PROFILE, Evidence.NEURONS}
    assert possible == of_labels
    planned = {stage.key.kind for stage in plan(CATALOG, LACKS, Settings.of("quick"), 10, 64).stages}
    assert Evidence.PROBE_SAMPLE not in planned, "nothing reads it here"
    assert {reasons[kind] for kind in reasons if kind not in possible} == {"labels only"}


def test_a_metric_requires_what_its_absence_makes_impossible() -> None:
    wanted = {metric.id: requirements(metric) for metric in CATALOG}
    assert wanted["clean_accuracy"] == wanted["accuracy_epsilon_curve"] == (Capability.LABELS,)
    assert wanted["kl_radius"] == (Capability.GRADIENTS,) and wanted["average_structural_similarity"] == (Capability.SCORES,)
    assert wanted["classification_output_stability"] == (Capability.SCORES, Capability.REFERENCE)
    assert wanted["neuron_uncertainty"] == (Capability.ACTIVATIONS, Capability.PROFILE_DATA)
    # Evidence of labels alone exists; those that take confidences from it say so in their definition, and refuse.
    refusing = {metric.id for metric in CATALOG if metric.reads_scores}
    assert {"saturated_share", "calibration_error"} < refusing
    for metric in CATALOG:
        if metric.needs == (Evidence.PREDICTIONS,) and metric.reads_scores:
            with pytest.raises(MissingCapability, match="labels only"):
                metric(predictions=LABELLED)
    beyond_labels = {metric.id for metric in beyond(set(LACKS), CATALOG)}
    assert refusing < beyond_labels and "empirical_boundary_distance" not in beyond_labels


@pytest.mark.parametrize("text", ["linf:0.1", "l2:0.5", "l1:3"])
def test_labels_alone_give_an_arm_and_a_curve(text: str) -> None:
    source = torch.Generator().manual_seed(0)
    w, images = torch.randn(16, generator=source), 0.35 + 0.3 * torch.rand(20, 1, 4, 4, generator=source)
    gaps = images.flatten(1) @ w
    gaps = gaps - gaps.median() - 1e-3
    labels = (gaps < 0).long()
    labels[3] = 1 - labels[3]
    chunk = Chunk(positions=np.arange(20), ids=np.arange(20).astype(str), labels=labels.numpy(), images=images.numpy())
    threat = Threat.parse(text)
    nearest = gaps.abs().numpy() / float({"linf": w.abs().sum(), "l2": w.norm(), "l1": w.abs().max()}[threat.norm.value])
    threat = threat.at(float(np.median(nearest)))
    classifier = Labelled(w, float((images.flatten(1) @ w - gaps)[0]))
    settings = Settings.of("quick")
    store = EvidenceStore(
        {EvidenceKey(kind=Evidence.PREDICTIONS): predictions.collect(classifier, chunk, settings, EvidenceStore(), None)}
    )
    worst = worst_case.collect_black_box(classifier, chunk, settings, store, threat)
    assert worst.attacks == ("nearest error by HopSkipJump-200", "random noise, 10 draws", "HopSkipJump-500")
    assert not worst.outside.any()
    correct, broken = worst.clean_correct, worst.broken_by >= 0
    assert correct.sum() == 19 and not broken[~correct].any() and not (broken & (nearest > threat.epsilon)).any()
    assert (worst.distance[broken] <= threat.epsilon).all() and broken[correct & (nearest < threat.epsilon / 2)].all()
    assert 2 < broken.sum() <= 10
    store = store.with_item(EvidenceKey(kind=Evidence.WORST_CASE_BLACK_BOX, threat=threat), worst)
    curve = accuracy_epsilon.collect(classifier, chunk, settings, store, threat)
    assert curve.arm == "black-box" and (np.diff(curve.robust.astype(int), axis=1) <= 0).all()
    assert (curve.robust[:, 0] == correct).all()
    assert (curve.robust[:, curve.epsilons.index(threat.epsilon)] == worst.robust).all()
    # Nothing is broken before its boundary; half of the budget further on everything is.
    for column, epsilon in enumerate(curve.epsilons):
        assert curve.robust[correct & (nearest > epsilon), column].all()
        if epsilon > threat.epsilon:
            assert not curve.robust[nearest < epsilon / 2, column].any()
    # The curve asks nothing: its distances are the arm's, whose first search tells of every example how far its error lies.
    assert not curve.forward_passes.any() and np.isfinite(worst.nearest).all()
    assert (worst.nearest[correct] >= nearest[correct] * (1 - 1e-5)).all() and not worst.nearest[~correct].any()


def test_an_error_that_the_search_for_the_curve_meets_counts_in_the_arm() -> None:
    """With nothing else in the arm, and a budget at which half of the examples break."""
    w = torch.randn(16, generator=torch.Generator().manual_seed(1))
    images = 0.35 + 0.3 * torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    scores = images.flatten(1) @ w
    gaps = scores - scores.median() - 1e-3
    chunk = Chunk(positions=np.arange(12), ids=np.arange(12).astype(str), labels=(gaps < 0).long().numpy(), images=images.numpy())
    threat = Threat.parse("l2:1").at(float((gaps.abs() / w.norm()).median()) * 1.05)
    classifier = Labelled(w, float((scores - gaps)[0]))
    settings = Settings(profile=replace(Settings.of("quick").profile, label_only=()))
    store = EvidenceStore(
        {EvidenceKey(kind=Evidence.PREDICTIONS): predictions.collect(classifier, chunk, settings, EvidenceStore(), None)}
    )
    worst = worst_case.collect_black_box(classifier, chunk, settings, store, threat)
    curve = accuracy_epsilon.collect(
        classifier, chunk, settings, store.with_item(EvidenceKey(kind=Evidence.WORST_CASE_BLACK_BOX, threat=threat), worst), threat
    )
    broken = worst.nearest <= threat.epsilon
    assert 0 < broken.sum() < 12
    np.testing.assert_array_equal(worst.broken_by, np.where(broken, 0, NOT_BROKEN))
    for column, epsilon in enumerate(curve.epsilons):
        np.testing.assert_array_equal(curve.robust[:, column], worst.nearest > epsilon)


class Labelled:
    """The classes of a linear model, in one-hot rows."""

    def __init__(self, w: torch.Tensor, offset: float) -> None:
        self.lacks = {Capability.GRADIENTS: "none", Capability.SCORES: "labels only"}
        self.classes, self.device = 2, torch.device("cpu")
        self._w, self._offset = w, offset

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        wrong = (images.flatten(1) * self._w).sum(dim=1) < self._offset
        return torch.nn.functional.one_hot(wrong.long(), 2).float()
