"""Corruption errors by hand, against plain loops, and of a model against itself."""

from __future__ import annotations

import numpy as np
import pytest
from corruption_by_hand import corruptions, random_corruptions
from evidence_by_hand import predictions

from audit.corruptions.parameters import KINDS
from audit.errors import MissingCapability, Undefined
from audit.metrics import corruption

# Two images, two kinds: wrong in 3 + 1 of 5 and in 5 + 0 of 5.
OWN = corruptions([[[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]])
# The reference errs 4 times under the first kind and twice under the second.
OTHER = corruptions([[[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]])


def clean(correct):
    return predictions(np.where(np.asarray(correct)[:, None], [[1.0, 0.0]], [[0.0, 1.0]]), np.zeros(len(correct), dtype=int))


def test_errors_by_hand():
    assert corruption.unnormalised_mean_corruption_error(corruptions=OWN).value == pytest.approx(9 / 20)
    assert corruption.corruption_error(corruptions=OWN, variant=KINDS[0]).value == pytest.approx(8 / 10)
    assert corruption.corruption_error_by_severity(corruptions=OWN, variant="severity_5").value == pytest.approx(3 / 4)
    right = clean([True, False])
    assert corruption.clean_subtracted_corruption_error(corruptions=OWN, predictions=right).value == pytest.approx(9 / 20 - 1 / 2)
    # (8/4 + 1/2) / 2.
    assert corruption.mean_corruption_error(corruptions=OWN, reference_corruptions=OTHER).value == pytest.approx(1.25)


def test_ratios_against_a_plain_loop():
    own, other = random_corruptions(0, 0.8), random_corruptions(1, 0.6)
    right, other_right = clean(np.arange(60) % 9 > 0), clean(np.arange(60) % 5 > 0)
    ratios, relative = [], []
    for kind in range(15):
        wrong = sum(np.mean(~own.correct[:, kind, severity]) for severity in range(5))
        other_wrong = sum(np.mean(~other.correct[:, kind, severity]) for severity in range(5))
        ratios.append(wrong / other_wrong)
        relative.append((wrong - 5 * np.mean(~right.correct)) / (other_wrong - 5 * np.mean(~other_right.correct)))
    found = corruption.mean_corruption_error(corruptions=own, reference_corruptions=other)
    assert found.value == pytest.approx(np.mean(ratios))
    assert found.interval.low < found.value < found.interval.high and found.samples == 60
    given = {"predictions": right, "reference_predictions": other_right}
    found = corruption.relative_mean_corruption_error(corruptions=own, reference_corruptions=other, **given)
    assert found.value == pytest.approx(np.mean(relative))


@pytest.mark.parametrize("seed", range(3))
def test_a_model_against_itself_is_exactly_one(seed):
    own, right = random_corruptions(seed, 0.7), clean(np.arange(60) % 12 > 0)
    found = corruption.mean_corruption_error(corruptions=own, reference_corruptions=own)
    assert found.value == 1.0 and (found.interval.low, found.interval.high) == (1.0, 1.0)
    given = {"predictions": right, "reference_predictions": right}
    assert corruption.relative_mean_corruption_error(corruptions=own, reference_corruptions=own, **given).value == 1.0


def test_what_has_no_denominator_is_undefined_and_named():
    perfect = corruptions(np.ones((20, 2, 5)))
    with pytest.raises(Undefined, match=f"never errs under {KINDS[0]}, {KINDS[1]}"):
        corruption.mean_corruption_error(corruptions=perfect, reference_corruptions=perfect)
    hardly = np.ones((20, 2, 5))
    hardly[0, 0, 0] = 0
    hardly[:, 1] = 0
    one, right = corruptions(hardly), clean(np.ones(20, dtype=bool))
    given = {"predictions": right, "reference_predictions": right}
    with pytest.raises(Undefined, match=f"0 under {KINDS[0]}$"):
        corruption.relative_mean_corruption_error(corruptions=one, reference_corruptions=one, **given)
    few = corruptions(np.zeros((4, 2, 5)))
    assert corruption.mean_corruption_error(corruptions=few, reference_corruptions=few).interval is None


def test_other_images_are_not_compared():
    for other in (corruptions(OTHER.correct, positions=[3, 4]), corruptions(OTHER.correct, source="a folder")):
        with pytest.raises(Undefined, match="different corrupted images"):
            corruption.mean_corruption_error(corruptions=OWN, reference_corruptions=other)


def test_nothing_corrupted_gives_nothing():
    none = corruptions(np.zeros((0, 2, 5)))
    with pytest.raises(Undefined, match="no example"):
        corruption.unnormalised_mean_corruption_error(corruptions=none)
    with pytest.raises(Undefined, match="no example"):
        corruption.corruption_error(corruptions=none, variant=KINDS[0])
    grey = corruptions(OWN.correct, left_out=("saturate",), left_out_because=("grey images have no saturation",))
    with pytest.raises(MissingCapability, match="no saturation"):
        corruption.corruption_error(corruptions=grey, variant="saturate")


def test_extra_kinds_stay_out_of_the_means():
    correct = np.zeros((12, 2, 5))
    correct[:, 0] = 1
    mixed = corruptions(correct, kinds=("fog", "saturate"))
    assert corruption.unnormalised_mean_corruption_error(corruptions=mixed).value == 0
    assert corruption.corruption_error(corruptions=mixed, variant="saturate").value == 1


def test_the_interval_moves_all_corruptions_of_an_image_together():
    # Ten images always wrong and ten always right: 15 kinds and 5 severities add no certainty.
    correct = np.repeat(np.arange(20) % 2 == 0, 75).reshape(20, 15, 5)
    found = corruption.unnormalised_mean_corruption_error(corruptions=corruptions(correct))
    assert found.value == 0.5 and found.interval.high - found.interval.low > 0.3
