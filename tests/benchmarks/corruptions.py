"""The corruptions against imagecorruptions: what they do to pixels, what they do to a classifier, and how long they take.

`peers/run_corruptions.py` runs the library in an environment of its own, once; what it found is kept in the cache (README.md).
Photographs are crops of three that scikit-image and scikit-learn bring along. The classifier is the cached Fashion-MNIST CNN, on
500 images padded to 32 x 32 pixels, of which it sees the middle. Times are processor time per image on one thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from functools import cache as once
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage.data
import torch
from attack_models import cache, load_model, load_sample
from sklearn.datasets import load_sample_images
from torch.nn import functional

from audit.corruptions.kinds import corrupted, levels_of
from audit.corruptions.parameters import KINDS, PUBLISHED

SCRIPT = Path(__file__).parent / "peers" / "run_corruptions.py"
SIZES, SAMPLES, SEEDS = (32, 224), 500, range(3)
COUNTS = {32: 60, 224: 12}
# How much mean and standard deviation of the change may differ, in shares of the standard deviation. What one random shape per
# image makes (fog, motion, ...) varies between images; the library's ice is photographs.
NEAR, RANDOM_SHAPES, ICE = 0.03, 0.15, 0.6
SHAPED = ("glass_blur", "motion_blur", "snow", "fog", "elastic_transform", "spatter")
MOST_ERROR_APART = 0.02
LEAST_SPEED_UP, LEAST_SPEED_UP_OF_A_KIND = 5, 1 / 1.5


def size_for(kind: str, size: int) -> int:
    """The library's elastic transform is the one for sizes that nothing is published for."""
    return size + 1 if kind == "elastic_transform" else size


@once
def photos(size: int, count: int) -> torch.Tensor:
    """(count, 3, size, size) uint8: crops of 200 to 400 pixels, shrunk or enlarged."""
    wholes = [skimage.data.astronaut(), *load_sample_images().images]
    generator, found = np.random.default_rng(0), []
    for place in range(count):
        whole = torch.from_numpy(np.array(wholes[place % len(wholes)])).permute(2, 0, 1)[None].float() / 255
        side = int(generator.integers(200, min(401, *whole.shape[2:])))
        top, left = (int(generator.integers(0, length - side + 1)) for length in whole.shape[2:])
        crop = whole[:, :, top : top + side, left : left + side]
        found.append(functional.interpolate(crop, size=(size, size), mode="bilinear", antialias=True))
    return levels_of(torch.cat(found))


@once
def fashion(size: int) -> torch.Tensor:
    """(500, 3, size, size) uint8, padded with black around the 28 x 28 pixels that begin at 2."""
    images = torch.from_numpy(load_sample("fashion").images[:SAMPLES])
    return levels_of(functional.pad(images, (2, size - 30, 2, size - 30))).expand(-1, 3, -1, -1).contiguous()


@once
def peer() -> dict[str, Any]:
    """What the library does, kept or measured now."""
    if not (cache() / "models" / "fashion-cnn.pt").exists():
        pytest.skip("the classifier is not trained: run tests/benchmarks/attack_training.py (tests/benchmarks/README.md)")
    folder = cache() / "corruptions"
    folder.mkdir(exist_ok=True)
    given, written = folder / "input.npz", folder / "imagecorruptions.npz"
    arrays = {f"photos_{size + more}": last(photos(size + more, COUNTS[size])) for size in SIZES for more in (0, 1)}
    arrays |= {f"fashion_{size}": last(fashion(size)) for size in (32, 33)}
    np.savez(given, tables=json.dumps(PUBLISHED[32]), **arrays)
    digest = hashlib.sha256(given.read_bytes()).hexdigest()
    if not written.exists() or str(np.load(written)["input"]) != digest:
        python = Path(os.environ.get("AUDIT_PEERS", "")) / "imagecorruptions" / "bin" / "python"
        if "AUDIT_PEERS" not in os.environ or not python.exists():
            pytest.skip("no environment of imagecorruptions: set AUDIT_PEERS to a folder that has one (tests/benchmarks/README.md)")
        subprocess.run([str(python), str(SCRIPT), str(given), str(written)], check=True, stdout=sys.stderr)
    return dict(np.load(written))


