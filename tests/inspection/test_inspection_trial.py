"""Every candidate is found when it is the right one, and the pass over the sample does no more work than it must."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from level_readers import LEVELS, Reader, dataset, level_images, opened

from audit.inspection.candidates import Candidate, candidates, effect
from audit.inspection.judgement import Standing, judge
from audit.inspection.trial import Tried, try_all
from audit.models.input_spec import InputSpec, from_user

GREY, COLOUR = (1, 4, 5), (3, 4, 5)
# Data, what the model declares of one image, and the model's own (c, h, w).
SHAPES = [
    (GREY, (1, 4, 5), GREY),
    (GREY, (4, 5, 1), GREY),
    (GREY, (4, 5), GREY),
    (GREY, (1, 20), GREY),
    (GREY, (20, 1), GREY),
    (GREY, (1, 4, 5, 1), GREY),
    (GREY, (20,), GREY),
    (GREY, (3, 4, 5), COLOUR),
    (COLOUR, (3, 4, 5), COLOUR),
    (COLOUR, (4, 5, 3), COLOUR),
    (COLOUR, (60,), COLOUR),
    (COLOUR, (3, 20), COLOUR),
    (COLOUR, (1, 4, 5), GREY),
]
CASES = [
    pytest.param(data, declared, own, candidate, id=f"{data[0]}ch-{candidate.name}")
    for data, declared, own in SHAPES
    for candidate in candidates(declared, data, InputSpec())
    if own[0] == candidate.spec.channels_seen(data[0]) and candidate.spec.shape_seen(data) == declared
]


def try_on(module, declared, images, labels, now=None, rows=None) -> list[Tried]:
    data = dataset(images, labels)
    specs = candidates(declared, data.image_shape, now or InputSpec())
    return try_all(opened(module, declared, rows), specs, data, np.arange(len(labels)), labels, 32)


@pytest.fixture(scope="module")
def samples():
    grey, colour = level_images(64, GREY), level_images(64, COLOUR)
    return {GREY: grey, COLOUR: colour}


def test_the_table_is_as_large_as_it_looks():
    assert len(CASES) > 150
    assert {case.values[3].spec.layout for case in CASES} == {
        "NCHW", "NHWC", "NHW", "NCHW1", "NCD", "NDC", "FLAT", "FLAT_COLUMN", "FLAT_LAST"
    }  # fmt: skip


@pytest.mark.parametrize(("data", "declared", "own", "candidate"), CASES)
def test_every_specification_is_found_where_it_is_right(samples, data, declared, own, candidate):
    images, labels = samples[data]
    if candidate.spec.colour == "luma":  # the level is that of the luma: the pixel is grey
        images = images.copy()
        images[:, :, 1, 3] = images[:, :1, 1, 3]
    judged = judge(try_on(Reader(candidate.spec, own), declared, images, labels), labels, data[0])
    assert judged.best.right == 64
    assert judged.standing is Standing.ALONE
    found = [judged.best.candidate, *judged.best.same]
    assert effect(candidate.spec, data[0]) in [effect(each.spec, data[0]) for each in found]


def test_each_distinct_prepared_image_is_run_once():
    images, labels = level_images(40, GREY)
    rows = []

    class Counting(Reader):
        def forward(self, x):
            rows.append(len(x))
            return super().forward(x)

    tried = try_on(Counting(InputSpec(layout="FLAT"), GREY), (20,), images, labels)
    # Of a grey image, FLAT and FLAT_LAST are one; FLAT_COLUMN is not. Five scalings each, two blocks of 32; the specification in
    # force (NCHW) does not fit.
    assert len([each for each in tried if each.refused is None]) == 15
    assert rows == [32] * 20
    assert sum(each.rows_run for each in tried) == 40 * 10


def test_a_fixed_batch_gets_whole_batches():
    images, labels = level_images(7, GREY)

    class OfThree(Reader):
        def forward(self, x):
            assert len(x) == 3
            return super().forward(x)

    judged = judge(try_on(OfThree(InputSpec(), GREY), (1, 4, 5), images, labels, rows=3), labels, 1)
    assert judged.best.right == 7


def test_memory_is_bounded_by_the_block():
    """No tensor that reaches the model or comes from it holds more than a block, and what is kept is one class per image."""
    images, labels = level_images(100, GREY)
    sizes = []

    class Watching(Reader):
        def forward(self, x):
            sizes.append(x.numel())
            return super().forward(x)

    tried = try_on(Watching(InputSpec(), GREY), (1, 4, 5), images, labels)
    assert max(sizes) == 32 * 20
    assert {each.predicted.shape for each in tried} == {(100,)}


class Moody(Reader):
    """Raises above 100, gives NaN below 0."""

    def forward(self, x):
        if x.max() > 100:
            raise RuntimeError("value out of range\nwith a second line")
        scores = super().forward(x)
        return torch.where(x.flatten(1).amin(1)[:, None] < 0, torch.full_like(scores, float("nan")), scores)


def test_a_model_that_breaks_under_some_specs_is_judged_on_the_others():
    images, labels = level_images(64, GREY)
    tried = try_on(Moody(InputSpec(), GREY), (1, 4, 5), images, labels)
    reasons = {each.candidate.name: each.refused for each in tried}
    assert reasons["0 to 255, NCHW"] == "value out of range"
    assert "are NaN or infinite" in reasons["-1 to 1 (mean and std 0.5), NCHW"]
    judged = judge(tried, labels, 1)
    assert [row.candidate.name for row in judged.rows] == ["0 to 1, NCHW"]
    assert judged.standing is Standing.ALONE


def test_a_model_that_does_not_say_its_shape_is_asked_by_running_it():
    images, labels = level_images(64, COLOUR)
    right = from_user("layout=NHWC,channels=BGR,range=-1..1").complete()
    tried = try_on(Reader(right, COLOUR), None, images, labels)
    judged = judge(tried, labels, 3)
    assert judged.best.candidate.name == "-1 to 1 (mean and std 0.5), BGR, NHWC"
    assert any("takes (4, 5, 3), not (3, 4, 5)" in str(each.refused) for each in tried)


def test_a_stated_specification_that_does_not_fit_is_tried_and_refused():
    images, labels = level_images(64, GREY)
    now = from_user("mean=0.1/0.2/0.3").complete()
    tried = try_on(Reader(InputSpec(), GREY), (1, 4, 5), images, labels, now=now)
    assert tried[0].candidate.stated
    assert "mean has 3 values, but the images have 1 channel" in str(tried[0].refused)
    assert judge(tried, labels, 1).best.candidate.name == "0 to 1, NCHW"


def test_a_stated_specification_like_none_of_the_usual_is_found():
    images, labels = level_images(64, GREY)
    odd = from_user("range=-3..5").complete()
    judged = judge(try_on(Reader(odd, GREY), (1, 4, 5), images, labels, now=odd), labels, 1)
    assert judged.best.candidate == Candidate(name="the spec in force", spec=odd, stated=True)
    assert judged.standing is Standing.ALONE


def test_a_model_of_another_size_gets_resized_images_only_then():
    assert {each.spec.size for each in candidates((1, 4, 5), GREY, InputSpec())} == {None}
    offered = candidates((1, 8, 10), GREY, InputSpec())
    assert {each.spec.size for each in offered[1:]} == {(8, 10)}
    assert "size=8x10" in offered[1].name
    assert {each.spec.size for each in candidates((784,), (1, 8, 8), InputSpec())[1:]} == {(28, 28)}


def test_models_of_integers_are_tried_with_bytes_alone():
    now = InputSpec(dtype="uint8", range=(0.0, 255.0))
    assert {each.spec.range for each in candidates((3, 4, 5), COLOUR, now)} == {(0.0, 255.0)}
    assert len(candidates((3, 4, 5), COLOUR, now)) == 2  # RGB and BGR


def test_labels_are_levels():
    images, labels = level_images(500, COLOUR)
    assert set(labels) == set(range(LEVELS))
    assert (np.floor(images[:, 0, 1, 3] * LEVELS) == labels).all()


def test_log_losses_are_those_of_scores_and_of_probabilities():
    images, labels = level_images(50, GREY)
    labels[7] = LEVELS + 3  # none of the model's classes

    class Softmaxed(Reader):
        def forward(self, x):
            return super().forward(x).softmax(1)

    scores = Reader(InputSpec(), GREY)(torch.from_numpy(images)).double().log_softmax(1).numpy()
    for kind in (Reader, Softmaxed):
        (plain,) = [each for each in try_on(kind(InputSpec(), GREY), (1, 4, 5), images, labels) if each.candidate.stated]
        expected = [-scores[row, label] for row, label in enumerate(labels) if label < LEVELS]
        np.testing.assert_allclose(np.delete(plain.losses, 7), expected, rtol=1e-4, atol=1e-5)
        assert np.isnan(plain.losses[7])
