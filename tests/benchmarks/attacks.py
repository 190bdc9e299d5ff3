"""PGD-40 against foolbox on the same images, model and machine, in one run: a ratio of medians of five."""

from __future__ import annotations

import time

import foolbox
import numpy as np
import pytest
import torch

from audit import data
from audit.attacks.pgd import pgd
from audit.attacks.run import Batch, Oracle, verify
from audit.cli.demo_models import train
from audit.data.sampling import chunks, sample
from audit.models.torch_module import wrap
from audit.vocabulary import Threat

THREAT = Threat.parse("linf:0.1")


@pytest.mark.parametrize("kind", ["standard", "adversarial"])
def test_pgd_40_against_foolbox(kind):
    digits = data.load("digits:train")
    images = digits.images(range(len(digits.labels)))
    threat = Threat.parse("linf:0.15") if kind == "adversarial" else None
    module = train(images, digits.labels, epochs=10, adversarial_threat=threat, seed=0)
    test = data.load("digits:test")
    chunk = next(chunks(test, sample(test, 480, 0), 480))
    classifier = wrap(module, image_shape=(1, 8, 8), device="cpu")
    pixels, labels = torch.from_numpy(chunk.images), torch.from_numpy(chunk.labels)
    theirs_model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(steps=40)

    def ours() -> float:
        oracle, batch = Oracle(classifier, len(labels)), Batch.of(chunk, classifier.device)
        proposals = pgd(oracle, batch, THREAT, loss="margin", steps=40, seed=0, purpose="bench", stop_early=True)
        return 1 - float(np.mean(verify(oracle, batch, proposals, THREAT).broken))

    def theirs() -> float:
        _, _, success = attack(theirs_model, pixels, labels, epsilons=THREAT.epsilon)
        return 1 - float(success.float().mean())

    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    found = {}
    for _ in range(5):
        for name, run in (("ours", ours), ("theirs", theirs)):
            begun = time.perf_counter()
            found[name] = run()
            times[name].append(time.perf_counter() - begun)
    ratio = np.median(times["ours"]) / np.median(times["theirs"])
    print(f"PGD-40, {kind}: robust accuracy {found['ours']:.3f} (foolbox {found['theirs']:.3f}), time ratio {ratio:.2f}")
    assert found["ours"] <= found["theirs"] + 0.005
