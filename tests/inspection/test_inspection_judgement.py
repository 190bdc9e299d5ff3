"""Which specification stands alone, which are told apart, and what is said of labels, chance and epsilon."""

from __future__ import annotations

import numpy as np
import pytest

from audit.inspection.candidates import Candidate
from audit.inspection.judgement import Standing, judge
from audit.inspection.trial import Tried
from audit.inspection.words import verdict
from audit.models.input_spec import from_user
from audit.statistics import PairedCounts, holm, mcnemar

N, CLASSES = 200, 10


def labels(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CLASSES, N)


def wrong_on(truth: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    predicted = truth.copy()
    predicted[start : start + count] = (predicted[start : start + count] + 3) % CLASSES
    return predicted


def tried(name: str, spec: str, predicted: np.ndarray, outputs: str | None = None, loss: float = 0.5) -> Tried:
    candidate = Candidate(name=name, spec=from_user(spec).complete())
    losses = np.full(len(predicted), loss)
    return Tried(candidate=candidate, predicted=predicted, losses=losses, classes=CLASSES, outputs=outputs or name)


def test_the_best_stands_alone_when_the_others_lose_on_the_same_images():
    truth = labels()
    judged = judge([tried("poor", "range=0-255", wrong_on(truth, 60)), tried("good", "range=0-1", wrong_on(truth, 5))], truth, 1)
    assert (judged.standing, judged.best.candidate.name, judged.best.right) == (Standing.ALONE, "good", 195)
    assert judged.rows[1].p_value == pytest.approx(2 * 0.5**55)  # all 55 discordant pairs on one side
    assert judged.rows[1].epsilon == (255, 255)
    assert judged.settled
    assert len(list(verdict(judged))) == 1


def test_p_values_are_adjusted_for_how_many_were_tried():
    truth = labels()
    others = [wrong_on(truth, count) for count in (7, 8, 9, 30)]
    judged = judge([tried("best", "", truth), *(tried(str(k), "", each) for k, each in enumerate(others))], truth, 1)
    raw = [mcnemar(PairedCounts.of(truth == truth, each == truth)) for each in others]
    assert [row.p_value for row in judged.rows[1:]] == pytest.approx(holm(raw))
    # Seven images alone would tell the first apart (p = 0.016); among four tests, all of which count, they still do.
    assert not any(row.tied for row in judged.rows)
    many = judge([tried("best", "", truth), *(tried(str(k), "", wrong_on(truth, 7)) for k in range(12))], truth, 1)
    assert all(row.tied for row in many.rows[1:])
    assert many.standing is Standing.AMBIGUOUS


def test_epsilon_is_ambiguous_by_the_ratio_of_the_scales():
    truth = labels()
    imagenet, half = "mean=0.485/0.456/0.406,std=0.229/0.224/0.225", "mean=0.5,std=0.5"
    judged = judge([tried("half", half, wrong_on(truth, 2)), tried("imagenet", imagenet, wrong_on(truth, 4, 50))], truth, 3)
    assert judged.rivals[0].epsilon == pytest.approx((0.5 / 0.229, 0.5 / 0.224))
    text = " ".join(verdict(judged))
    assert "NOT TOLD APART from it on these images (exact McNemar, Holm): imagenet" in text
    assert "2.18 to 2.23 times as far" in text
    assert "training code" in text and not judged.settled


def test_the_ratio_is_taken_channel_by_channel_of_the_image():
    """A BGR model with the numbers in BGR order moves with each colour as the RGB one does."""
    truth = labels()
    rgb = tried("rgb", "mean=0.4/0.5/0.6,std=0.1/0.2/0.4", truth)
    bgr = tried("bgr", "channels=BGR,mean=0.6/0.5/0.4,std=0.4/0.2/0.1", truth)
    judged = judge([rgb, bgr], truth, 3)
    assert judged.rivals[0].epsilon == (1, 1)
    assert "Epsilon counts the same" in " ".join(verdict(judged))


def test_equal_outputs_and_equal_epsilon_are_one_row():
    truth = labels()
    three = [
        tried("first", "layout=NCHW", truth, outputs="x"),
        tried("second", "layout=FLAT", truth, outputs="x"),
        tried("third", "layout=NCHW,range=0-255", truth, outputs="x"),  # as where a model looks at signs alone
    ]
    judged = judge(three, truth, 1)
    assert [row.candidate.name for row in judged.rows] == ["first", "third"]
    assert [each.name for each in judged.best.same] == ["second"]
    assert judged.standing is Standing.AMBIGUOUS


def test_labels_that_are_off_by_one_do_not_hide_the_right_specification():
    truth = labels()
    guesses = labels(seed=9)
    judged = judge([tried("wrong", "range=0-255", guesses), tried("right", "", wrong_on(truth, 6))], truth + 1, 1)
    assert (judged.standing, judged.best.candidate.name, judged.best.right) == (Standing.ALONE, "right", 194)
    assert judged.corrected and judged.labels is not None and "off by one" in judged.labels.sentence
    assert not judged.settled
    assert "with the labels put right" in next(verdict(judged))


def test_classes_in_another_order_do_not_hide_it_either():
    truth = labels()
    order = np.roll(np.arange(CLASSES), 4)
    judged = judge([tried("wrong", "range=0-255", labels(seed=9)), tried("right", "", wrong_on(truth, 6))], order[truth], 1)
    assert (judged.best.candidate.name, judged.best.right) == ("right", 194)
    assert judged.corrected and "another order" in str(judged.labels)


def test_two_swapped_classes_are_named_although_the_rest_is_right():
    truth = labels()
    swapped = truth.copy()
    for a, b in ((0, 1), (2, 3), (4, 5)):
        swapped[truth == a], swapped[truth == b] = b, a
    judged = judge([tried("right", "", truth), tried("wrong", "range=0-255", labels(seed=9))], swapped, 1)
    assert not judged.corrected and judged.labels is not None
    assert "label 0 is class 1" in judged.labels.sentence


@pytest.mark.parametrize("seed", range(8))
def test_guesses_are_chance_however_many_are_tried(seed):
    """The luckiest of sixty guesses is above the largest class by its own interval, but not by that of sixty."""
    truth = labels(seed)
    judged = judge([tried(str(k), "", labels(seed=1000 + 60 * seed + k)) for k in range(60)], truth, 1)
    assert judged.standing is Standing.CHANCE
    text = " ".join(verdict(judged))
    assert "No input spec is better than always answering the largest class" in text and "Likely causes" in text


def test_one_image_and_one_label_tell_nothing():
    one = np.array([3])
    judged = judge([tried("a", "", one), tried("b", "range=0-255", np.array([4]))], one, 1)
    assert judged.standing is Standing.CHANCE
    same = np.full(50, 3)
    judged = judge([tried("a", "", same), tried("b", "range=0-255", (same + 1))], same, 1)
    assert judged.standing is Standing.CHANCE
    assert "one label" in " ".join(verdict(judged))


def test_among_equals_the_smaller_log_loss_comes_first_and_is_called_a_hint():
    truth = labels()
    judged = judge([tried("half", "mean=0.5", truth, loss=0.4), tried("plain", "", truth, loss=0.1)], truth, 1)
    assert [row.candidate.name for row in judged.rows] == ["plain", "half"]
    assert judged.standing is Standing.AMBIGUOUS
    assert "smallest log loss among them is 0.1, of plain: a hint, no proof" in " ".join(verdict(judged))
