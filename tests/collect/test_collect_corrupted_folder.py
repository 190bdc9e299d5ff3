"""What a model answers to corrupted images of a folder, by hand, and what follows where kinds are missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_run import SMALL, classifier, network, sample

from audit.collect import corruptions as collector
from audit.corruptions.parameters import BENCHMARK_KINDS, KINDS
from audit.data import load, load_corrupted
from audit.errors import MissingCapability, Undefined
from audit.evidence import EvidenceStore
from audit.metrics import CATALOG
from audit.metrics.calibration import calibration_error_corrupted
from audit.metrics.corruption import corruption_error, unnormalised_mean_corruption_error
from audit.plan import plan
from audit.settings import Settings


def chunk_of(folder, kinds):
    """The sample, and a folder in which severities 1 to 3 leave its images alone and 4 and 5 make them black."""
    chunk = sample()
    levels = (chunk.images[:, 0] * 255).round().astype(np.uint8)
    for place in ("clean", "corrupted"):
        (folder / place).mkdir()
        np.save(folder / place / "labels.npy", chunk.labels)
    np.save(folder / "clean" / "images.npy", levels)
    for kind in kinds:
        np.save(folder / "corrupted" / f"{kind}.npy", np.concatenate([levels] * 3 + [np.zeros_like(levels)] * 2))
    clean = load(str(folder / "clean"))
    exact = replace(chunk, ids=clean.ids, images=clean.images(np.arange(23)))
    return replace(exact, corrupted=load_corrupted(folder / "corrupted", clean, np.arange(23)))


def collected(chunk):
    return collector.collect(classifier(), chunk, Settings(profile=SMALL), EvidenceStore(), None)


def test_the_answers_are_those_to_the_images_of_the_folder(tmp_path):
    chunk = chunk_of(tmp_path, ("mine", "saturate", "fog"))
    found = collected(chunk)
    # Published kinds in their order, then others; what grey images make of `saturate` is the folder's affair.
    assert found.kinds == ("fog", "saturate", "mine") and found.predicted.shape == (6, 3, 5)
    assert found.source == f"a folder in the form of CIFAR-10-C, sha256 {chunk.corrupted.digest[:16]}"
    with torch.no_grad():
        clean = network()(torch.from_numpy(chunk.images[:6])).argmax(dim=1).numpy()
        black = int(network()(torch.zeros(1, 1, 8, 8)).argmax())
    assert (found.predicted[:, :, :3] == clean[:, None, None]).all() and (found.predicted[:, :, 3:] == black).all()
    assert (found.correct == (found.predicted == chunk.labels[:6, None, None])).all()
    assert found.distance[:, :, :3].max() < 1e-7
    np.testing.assert_allclose(found.distance[:, 1, 4], chunk.images[:6].mean(axis=(1, 2, 3)), atol=1e-6)
    wrong = 3 * (clean != chunk.labels[:6]) + 2 * (black != chunk.labels[:6])
    assert corruption_error(corruptions=found, variant="fog").value == pytest.approx(wrong.mean() / 5)


def test_a_mean_over_fewer_kinds_is_undefined_and_names_them(tmp_path):
    found = collected(chunk_of(tmp_path, KINDS[1:15]))
    assert found.left_out == (KINDS[0], *KINDS[15:])
    for value in (unnormalised_mean_corruption_error, calibration_error_corrupted):
        with pytest.raises(Undefined, match=f"over 15 kinds, of which the folder has no {KINDS[0]}$"):
            value(corruptions=found)
    with pytest.raises(MissingCapability, match="holds none"):
        corruption_error(corruptions=found, variant=KINDS[0])


def test_all_of_the_benchmarks_kinds_make_a_mean_and_the_note_says_whose_images(tmp_path):
    found = unnormalised_mean_corruption_error(corruptions=collected(chunk_of(tmp_path, BENCHMARK_KINDS)))
    assert found.notes[0] == "over 15 kinds and 5 severities"
    assert found.notes[1].startswith("of a folder in the form of CIFAR-10-C") and len(found.notes) == 2


def test_the_plan_counts_the_kinds_of_the_folder_and_names_those_it_lacks():
    settings = replace(Settings.of("quick"), corrupted_kinds=(*BENCHMARK_KINDS[2:], "mine"))
    planned = plan(CATALOG, {}, settings, 10, 64)
    (stage,) = (stage for stage in planned.stages if str(stage.key) == "corruptions")
    assert stage.forward_passes == 14 * 5
    assert "has no gaussian_noise, shot_noise; means over the 15 kinds" in planned.left_out["kinds of corruption"]
    assert "kinds of corruption" not in plan(CATALOG, {}, Settings.of("quick"), 10, 64).left_out
