import numpy as np
import pytest
import scipy.fft
import torch
from linear_optima import batch_of

from audit.attacks.ball import Ball, distance
from audit.attacks.starts import DIRECTIONS, STARTS, start_points
from audit.vocabulary import Norm, Threat

THREATS = [Threat.parse(text) for text in ("linf:0.1", "l2:0.5", "l1:2")]


def batch(shape=(2, 9, 11), count=6):
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))
    return batch_of(torch.where(x < 0.3, 0.0, x), torch.zeros(count, dtype=torch.long))


@pytest.mark.parametrize("threat", THREATS, ids=str)
@pytest.mark.parametrize("start", STARTS)
def test_starts_are_inside_and_the_examples_own(threat, start):
    whole = batch()
    points = start_points(start, Ball.around(whole.images, threat), whole, 0, "p")
    reached = distance(points, whole.images, threat.norm)
    assert bool((points >= 0).all()) and bool((points <= 1).all()) and bool((reached <= threat.epsilon * (1 + 1e-6)).all())
    part = whole.take(torch.tensor([4, 1]))
    assert torch.equal(start_points(start, Ball.around(part.images, threat), part, 0, "p"), points[[4, 1]])
    if start == "clean":
        assert torch.equal(points, whole.images)
    else:
        other = start_points(start, Ball.around(whole.images, threat), whole, 0, "q")
        assert not any(torch.equal(a, b) for a, b in zip(points, other, strict=True))
        if threat.norm is not Norm.LINF:
            assert bool((reached > 0.999 * threat.epsilon).all())


def test_directions_have_their_structure():
    source = torch.Generator().manual_seed(1)
    blocks = DIRECTIONS["blocks"]((2, 14, 21), source)
    coarse = blocks[:, ::2, ::3]
    assert coarse.shape == (2, 7, 7) and set(blocks.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(blocks, coarse.repeat_interleave(2, 1).repeat_interleave(3, 2))
    stripes = DIRECTIONS["stripes"]((2, 5, 8), source)
    assert torch.equal(stripes, stripes[:, :1].expand(2, 5, 8)) and len(stripes[0, 0].unique()) == 2
    smooth = DIRECTIONS["dct3"]((2, 9, 12), source).double().numpy()
    spectrum = scipy.fft.dctn(smooth, axes=(1, 2))
    assert (
        np.abs(spectrum[:, :3, :3]).max() > 1 and np.abs(spectrum[:, 3:]).max() < 1e-4 and np.abs(spectrum[:, :, 3:]).max() < 1e-4
    )
    assert np.abs(smooth).max() == pytest.approx(1)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 5), (1, 7, 1)])
@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_small_images(shape, threat):
    small = batch(shape)
    for start in STARTS:
        assert start_points(start, Ball.around(small.images, threat), small, 0, "p").shape == small.images.shape