def last(images: torch.Tensor) -> np.ndarray:
    return images.permute(0, 2, 3, 1).contiguous().numpy()


@once
def ours(kind: str, size: int) -> tuple[np.ndarray, float]:
    """As the library's: the change (5, 3), and seconds per image."""
    torch.set_num_threads(1)
    images = photos(size_for(kind, size), COUNTS[size]).repeat(6 if kind in SHAPED else 1, 1, 1, 1)
    ids = [str(place) for place in range(len(images))]
    next(corrupted(images[:2], kind, ids[:2], 0, severities=(1,)))
    started = time.process_time()
    changed = list(corrupted(images, kind, ids, 0))
    seconds = (time.process_time() - started) / (5 * len(images))
    change = [each.double().numpy() - images.double().numpy() for each in changed]
    return np.array([[each.mean(), each.std(), np.abs(each).mean()] for each in change]), seconds


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_pixels_change_alike(kind: str, size: int) -> None:
    theirs, (own, _) = peer()[f"{kind}_{size}_change"], ours(kind, size)
    most = ICE if kind == "frost" else RANDOM_SHAPES if kind in SHAPED else NEAR
    apart = np.abs(own - theirs)[:, :2] / theirs[:, 1:2]
    print(f"\n{kind} {size}: mean apart {apart[:, 0].round(3)}, spread apart {apart[:, 1].round(3)} of the spread, at most {most}")
    assert apart.max() <= most


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_errs_alike(kind: str) -> None:
    labels, model = load_sample("fashion").labels[:SAMPLES, None], load_model("fashion-cnn")
    images = fashion(size_for(kind, 32))
    answers = []
    with torch.no_grad():
        # All severities of an image share their draw here, so that one seed draws less often than the library does.
        for changed in (each for seed in SEEDS for each in corrupted(images, kind, list(map(str, range(SAMPLES))), seed)):
            grey = changed[:, :, 2:30, 2:30].float().mean(dim=1, keepdim=True) / 255
            answers.append(model(grey).argmax(dim=1).numpy())
    own, theirs = np.stack(answers, axis=1) != labels, peer()[f"{kind}_32_answers"] != labels
    # What chance alone moves, from the images on which the two do not agree.
    chance = (own.mean(axis=1) - theirs.mean(axis=1)).std() / SAMPLES**0.5
    print(f"\n{kind}: error {own.mean():.3f}, theirs {theirs.mean():.3f}, standard error of the difference {chance:.3f}")
    assert abs(own.mean() - theirs.mean()) <= MOST_ERROR_APART


@pytest.mark.parametrize("size", SIZES)
def test_speed(size: int) -> None:
    """In all kinds together at least five times as fast, and no kind slower than 1.5 times."""
    own = {kind: ours(kind, size)[1] for kind in KINDS}
    theirs = {kind: float(peer()[f"{kind}_{size}_seconds"]) for kind in KINDS}
    for kind in KINDS:
        print(
            f"\n{kind:18} {size}: {1000 * own[kind]:7.2f} ms, theirs {1000 * theirs[kind]:8.2f}, {theirs[kind] / own[kind]:6.2f} x",
            end="",
        )
    total = sum(theirs.values()) / sum(own.values())
    without = {kind: theirs[kind] for kind in KINDS if kind != "glass_blur"}
    print(f"\nin all {total:.1f} x; without glass blur {sum(without.values()) / sum(own[kind] for kind in without):.1f} x")
    assert total >= LEAST_SPEED_UP
    slow = {kind: round(theirs[kind] / own[kind], 2) for kind in KINDS if theirs[kind] < LEAST_SPEED_UP_OF_A_KIND * own[kind]}
    assert not slow, f"slower than the library by more than 1.5 times: {slow}"
