"""Perturbation sequences: the same in any batch, small steps, and each family against a slow version."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from PIL import Image

from audit.corruptions.families import FAMILIES, FRAMES, NOISE_FAMILIES
from audit.corruptions.sequences import frames
from tests.corruptions.photos import IDS, photos


def sequence(images: torch.Tensor, family: str, ids: list[str] = IDS) -> torch.Tensor:
    return torch.stack(list(frames(images, family, ids[: len(images)], 0)), dim=1)


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 8), (1, 28)])
def test_a_sequence_is_the_same_in_any_batch(channels, size):
    images = photos(size, channels, count=3)
    for family in FAMILIES:
        whole = sequence(images, family)
        assert whole.shape == (3, FRAMES, channels, size, size) and whole.dtype == torch.uint8
        assert torch.equal(whole[1:2], sequence(images[1:2], family, IDS[1:])), family


@pytest.mark.parametrize("size", [8, 32, 120])
def test_steps_are_small_and_the_noise_families_start_clean(size):
    images = photos(size, count=2)
    for family in FAMILIES:
        found = sequence(images, family).float()
        steps = (found[:, 1:] - found[:, :-1]).abs().mean(dim=(2, 3, 4))
        # Streaks in whole pixels do not change with every degree.
        assert (steps.mean(dim=0) > 0).any(), family
        if family in NOISE_FAMILIES:
            assert torch.equal(found[:, 0], images.float())
            assert (found[:, 1:] - found[:, :1]).abs().mean() < 12
        elif family not in ("translate", "rotate", "tilt"):
            across = (found[:, 0] - found[:, -1]).abs().mean()
            assert across > 0.9 * steps.mean(), family
        if family in ("brightness", "rotate", "translate"):
            # The middle frame is the image itself.
            assert (found[:, 15] - images.float()).abs().max() <= 1, family


def test_translation_moves_whole_pixels_into_black():
    images = photos(32, 1, count=1)
    found = sequence(images, "translate")[0, :, 0]
    assert torch.equal(found[20, :, 5:], images[0, 0, :, :-5]) and (found[20, :, :5] == 0).all()
    assert torch.equal(found[12, :, :-3], images[0, 0, :, 3:]) and (found[12, :, -3:] == 0).all()
    assert (sequence(photos(8, 1, count=1), "translate").float().mean(dim=(2, 3, 4)) > 0).all(), "8 pixels keep something"


def test_rotation_and_scale_are_pils():
    image = photos(64, 1, count=1)
    plain = Image.fromarray(image[0, 0].numpy())
    inside = np.s_[10:-10, 10:-10]
    for t in (0, 7, 30):
        expected = np.asarray(plain.rotate(15 - t, resample=Image.Resampling.BILINEAR)).astype(int)
        found = sequence(image, "rotate")[0, t, 0].numpy().astype(int)
        assert np.abs(found - expected)[inside].max() <= 2
        factor = 0.70 + 0.02 * t
        middle = 31.5
        y, x = (np.mgrid[:64, :64] - middle) / factor + middle
        expected = scipy.ndimage.map_coordinates(image[0, 0].numpy().astype(float), [y, x], order=1)
        found = sequence(image, "scale")[0, t, 0].numpy().astype(float)
        within = (x > 0) & (x < 63) & (y > 0) & (y < 63)
        assert np.abs(found - expected)[within].max() <= 1.01


def test_tilt_is_a_projection_of_the_turned_plane():
    size, t = 64, 30
    y, x = np.mgrid[:size, :size]
    image = torch.from_numpy((2 * x + y).astype(np.uint8))[None, None]
    found = sequence(image, "tilt")[0, t, 0].numpy().astype(float)
    angle, far = math.radians(0.75 * 15), math.hypot(size, size)
    sine, cosine = math.sin(angle), math.cos(angle)
    # A point of the plane, turned about y, then about x, moved away and projected; read back where it came from.
    for u, v in ((10.0, 12.0), (-8.0, 5.0), (20.0, -15.0)):
        x, y, z = cosine * u - sine * 1, v, sine * u + cosine * 1
        y, z = cosine * y - sine * z, sine * y + cosine * z
        column, row = far * x / (z + far) + size / 2, far * y / (z + far) + size / 2
        seen = scipy.ndimage.map_coordinates(found, [[row], [column]], order=1)[0]
        source = scipy.ndimage.map_coordinates(image[0, 0].numpy().astype(float), [[v + size / 2], [u + size / 2]], order=1)[0]
        assert abs(seen - source) < 1.5


def test_brightness_follows_the_published_steps():
    grey = torch.full((1, 1, 32, 32), 100, dtype=torch.uint8)
    values = sequence(grey, "brightness")[0, :, 0, 0, 0].tolist()
    assert values == [int((100 / 255 + 0.015 * (t - 15)) * 255 + 1e-3) for t in range(31)]
    large = sequence(torch.full((1, 1, 224, 224), 100, dtype=torch.uint8), "brightness")[0, :, 0, 0, 0]
    assert int(large[16] - large[15]) == 5


def test_zoom_blur_is_a_running_mean():
    images = photos(32, 1, count=1)
    found = sequence(images, "zoom_blur")[0, :, 0].double()
    assert torch.equal(found[0], images[0, 0].double())
    # Frame 1 is the mean of the image and one enlargement, which is recovered from it.
    enlarged = 2 * found[1] - found[0]
    third = 3 * found[2] - found[0] - enlarged
    assert (third - enlarged).abs().mean() < 4
