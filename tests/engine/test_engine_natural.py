"""Corruptions as a result tells them, from evidence written down: tables, reliability, and which mistakes are shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import audits_by_hand
import numpy as np
import pytest
import torch
from corruption_by_hand import corruptions
from evidence_by_hand import LINF, predictions, reference_attack
from PIL import Image

from audit import statistics
from audit.corruptions.kinds import corrupted, levels_of
from audit.corruptions.parameters import BENCHMARK_KINDS
from audit.engine.natural import SHOWN_CORRUPTIONS, corruption_table, corruptions_of, reliabilities, with_corruptions
from audit.engine.sample import Sample
from audit.evidence import Evidence, EvidenceKey, EvidenceStore
from audit.settings import Settings

SHAPE = (1, 8, 8)
# Twelve examples of class 0, of which the last two are wrong as they are.
CLEAN = predictions([[2.0, 0.0]] * 10 + [[0.0, 2.0]] * 2, np.zeros(12, dtype=int))


def store_of(evidence=None, clean=CLEAN, **more) -> EvidenceStore:
    store = EvidenceStore({EvidenceKey(kind=Evidence.PREDICTIONS): clean, **more.get("items", {})})
    return store if evidence is None else store.with_item(EvidenceKey(kind=Evidence.CORRUPTIONS), evidence)


def right(kinds: int, wrong=()) -> np.ndarray:
    """(12, kinds, 5) right answers but for (row, kind, severity) given."""
    correct = np.ones((12, kinds, 5), dtype=bool)
    for row, kind, severity in wrong:
        correct[row, kind, severity - 1] = False
    return correct


def test_nothing_corrupted_is_no_evidence():
    none = corruptions(np.zeros((0, 2, 5)))
    assert corruptions_of(store_of()) is None and corruptions_of(store_of(none)) is None
    assert corruption_table(store_of(none), SHAPE) is None


def test_the_table_counts_wrong_answers_by_kind_and_severity():
    evidence = corruptions(right(2, [(0, 0, 1), (3, 0, 1), (5, 1, 5)])[:10], kinds=("pixelate", "mine"), positions=np.arange(2, 12))
    table = corruption_table(store_of(evidence), SHAPE)
    # Of the ten corrupted examples two are wrong as they are.
    assert (table.samples, table.clean_error, table.source) == (10, pytest.approx(0.2), "made here")
    first, second = table.rows
    assert first.errors == (0.2, 0, 0, 0, 0) and second.errors == (0, 0, 0, 0, 0.1)
    interval = statistics.proportion(2, 10)
    assert (first.low[0], first.high[0]) == (interval.low, interval.high)
    assert (first.averaged, second.averaged) == (True, False)
    assert "coarser than published" in first.note
    assert corruption_table(store_of(evidence), (1, 32, 32)).rows[0].note == ""


def test_kinds_of_a_folder_are_not_judged_by_how_they_are_made_here():
    evidence = corruptions(right(3), kinds=("pixelate", "saturate", "mine"), source="a folder")
    table = corruption_table(store_of(evidence), SHAPE)
    assert [row.note for row in table.rows] == ["", "", "not a published kind"] and table.source == "a folder"


def test_reliability_of_clean_corrupted_and_adversarial_images():
    sure = np.full((12, 2, 5), 0.9)
    sure[:, :, 4] = 0.6
    # The extra kind is always wrong, and stays out.
    correct = right(2, [(row, 0, 5) for row in range(6)])
    correct[:, 1] = False
    evidence = corruptions(correct, kinds=("fog", "saturate"), confidence=sure)
    attack = reference_attack([[0.0, 1.0]] * 3 + [[1.0, 0.0]], np.zeros(4, dtype=int))
    clean, natural, adversarial = reliabilities(
        store_of(evidence, items={EvidenceKey(kind=Evidence.REFERENCE_ATTACK, threat=LINF): attack})
    )
    assert [each.images for each in (clean, natural, adversarial)] == ["clean", "corrupted", f"adversarial, {LINF.label}"]
    (only,) = clean.bins
    assert (only.samples, only.accuracy, only.confidence) == (12, pytest.approx(10 / 12), pytest.approx(1 / (1 + np.exp(-2))))
    assert [each.samples for each in natural.bins] == [12, 48]
    assert [(each.accuracy, round(each.confidence, 9)) for each in natural.bins] == [(0.5, 0.6), (1, 0.9)]
    assert adversarial.bins[0].accuracy == 0.25 and adversarial.bins[0].samples == 4


def test_no_reliability_without_scores_or_of_fewer_kinds_than_the_mean_has():
    assert reliabilities(store_of(corruptions(right(1)), clean=replace(CLEAN, no_scores="labels only"))) == ()
    lacking = corruptions(right(1), left_out=BENCHMARK_KINDS[1:], left_out_because=("none",) * 14, source="a folder")
    assert [each.images for each in reliabilities(store_of(lacking))] == ["clean"]


class Images:
    """Twelve grey images, each of one value."""

    class_names, image_shape = ("zero", "one"), SHAPE

    def images(self, indices):
        return np.asarray(indices, dtype=np.float32)[:, None, None, None] / 20 + np.zeros((1, *SHAPE), np.float32)


class Folder:
    """Corrupted images that are black but for the severity."""

    def images(self, ids, kind, severity):
        return np.full((len(ids), *SHAPE), severity / 255, np.float32)


def shown(evidence, tmp_path, corrupted_images=None, **settings):
    sample = Sample(dataset=Images(), indices=np.arange(12)[::-1].copy(), train=None, corrupted=corrupted_images)
    given = replace(Settings.of("quick"), **settings)
    model = audits_by_hand.audited({"clean_accuracy": audits_by_hand.first(90)}).model
    return with_corruptions(model, store_of(evidence), sample, given, 1, tmp_path)


def test_the_surest_mistake_at_the_lowest_severity_that_fools_a_right_answer(tmp_path):
    wrong = [(11, 0, 1), (2, 0, 3), (4, 0, 3), (1, 0, 4), (0, 1, 2)]
    confidence = np.full((12, 3, 5), 0.5)
    confidence[4, 0, 2], confidence[1, 0, 3] = 0.7, 0.99
    model = shown(corruptions(right(3, wrong), kinds=("fog", "snow", "contrast"), confidence=confidence), tmp_path)
    first, second = model.corruption_examples
    # Example 11 is wrong as it is, and no severity below 3 fools another one; example 4 is the surer one there.
    assert (first.example_id, first.kind, first.severity, first.confidence) == ("x4", "fog", 3, 0.7)
    assert (first.label, first.answered) == ("zero", "one")
    assert (second.example_id, second.kind, second.severity) == ("x0", "snow", 2)
    assert model.corruptions.samples == 12 and model.reliability
    # Position 4 of the sample is image 7 of the data.
    before, after = (np.asarray(Image.open(tmp_path / name)) for name in (first.clean_image, first.corrupted_image))
    levels = levels_of(torch.from_numpy(Images().images([7])))
    assert (before == levels.numpy()[0, 0]).all()
    assert (after == next(corrupted(levels, "fog", ["x4"], 0, (3,))).numpy()[0, 0]).all()


def test_images_of_a_folder_are_read_again_and_none_are_kept_where_none_are_wanted(tmp_path):
    evidence = corruptions(right(1, [(3, 0, 4)]), kinds=("fog",), source="a folder", no_scores="labels only")
    (example,) = shown(evidence, tmp_path, Folder()).corruption_examples
    assert example.confidence is None
    assert (np.asarray(Image.open(tmp_path / example.corrupted_image)) == 4).all()
    (bare,) = shown(evidence, tmp_path / "none", Folder(), keep_images=False).corruption_examples
    assert bare.clean_image is None and bare.corrupted_image is None and not Path(tmp_path / "none").exists()


def test_only_the_kinds_that_cost_most_are_shown(tmp_path):
    wrong = [(row, kind, 5) for kind in range(15) for row in range(min(10, kind))]
    examples = shown(corruptions(right(15, wrong)), tmp_path, keep_images=False).corruption_examples
    assert len(examples) == SHOWN_CORRUPTIONS
    assert {example.kind for example in examples} <= set(BENCHMARK_KINDS[7:])


def test_a_model_without_corruptions_has_no_table(tmp_path):
    model = shown(None, tmp_path)
    assert model.corruptions is None and model.corruption_examples == ()
    assert [each.images for each in model.reliability] == ["clean"]
