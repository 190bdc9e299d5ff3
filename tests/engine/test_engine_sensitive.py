"""The most sensitive examples: the largest eigenvalues that were measured, with pictures where a direction was kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_by_hand import estimate, predictions, spectrum, temperature
from PIL import Image

from audit.engine import table
from audit.engine.sensitive import picture, with_sensitive
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, ShownDirection
from audit.result import ModelResult

LOGITS = np.log([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2]])


def found(tmp_path, **evidence):
    evidence = {"predictions": predictions(LOGITS, [0, 0, 1, 0]), "temperature": temperature(), **evidence}
    store = EvidenceStore({EvidenceKey(kind=Evidence(name)): value for name, value in evidence.items()})
    bare = ModelResult(**dict.fromkeys(ModelResult.__dataclass_fields__))
    return with_sensitive(bare, store, ("cat", "dog"), 0, tmp_path).sensitive_examples or ()


def with_pictures():
    direction = np.array([[[0.0, 0.6], [-0.8, 0.0]]], dtype=np.float32)
    shown = ShownDirection(position=1, lambda_max=2.0, clean=np.full((1, 2, 2), 0.5, dtype=np.float32), direction=direction)
    return replace(spectrum([4, 8, 0, 6]), trace=np.array([1.0, 3.0, 0.0, 1.5]), shown=(shown,))


def test_the_largest_come_first_and_one_that_does_not_move_not_at_all(tmp_path):
    first, *others = found(tmp_path, fisher_spectrum=with_pictures(), fisher_estimate=estimate(np.ones(4)))
    assert (first.example_id, first.label, first.predicted, first.status) == ("x1", "cat", "dog", "exact")
    assert (first.lambda_max, first.effective_rank, first.confidence) == pytest.approx((2.0, 1.5, 0.6))
    assert [(example.example_id, example.clean_image) for example in others] == [("x3", None), ("x0", None)]
    clean, top = (np.asarray(Image.open(tmp_path / name)) for name in (first.clean_image, first.direction_image))
    assert clean.tolist() == [[128, 128], [128, 128]]
    # 0 is mid-grey, and the largest entry, -0.8, is turned to be positive.
    assert top.tolist() == [[128, 32], [255, 128]]


def test_the_sign_of_an_eigenvector_does_not_matter():
    direction = np.array([[[0.1, -0.5]]])
    assert picture(direction).tolist() == picture(-direction).tolist() and picture(direction).max() == 1.0
    assert picture(np.zeros((1, 1, 2))).tolist() == [[[0.5, 0.5]]]


def test_estimates_count_where_they_were_measured_and_have_no_pictures(tmp_path):
    evidence = estimate([3.0, np.nan, 7.0, 5.0], status=["measured", "saturated", "not_smooth", "measured"])
    assert [
        (each.example_id, each.lambda_max, each.status, each.direction_image) for each in found(tmp_path, fisher_estimate=evidence)
    ] == [
        ("x3", 5.0, "estimated", None),
        ("x0", 3.0, "estimated", None),
    ]


def test_without_a_fit_or_evidence_there_is_nothing_to_show(tmp_path):
    assert not found(tmp_path, fisher_spectrum=with_pictures(), temperature=temperature(at_limit=True))
    assert not found(tmp_path)


def test_a_full_disk_costs_both_pictures_and_not_the_example(tmp_path, monkeypatch):
    save, taken = table.save_image, []

    def fills_up(image, path):
        taken.append(path)
        if len(taken) > 1:
            raise OSError(28, "No space left on device")
        save(image, path)

    monkeypatch.setattr(table, "save_image", fills_up)
    first = found(tmp_path, fisher_spectrum=with_pictures())[0]
    assert first.lambda_max == 2.0 and first.clean_image is None and first.direction_image is None
    assert len(taken) == 2 and not list((tmp_path / "failures").iterdir())
