import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity as skimage_ssim
from torchmetrics.functional.image import structural_similarity_index_measure

from audit.collect.distances import distortion, perturbation_sensitivity, ssim_window, structural_similarity


def pair(shape, seed=0, size=0.1):
    rng = np.random.default_rng(seed)
    x = rng.random(shape).astype(np.float32)
    return x, np.clip(x + rng.uniform(-size, size, shape), 0, 1).astype(np.float32)


def slow_psd(x, delta, tau):
    total = 0.0
    channels, height, width = x.shape

    def mirrored(i, length):
        return -i if i < 0 else 2 * (length - 1) - i if i >= length else i

    for c in range(channels):
        for i in range(height):
            for j in range(width):
                near = [x[c, mirrored(i + a, height), mirrored(j + b, width)] for a in (-1, 0, 1) for b in (-1, 0, 1)]
                total += abs(delta[c, i, j]) / max(np.std(near), tau)
    return total


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 11, 17), (1, 8, 8), (1, 3, 9)])
def test_ssim_against_scikit_image(shape):
    x, changed = (image.astype(np.float64) for image in pair(shape))
    window = ssim_window(*shape[1:])
    radius = window // 2
    # scikit-image averages the interior only: give it borders reflected as ours are, and its interior is our whole image.
    padded = [np.pad(image, ((0, 0), (radius, radius), (radius, radius)), mode="reflect") for image in (x, changed)]
    theirs = np.mean(
        [
            skimage_ssim(
                a, b, data_range=1.0, gaussian_weights=True, sigma=0.3 * radius, use_sample_covariance=False, win_size=window
            )
            for a, b in zip(*padded, strict=True)
        ]
    )
    assert structural_similarity(x, changed) == pytest.approx(theirs, abs=1e-9)
    assert structural_similarity(x, x) == pytest.approx(1.0)


@pytest.mark.parametrize(("shape", "size"), [((1, 28, 28), 0.1), ((3, 40, 32), 0.003), ((1, 8, 8), 0.5)])
def test_ssim_against_torchmetrics(shape, size):
    x, changed = (image.astype(np.float64) for image in pair(shape, size=size))
    sigma = 0.3 * (ssim_window(*shape[1:]) // 2)
    tensors = [torch.from_numpy(image)[None] for image in (changed, x)]
    theirs = structural_similarity_index_measure(*tensors, sigma=sigma, data_range=1.0)
    assert structural_similarity(x, changed) == pytest.approx(float(theirs), abs=1e-12)


def test_ssim_of_very_small_images_is_defined():
    for shape in ((1, 1, 1), (3, 2, 5), (1, 3, 3)):
        x, changed = (image.astype(np.float64) for image in pair(shape))
        assert -1 < structural_similarity(x, changed) < 1 and structural_similarity(x, x) == pytest.approx(1.0)


def test_ssim_knows_its_data_range():
    x, changed = (image.astype(np.float64) for image in pair((1, 28, 28)))
    assert structural_similarity(x / 4, changed / 4) > structural_similarity(x, changed)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 6), (1, 2, 2)])
def test_psd_against_a_loop(shape):
    x, changed = (image.astype(np.float64) for image in pair(shape))
    x[:, :2, :2] = 0.5  # a flat patch, where tau decides
    assert perturbation_sensitivity(x, changed - x) == pytest.approx(slow_psd(x, changed - x, 1 / 255), rel=1e-9)


def test_psd_is_larger_where_the_image_is_smooth():
    rng = np.random.default_rng(0)
    flat, rough, delta = np.full((1, 8, 8), 0.5), rng.random((1, 8, 8)), np.full((1, 8, 8), 0.01)
    assert perturbation_sensitivity(flat, delta) == pytest.approx(64 * 0.01 * 255)
    assert perturbation_sensitivity(rough, delta) < perturbation_sensitivity(flat, delta) / 20


def test_distances_by_hand():
    x = np.zeros((1, 1, 2, 2), dtype=np.float32)
    x[0, 0] = [[0.5, 0.25], [0.0, 1.0]]
    changed = x.copy()
    changed[0, 0, 0, 0] += 0.3
    changed[0, 0, 1, 0] += 0.4
    changed[0, 0, 0, 1] += 0.001  # a quarter of a grey level: no change after rounding
    found = distortion(x, changed)
    assert found.l0[0] == 0.5 and found.linf[0] == pytest.approx(0.4) and found.l2[0] == pytest.approx(0.5, abs=1e-5)
    assert found.norm_linf[0] == 1.0 and found.norm_l2[0] == pytest.approx(np.sqrt(0.25 + 0.0625 + 1))
    assert found.psd_per_pixel[0] == pytest.approx(found.psd[0] / 4)


def test_rows_are_independent_and_none_is_fine():
    x, changed = pair((5, 3, 16, 16))
    whole, alone = distortion(x, changed), distortion(x[3:4], changed[3:4])
    assert whole.ssim[3] == alone.ssim[0] and whole.psd[3] == alone.psd[0]
    assert distortion(x[:0], changed[:0]).ssim.shape == (0,)
    same = distortion(x, x)
    assert (same.ssim == 1).all() and (same.psd == 0).all() and (same.l0 == 0).all()


def test_a_stronger_change_is_worse_by_every_measure():
    x, weak = pair((1, 1, 20, 20), size=0.05)
    strong = np.clip(x + 3 * (weak - x), 0, 1)
    a, b = distortion(x, weak), distortion(x, strong)
    assert b.ssim[0] < a.ssim[0] and b.psd[0] > a.psd[0] and b.l2[0] > a.l2[0] and b.linf[0] > a.linf[0]
