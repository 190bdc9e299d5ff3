"""PGD-40 beside every library that has it: the same images, model, epsilon and machine, in one run, a ratio of medians of five.

Each library meets the model as a user loads it, with weights that want gradients, and attacks all images at once. Ours stops an
example at its first misclassified iterate, as it does in an audit, so the ratio follows the share that stands. Times are the
processor's, which bear a busy machine better than the clock.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from attack_peers import subject
from peer_runs import available, measure

from audit.attacks.pgd import pgd
from audit.attacks.run import Batch, Oracle, verify
from audit.vocabulary import Threat

PEERS = ("foolbox", "torchattacks", "adversarial-robustness-toolbox", "adv-lib", "secml-torch")
REPETITIONS = 5
# Our time as a share of the fastest library's, at most.
MOST = {"standard": 0.45, "robust": 0.6}


@pytest.mark.parametrize(
    ("model", "epsilon", "kind"),
    [
        ("fashion-cnn", 24 / 255, "standard"),
        ("fashion-cnn", 8 / 255, "standard"),
        ("fashion-cnn-linf", 24 / 255, "robust"),
        ("digits-cnn", 0.1, "standard"),
        ("digits-cnn-linf", 0.2, "robust"),
    ],
)
def test_pgd_40_beside_other_libraries(model, epsilon, kind):
    classifier, chunk, _ = subject(model, 500)
    threat = Threat.parse(f"linf:{epsilon!r}")
    own: list[float] = []
    theirs: dict[str, list[float]] = {peer: [] for peer in PEERS if available(peer)}
    assert theirs, "no other library: see README.md"
    robust: dict[str, float] = {}
    for _ in range(REPETITIONS):
        begun = time.process_time()
        oracle, batch = Oracle(classifier, len(chunk.labels)), Batch.of(chunk, classifier.device)
        proposals = pgd(oracle, batch, threat, loss="margin", steps=40, seed=0, purpose="bench", stop_early=True)
        broken = verify(oracle, batch, proposals, threat).broken
        own.append(time.process_time() - begun)
        for peer, times in theirs.items():
            facts = measure(peer, "pgd", model, "linf", anew=True, epsilon=epsilon).facts
            times.append(facts["processor_seconds"])
            robust[peer] = facts["robust_accuracy"]
    medians = {peer: float(np.median(times)) for peer, times in theirs.items()}
    fastest = min(medians, key=lambda peer: medians[peer])
    ratios = ", ".join(f"{peer} {np.median(own) / seconds:.2f} (robust {robust[peer]:.3f})" for peer, seconds in medians.items())
    ours = float((~broken).sum()) / 500
    share = oracle.backward.sum() / (40 * len(chunk.labels))
    print(f"\nPGD-40, {model} {epsilon:.4g}, {kind}: robust {ours:.3f}, gradients {share:.2f} of all; time as a share of: {ratios}")
    assert ours <= min(robust.values()) + 0.005
    assert np.median(own) <= MOST[kind] * medians[fastest]
