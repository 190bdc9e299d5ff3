"""The 19 corruptions: determinism, strength, what small and grey images make of them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from audit.corruptions import sizes
from audit.corruptions.kinds import KINDS, corrupted
from audit.corruptions.parameters import PUBLISHED, SEVERITIES
from tests.corruptions.photos import IDS, photos

# The published severities of the other kinds are no order of the pixel distance.
RISING = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur", "motion_blur"),
    *("zoom_blur", "gaussian_blur", "brightness", "contrast", "jpeg_compression"),
)
SHAPES = [(3, 32), (1, 28), (1, 8), (3, 64)]


def all_severities(images: torch.Tensor, kind: str, ids: list[str], seed: int = 0) -> torch.Tensor:
    return torch.stack(list(corrupted(images, kind, ids, seed)), dim=1)


def distances(images: torch.Tensor, kind: str) -> list[float]:
    moved = all_severities(images, kind, IDS).float() - images[:, None].float()
    return moved.abs().mean(dim=(0, 2, 3, 4)).tolist()


def applicable(channels: int) -> list[str]:
    return [kind for kind in KINDS if sizes.not_applicable(kind, channels) is None]


@pytest.mark.parametrize(("channels", "size"), SHAPES)
def test_an_image_gets_the_same_corruption_in_any_batch_and_order(channels, size):
    images = photos(size, channels)
    for kind in applicable(channels):
        whole = all_severities(images, kind, IDS)
        alone = torch.cat([all_severities(images[i : i + 1], kind, IDS[i : i + 1]) for i in range(6)])
        backwards = all_severities(images.flip(0), kind, IDS[::-1]).flip(0)
        single = next(corrupted(images, kind, IDS, 0, severities=(4,)))
        assert torch.equal(whole, alone) and torch.equal(whole, backwards), kind
        assert torch.equal(whole[:, 3], single), kind


def test_large_images_are_the_same_alone_and_not_square():
    images = photos(224, count=2)[:, :, :, :200]
    for kind in KINDS:
        together = next(corrupted(images, kind, IDS[:2], 0, severities=(3,)))
        alone = next(corrupted(images[1:], kind, IDS[1:2], 0, severities=(3,)))
        assert together.shape == images.shape and torch.equal(together[1:], alone), kind


def test_another_process_gives_the_same_bytes():
    code = (
        "import hashlib; from tests.corruptions.test_corruptions_kinds import *; found = hashlib.sha256()\n"
        "for kind in KINDS: found.update(all_severities(photos(32), kind, IDS).numpy().tobytes())\n"
        "print(found.hexdigest())"
    )
    root = Path(__file__).resolve().parents[2]
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root).stdout.strip()
    own = hashlib.sha256()
    for kind in KINDS:
        own.update(all_severities(photos(32), kind, IDS).numpy().tobytes())
    assert other == own.hexdigest()


def test_the_draw_belongs_to_seed_and_id_and_not_to_the_severity():
    images = torch.full((2, 1, 32, 32), 128, dtype=torch.uint8)
    same = all_severities(images, "gaussian_noise", ["a", "a"])
    other = all_severities(images, "gaussian_noise", ["a", "b"])
    assert torch.equal(same[0], same[1]) and torch.equal(same[0], other[0]) and not torch.equal(other[0], other[1])
    assert not torch.equal(all_severities(images, "gaussian_noise", ["a", "b"], seed=1)[0], same[0])
    weak, strong = (same[0, severity].float() - 128 for severity in (0, 4))
    assert torch.corrcoef(torch.stack([weak.flatten(), strong.flatten()]))[0, 1] > 0.99


@pytest.mark.parametrize(("channels", "size"), [*SHAPES, (3, 224), (3, 16), (3, 48), (1, 130)])
@pytest.mark.parametrize("kind", RISING)
def test_the_pixel_distance_rises_with_severity(kind, channels, size):
    found = distances(photos(size, channels), kind)
    steps = [after - before for before, after in pairwise(found)]
    if kind == "motion_blur" and sizes.table_for(size, size) == 32:
        # 6 and 8 pixels to either side at sigma 2: what the longer kernel adds is less than a grey level.
        assert abs(steps.pop(2)) < 0.05
    assert min(steps) > 0, found


# Of the published definitions themselves, per table: how the distance goes from one severity to the next, = within 2 %.
PATTERNS = {
    "glass_blur": {224: "++-+", 64: "=+=+", 32: "==+-"},
    "snow": {224: "+=++", 64: "++++", 32: "++++"},
    "frost": {224: "++-+", 64: "+-++", 32: "++--"},
    "fog": {224: "++=+", 64: "++++", 32: "++++"},
    "elastic_transform": {224: "+-=+", 64: "-=--", 32: "----"},
    "pixelate": {224: "++++", 64: "++++", 32: "++++"},
    "spatter": {224: "++++", 64: "++-+", 32: "++-+"},
    "saturate": {224: "+-++", 64: "+-++", 32: "+-++"},
}


def pattern(row: list[float]) -> str:
    return "".join("=" if abs(after / before - 1) < 0.02 else "+" if after > before else "-" for before, after in pairwise(row))


@pytest.mark.parametrize("kind", PATTERNS)
def test_where_severity_is_no_distance_the_published_pattern_is_kept(kind):
    assert {size: pattern(distances(photos(size), kind)) for size in PUBLISHED} == PATTERNS[kind]
    assert {*PATTERNS, *RISING} == set(KINDS)


@pytest.mark.parametrize("size", [8, 14, 28, 48, 100, 150])
def test_every_kind_changes_images_of_any_size_at_every_severity(size):
    for channels in (1, 3):
        images = photos(size, channels)
        for kind in applicable(channels):
            moved = (all_severities(images, kind, IDS).float() - images[:, None].float()).abs().mean(dim=(2, 3, 4))
            assert (moved.mean(dim=0) > 0.01).all(), (kind, size, channels)


def test_kinds_that_mean_nothing_are_named():
    assert sizes.not_applicable("saturate", 3) is None
    with pytest.raises(ValueError, match="no saturation"):
        next(corrupted(photos(28, 1), "saturate", IDS, 0))
    with pytest.raises(ValueError, match="severities are 1 to 5"):
        next(corrupted(photos(28, 1), "contrast", IDS, 0, severities=(6,)))
    assert [kind for kind in KINDS if sizes.degenerate(kind, 8, 8)] == ["pixelate"]
    assert not any(sizes.degenerate(kind, 28, 28) for kind in KINDS)


def test_no_images_give_no_images():
    assert [part.shape for part in corrupted(photos(28, 1)[:0], "fog", [], 0)] == [(0, 1, 28, 28)] * len(SEVERITIES)


def test_black_white_and_constant_images_stay_finite():
    images = torch.stack([torch.full((3, 32, 32), value, dtype=torch.uint8) for value in (0, 255, 7)])
    for kind in KINDS:
        assert all_severities(images, kind, IDS[:3]).dtype == torch.uint8
    black = all_severities(images[:1], "spatter", IDS[:1])
    assert float(black.float().mean()) < 128


def test_published_sizes_take_the_published_numbers():
    for size, table in PUBLISHED.items():
        for kind, rows in table.items():
            for severity, row in enumerate(rows, start=1):
                assert sizes.parameters(kind, severity, size, size)[: len(row)] == row, (kind, size)


def test_other_sizes_scale_lengths_and_keep_amplitudes():
    assert sizes.parameters("gaussian_blur", 5, 448, 600) == (12,)
    assert sizes.parameters("gaussian_blur", 5, 28, 28) == (1,)
    assert sizes.parameters("motion_blur", 1, 8, 8) == (3, 0.5)
    assert sizes.parameters("brightness", 3, 150, 150) == (0.3,)
    assert sizes.parameters("elastic_transform", 1, 100, 100) == (12.5, 1.0, 0.0, 0.5)
    grids = [int(8 * sizes.parameters("pixelate", severity, 8, 8)[0]) for severity in SEVERITIES]
    assert len(set(grids)) == 5
