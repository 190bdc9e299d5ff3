"""The corruptions against slow, obvious versions and other libraries."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import skimage.color
import torch
from PIL import Image

from audit.corruptions import blur, sizes, spatter, weather
from audit.corruptions.draws import Draws
from audit.corruptions.filters import smooth, streak
from audit.corruptions.kinds import corrupted
from audit.corruptions.noise import poisson
from tests.corruptions.photos import IDS, photos

SIZES = (32, 100)


def ours(images: torch.Tensor, kind: str, severity: int) -> np.ndarray:
    found = next(corrupted(images, kind, IDS[: len(images)], 0, severities=(severity,)))
    return found.numpy().astype(int)


def cut(values: np.ndarray) -> np.ndarray:
    return np.floor(np.clip(values, 0, 1) * 255 + 1e-3).astype(int)


@pytest.mark.parametrize("photons", [500.0, 60.0, 3.0])
def test_poisson_counts_are_the_inverse_of_scipys_distribution(photons):
    source = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 256, (20000,), generator=source).to(torch.uint8)
    drawn = torch.rand(20000, generator=source)
    expected = scipy.stats.poisson.ppf(np.maximum(drawn.double().numpy(), 1e-12), levels.numpy() / 255 * photons)
    found = poisson(levels, drawn, photons).numpy()
    # Half-open intervals and float32 probabilities: a draw on the edge may fall to either side.
    assert (found != np.where(levels == 0, 0, expected)).mean() < 2e-4 and np.abs(found - np.maximum(expected, 0)).max() <= 1
    assert (poisson(torch.zeros(4, dtype=torch.uint8), torch.tensor([0, 0.3, 0.9, 1 - 2**-24]), photons) == 0).all()
    assert abs(found[levels.numpy() == 255].mean() / photons - 1) < 0.15


@pytest.mark.parametrize("size", SIZES)
def test_gaussian_blur_is_scipys(size):
    images = photos(size, count=2)
    for severity in (1, 5):
        (sigma,) = sizes.parameters("gaussian_blur", severity, size, size)
        expected = scipy.ndimage.gaussian_filter(images.numpy() / 255, (0, 0, sigma, sigma), mode="nearest")
        assert np.abs(ours(images, "gaussian_blur", severity) - cut(expected)).max() <= 1


def test_smoothing_by_reflection_reaches_beyond_the_image():
    values = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = scipy.ndimage.gaussian_filter(values[0, 0].double().numpy(), 6, mode="reflect", truncate=3)
    assert np.abs(smooth(values, 6.0, border="reflect", truncate=3.0)[0, 0].numpy() - expected).max() < 1e-5


@pytest.mark.parametrize(("severity", "size"), [(2, 32), (5, 32), (1, 224), (5, 224)])
def test_defocus_blur_is_scipys_correlation_with_a_softened_disc(severity, size):
    images = photos(size, count=1)
    radius, sigma = sizes.parameters("defocus_blur", severity, size, size)
    side, window = (8, 3) if radius <= 8 else (int(radius), 5)
    grid = np.arange(-side, side + 1)
    disc = (grid[:, None] ** 2 + grid[None] ** 2 <= radius**2).astype(float)
    line = np.exp(-0.5 * ((np.arange(window) - window // 2) / sigma) ** 2)
    disc = scipy.ndimage.correlate(disc / disc.sum(), np.outer(line, line) / line.sum() ** 2, mode="mirror")
    expected = np.stack([scipy.ndimage.correlate(plane / 255, disc, mode="mirror") for plane in images[0].numpy()])
    assert np.abs(ours(images, "defocus_blur", severity)[0] - cut(expected)).max() <= 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["brightness", "saturate"])
def test_colour_kinds_are_those_of_scikit_image(kind, size):
    images = photos(size, count=2)
    for severity in (2, 5):
        row = sizes.parameters(kind, severity, size, size)
        hsv = skimage.color.rgb2hsv(images.permute(0, 2, 3, 1).numpy() / 255)
        if kind == "brightness":
            hsv[..., 2] = np.clip(hsv[..., 2] + row[0], 0, 1)
        else:
            hsv[..., 1] = np.clip(hsv[..., 1] * row[0] + row[1], 0, 1)
        expected = cut(skimage.color.hsv2rgb(hsv)).transpose(0, 3, 1, 2)
        assert np.abs(ours(images, kind, severity) - expected).max() <= 1


def test_contrast_by_hand():
    images = torch.tensor([[[[0, 100], [100, 200]]]], dtype=torch.uint8)
    # Severity 5 at small sizes keeps 15 % of the distance to the mean of 100.
    assert ours(images, "contrast", 5).tolist() == [[[[85, 100], [100, 115]]]]


@pytest.mark.parametrize(("size", "channels"), [(32, 3), (100, 3), (28, 1)])
def test_pixelate_and_jpeg_are_pils(size, channels):
    images = photos(size, channels, count=2)
    for severity in (1, 3, 5):
        (share,) = sizes.parameters("pixelate", severity, size, size)
        (quality,) = sizes.parameters("jpeg_compression", severity, size, size)
        for index, image in enumerate(images.numpy()):
            plain = Image.fromarray(image[0] if channels == 1 else image.transpose(1, 2, 0))
            small = plain.resize((int(size * share),) * 2, Image.Resampling.BOX)
            boxed = np.asarray(small.resize((size, size), Image.Resampling.NEAREST)).reshape(size, size, channels)
            assert np.abs(ours(images, "pixelate", severity)[index] - boxed.transpose(2, 0, 1)).max() == 0
            file = io.BytesIO()
            plain.save(file, "JPEG", quality=int(quality))
            read = np.asarray(Image.open(file)).reshape(size, size, channels)
            assert np.abs(ours(images, "jpeg_compression", severity)[index] - read.transpose(2, 0, 1)).max() == 0


@pytest.mark.parametrize("size", SIZES)
def test_zoom_blur_is_the_mean_of_scipys_enlarged_crops(size):
    images = photos(size, count=1)
    limit, step = sizes.parameters("zoom_blur", 3, size, size)
    plain = images[0].numpy() / 255
    total = plain.copy()
    factors = np.arange(1, limit, step)
    for factor in factors:
        crop = math.ceil(size / factor)
        top = (size - crop) // 2
        part = plain[:, top : top + crop, top : top + crop]
        large = np.stack([scipy.ndimage.zoom(plane, factor, order=1) for plane in part])
        trim = (large.shape[1] - size) // 2
        total += large[:, trim : trim + size, trim : trim + size]
    assert np.abs(ours(images, "zoom_blur", 3)[0] - cut(total / (len(factors) + 1))).max() <= 1


@pytest.mark.parametrize("severity", [2, 3, 4])
def test_glass_blur_is_a_walk_over_the_pixels(severity):
    size, images = 32, photos(32, count=2)
    sigma, reach, rounds = sizes.parameters("glass_blur", severity, size, size)
    reach = int(reach)
    draws = Draws(0, IDS[:2], "glass_blur", images.device)
    expected = []
    for index, image in enumerate(images):
        walked = torch.floor(smooth(image[None].float() / 255, sigma)[0] * 255 + 1e-3)
        for turn in range(int(rounds)):
            down, right = (
                (draws.uniform(f"{axis} {turn}", size * size)[index] * 2 * reach).long().view(size, size) - reach
                for axis in ("vertical", "horizontal")
            )
            for y in range(size - reach, reach, -1):
                for x in range(size - reach, reach, -1):
                    walked[:, y, x] = walked[:, y + int(down[y, x]), x + int(right[y, x])]
        expected.append(smooth(walked[None] / 255, sigma)[0])
    assert np.abs(ours(images, "glass_blur", severity) - cut(torch.stack(expected).numpy())).max() <= 1


def test_a_streak_is_a_weighted_sum_of_shifted_images():
    image, reach, sigma, angle = torch.rand(1, 1, 20, 20, generator=torch.Generator().manual_seed(1)), 4, 2.0, 30.0
    total, weights = np.zeros((20, 20)), 0.0
    for step in range(2 * reach + 1):
        dy = math.ceil(step * math.sin(math.radians(angle)) - 0.5)
        dx = math.ceil(step * math.cos(math.radians(angle)) - 0.5)
        weight = math.exp(-0.5 * (step / sigma) ** 2)
        rows, columns = (np.clip(np.arange(20) + shift, 0, 19) for shift in (dy, dx))
        total += weight * image[0, 0].numpy()[rows][:, columns]
        weights += weight
    assert np.abs(streak(image, reach, sigma, [angle])[0, 0].numpy() - total / weights).max() < 1e-5
    # A direction that leaves a small image at once keeps its brightness.
    constant = torch.full((1, 1, 6, 6), 0.7)
    assert torch.allclose(streak(constant, 10, 8.0, [90.0]), constant)


def test_elastic_displacements_follow_scipys_coordinates():
    size, images = 100, photos(100, count=1)
    gain, sigma, _, reach = sizes.parameters("elastic_transform", 4, size, size)
    field = (Draws(0, IDS[:1], "elastic_transform", images.device).uniform("field", 2, size, size)[0].numpy() * 2 - 1) * reach
    dx, dy = (scipy.ndimage.gaussian_filter(part, sigma, mode="reflect", truncate=3) * gain for part in field)
    y, x = np.mgrid[:size, :size]
    expected = [
        scipy.ndimage.map_coordinates(plane / 255, [y + dy, x + dx], order=1, mode="reflect") for plane in images[0].numpy()
    ]
    assert np.abs(ours(images, "elastic_transform", 4)[0] - cut(np.stack(expected))).max() <= 2


def test_plasma_of_two_by_two_by_hand():
    class Fixed:
        def uniform(self, name: str, *shape: int) -> torch.Tensor:
            return torch.full((1, *shape), {"0": 0.0, "centres 2": 0.75, "rows 2": 0.5, "columns 2": 0.25}[name])

    # centre 0 + 5000, rows (5000 + 5000 + 0 + 0) / 4, columns the same - 5000; then shifted and scaled to [0, 1].
    found = weather.plasma(Fixed(), 2, 2.0)[0]
    assert torch.allclose(found, torch.tensor([[2500.0, 5000.0], [0.0, 7500.0]]) / 7500)


def test_fog_keeps_the_brightest_value_in_range():
    images = photos(32, count=2)
    field = weather.plasma(Draws(0, IDS[:2], "fog", images.device), 32, 1.75).numpy()
    plain = images.numpy() / 255
    top = plain.max(axis=(1, 2, 3), keepdims=True)
    expected = (plain + 1.5 * field[:, None]) * top / (top + 1.5)
    assert field.min() == 0 and field.max() == 1
    assert np.abs(ours(images, "fog", 5) - cut(expected)).max() <= 1


def test_distance_to_the_nearest_edge_is_scipys_up_to_twenty():
    edges = torch.rand(3, 1, 60, 50, generator=torch.Generator().manual_seed(2)) < 0.001
    edges[2] = False
    found = spatter.to_edge(edges).numpy()
    for mask, row in zip(edges[:2, 0].numpy(), found[:2, 0], strict=True):
        assert np.allclose(row, np.minimum(scipy.ndimage.distance_transform_edt(~mask), 20))
    assert (found[2] == 20).all()


def test_edges_of_a_square_are_its_outline():
    image = torch.zeros(1, 1, 20, 20)
    image[:, :, 5:15, 5:15] = 200
    edges = spatter.canny(image)[0, 0].numpy()
    ring = scipy.ndimage.binary_dilation(image[0, 0].numpy() > 0) & ~scipy.ndimage.binary_erosion(image[0, 0].numpy() > 0)
    assert 30 <= edges.sum() <= 44 and not (edges & ~ring).any()
    # Weak edges count only where they touch a strong one.
    assert not spatter.canny(image / 10).any()


def test_equalising_spreads_the_levels():
    levels = torch.tensor([[[[10.0, 10.0], [20.0, 30.0]]]])
    # Cumulative counts beyond the darkest level, 0, 1 and 2 of 2, over the whole range.
    assert spatter.equalised(levels).tolist() == [[[[0.0, 0.0], [128.0, 255.0]]]]
    assert spatter.equalised(torch.full((1, 1, 2, 2), 7.0)).unique().tolist() == [7.0]


def test_snow_and_frost_whiten_and_stay_in_range():
    images = photos(64, count=2)
    for kind in ("snow", "frost"):
        assert ours(images, kind, 5).mean() > images.float().mean() + 20
    layer = weather.ice_layer(Draws(0, IDS[:2], "frost", images.device), 64, 64, 0.3)
    assert layer.shape == (2, 3, 64, 64) and float(layer.min()) >= 0 and float(layer.max()) <= 1
    assert float(layer.std(dim=(2, 3)).min()) > 0.02


@pytest.mark.parametrize(("severity", "factor"), [(2, 2), (5, 4)])
def test_pixelate_averages_blocks(severity, factor):
    levels = photos(224, count=1)
    for axis in (3, 2):  # columns before rows, whole grey levels in between
        shape = list(levels.shape)
        shape[axis : axis + 1] = [shape[axis] // factor, factor]
        levels = levels.reshape(shape).double().mean(dim=axis + 1).add(0.5).floor()
    expected = levels.repeat_interleave(factor, dim=2).repeat_interleave(factor, dim=3).numpy()
    # PIL's fixed-point weights round halves to either side.
    assert np.abs(ours(photos(224, count=1), "pixelate", severity) - expected).max() <= 1


def test_zooming_by_one_is_the_identity():
    assert torch.equal(blur._zoom(40, 1.0), torch.eye(40))
