"""Colour images through batch norm, groups and pooling: no bit depends on the chunk, or on the process that computed it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from multiprocessing import get_context

import numpy as np
import pytest
import small_run
import torch

from audit.collect import COLLECTORS, FITS
from audit.data import Chunk
from audit.evidence import BROKEN, OF_REFERENCE, Evidence, EvidenceKey, EvidenceStore
from audit.models.torch_module import wrap
from audit.settings import Settings
from audit.vocabulary import Threat

ROWS = 70
THREATS = "linf:0.002", "l2:0.06"
SETTINGS = Settings(profile=replace(small_run.SMALL, fisher_samples=40))


def network() -> torch.nn.Module:
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=4),
            torch.nn.BatchNorm2d(16),
            torch.nn.GELU(),
            torch.nn.MaxPool2d(4),
            torch.nn.Flatten(),
            torch.nn.Linear(256, 6),
        )
        layers.train()(torch.rand(32, 3, 32, 32))
    return layers.eval()


def colour_sample(network: torch.nn.Module) -> Chunk:
    images = torch.rand(ROWS, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        labels = network(images).argmax(dim=1).numpy()
    ids = np.array([f"colour {i}" for i in range(ROWS)])
    return Chunk(positions=np.arange(ROWS), ids=ids, labels=labels, images=images.numpy())


def collected(threat: str, size: int) -> EvidenceStore:
    model = network()
    others = replace(small_run.apart(), images=torch.rand(17, 3, 32, 32, generator=torch.Generator().manual_seed(6)).numpy())
    run = small_run.Run(wrap(model, image_shape=(3, 32, 32), device="cpu"), SETTINGS, Threat.parse(threat), others)
    sample, store = colour_sample(model), EvidenceStore()
    cuts = [slice(start, min(start + size, ROWS)) for start in range(0, ROWS, size)]
    # Moments of neurons are kept per chunk until they are read; test_collect_chunks.py holds them together.
    per_chunk = {Evidence.NEURONS, Evidence.ADVERSARIAL_NEURONS}
    every = Evidence if threat == THREATS[0] else small_run.per_threat()
    for kind in [each for each in every if each not in OF_REFERENCE and each not in per_chunk]:
        found = run.fit(kind, store) if kind in FITS else run.collect(kind, sample, cuts, _needed(run, kind, store))
        store = store.with_item(run.key(kind), found)
    return store


def _needed(run: small_run.Run, kind: Evidence, store: EvidenceStore) -> EvidenceStore:
    return EvidenceStore({run.key(need): store[run.key(need)] for need in COLLECTORS[kind].needs})


def assert_same(first: EvidenceStore, second: EvidenceStore) -> None:
    assert set(first) == set(second)
    for key, evidence in first.items():
        for field in fields(evidence):
            a, b = getattr(evidence, field.name), getattr(second[key], field.name)
            if field.name == "shown" and key.kind is Evidence.FISHER_SPECTRUM:
                continue  # each chunk keeps its most sensitive images, of which the engine keeps the most sensitive
            if field.name == "shown":
                # Every chunk keeps as many; the engine keeps the first of them all.
                a, b = ({shown.position: shown.adversarial for shown in part[: SETTINGS.shown_failures]} for part in (a, b))
                assert list(a) == list(b), key
                a, b = (np.array(list(part.values())) for part in (a, b))
            np.testing.assert_array_equal(a, b, err_msg=f"{key}.{field.name}")


@pytest.mark.parametrize("threat", THREATS)
def test_no_bit_depends_on_the_chunk_or_the_process(threat):
    whole = collected(threat, 128)
    worst = whole[EvidenceKey(kind=Evidence.WORST_CASE_WHITE_BOX, threat=Threat.parse(threat))]
    assert 0 < int((worst.state == BROKEN).sum()) < ROWS, "the active set must shrink and not vanish"
    assert_same(whole, collected(threat, 32))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert_same(whole, pool.submit(collected, threat, 64).result())
