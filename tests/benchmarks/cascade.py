"""The white-box arms beside AutoAttack's standard version (pyautoattack), on every measurement of it that the cache holds.

A pass is one image through the model, forwards or backwards: both are counted alike, theirs and ours, ours with the Jacobian that
aims the searches and the harness's own verification, not with the clean predictions. README.md tells how to measure AutoAttack. L1
is printed and not judged: no plan for it is settled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
import torch
from attack_models import MODELS, load_model, load_sample
from peer_runs import Measured, measured

from audit.attacks.cascade import worst_case
from audit.attacks.stages import stages
from audit.data import Chunk
from audit.models.torch_module import wrap
from audit.profiles import profile
from audit.vocabulary import Norm, Threat

# Of AutoAttack's passes, at most; examples that it leaves standing and we do not are not counted against either.
MOST_PASSES = {"quick": 1 / 40, "standard": 1 / 15, "thorough": 1 / 4}
# Points of robust accuracy above AutoAttack's, at most; thorough leaves at most one example that only AutoAttack breaks.
MOST_POINTS = {"quick": 0.02, "standard": 0.01}
MOST_ONLY_THEIRS = 1


@dataclass(frozen=True, kw_only=True)
class Ours:
    robust: npt.NDArray[np.bool_]
    passes: int
    outside: int


def attack(theirs: Measured, name: str) -> Ours:
    """The profile's arm on the images that AutoAttack was measured on."""
    facts = theirs.facts
    model, drawn = facts["model"], load_sample(MODELS[facts["model"]].data)
    rows = slice(0, facts["samples"])
    chunk = Chunk(positions=np.arange(facts["samples"]), ids=drawn.ids[rows], labels=drawn.labels[rows], images=drawn.images[rows])
    classifier = wrap(load_model(model), image_shape=chunk.images.shape[1:], device="cpu")
    clean = classifier.logits(torch.from_numpy(chunk.images)).double().numpy()
    threat = Threat(norm=Norm(facts["norm"]), epsilon=facts["epsilon"], written=f"{facts['epsilon']:.6g}")
    arm = stages(profile(name).white_box(threat.norm), 0, classifier.classes)
    found = worst_case(classifier, chunk, clean, threat, arm, shown=0)
    passes = int(found.forward_passes.sum() + found.backward_passes.sum())
    return Ours(robust=found.robust, passes=passes, outside=int(found.outside.sum()))


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("name", MOST_PASSES)
def test_beside_autoattack(name, norm):
    kept = measured(peer="pyautoattack", attack="autoattack", norm=norm.value)
    if not kept:
        pytest.skip(f"no measurement of AutoAttack in {norm.label} (tests/benchmarks/README.md)")
    failed = []
    for theirs in kept:
        facts, ours = theirs.facts, attack(theirs, name)
        standing = theirs.arrays["clean_correct"] & ~theirs.arrays["broken"]
        only_theirs, only_ours = int((ours.robust & ~standing).sum()), int((standing & ~ours.robust).sum())
        share = ours.passes / (facts["forward"] + facts["backward"])
        print(
            f"\n{name}, {facts['model']}, {norm.label} {facts['epsilon']:.4g}: robust {ours.robust.sum()} of {len(ours.robust)} "
            f"(AutoAttack {standing.sum()}); broken by AutoAttack only {only_theirs}, by us only {only_ours}; passes {share:.4f}",
            end="",
        )
        weaker = (ours.robust.sum() - standing.sum()) / len(standing)
        worse = only_theirs > MOST_ONLY_THEIRS if name == "thorough" else weaker > MOST_POINTS[name]
        if worse or share > MOST_PASSES[name] or ours.outside:
            failed.append(facts["model"])
    assert norm is Norm.L1 or not failed
