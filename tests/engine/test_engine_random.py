"""A model that answers at random: ruled out by itself, audited as a mean with `eot`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import small_arms
import torch
import trained_digits

from audit import data
from audit.data.sampling import sample
from audit.engine import fingerprint
from audit.engine.conclude import conclude
from audit.engine.journal import open_journal
from audit.engine.stages import gather_stages
from audit.engine.subject import open_subject
from audit.evidence import Evidence, EvidenceKey
from audit.metrics.honesty import RunFacts
from audit.models.torch_module import wrap
from audit.profiles import profile
from audit.settings import Settings
from audit.vocabulary import Threat

THREAT = Threat.parse("linf:0.1")
SETTINGS = Settings(
    profile=replace(
        profile("quick"),
        linf=small_arms.pgd(margin=4),
        score_based=small_arms.queries(2, 10),
        reference_steps=4,
        curve_stages=1,
        curve=(0.5, 1.0),
        fisher_samples=4,
        fisher_directions=8,
        boundary_samples=2,
        certified_samples=2,
        minimal_samples=2,
        corruption_samples=6,
        sequence_samples=2,
    ),
    threats=(THREAT,),
)


class Noisy(torch.nn.Module):
    """Noise on every image, drawn anew at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = trained_digits.digits_cnn()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x + 0.05 * torch.randn_like(x))


def opened(folder, network: torch.nn.Module, settings: Settings, surrogate=None):
    folder.mkdir(exist_ok=True)
    dataset = data.load("digits:test")
    classifier = wrap(network, image_shape=dataset.image_shape, device="cpu")
    with open_journal(folder) as journal:
        return open_subject(
            *(classifier, dataset, sample(dataset, 32, 0), settings, journal, lambda _: None),
            is_reference=False,
            allow_chance=False,
            surrogate=surrogate,
        )


def test_without_eot_no_example_is_attacked(tmp_path):
    subject = opened(tmp_path, Noisy(), SETTINGS)
    assert {stage.key.kind for stage in subject.plan.stages} <= {Evidence.PREDICTIONS, Evidence.TEMPERATURE, Evidence.PROBE_SAMPLE}
    because = subject.plan.skipped[EvidenceKey(kind=Evidence.WORST_CASE_WHITE_BOX, threat=THREAT)]
    assert "answers at random" in because and "--eot K" in because


def test_with_eot_the_mean_is_attacked_and_every_call_counted(tmp_path):
    torch.manual_seed(0)
    settings = replace(SETTINGS, eot=6)
    subject = opened(tmp_path, Noisy(), settings)
    plain = opened(tmp_path / "plain", trained_digits.digits_cnn(), settings)
    assert subject.facts.averaged == 6 and plain.facts.averaged == 1, "a model that repeats itself needs no mean"
    assert 0 < subject.facts.averaged_difference < subject.facts.repeat_difference
    # The layers of a model that answers at random have no one value.
    inside = {Evidence.NEURON_PROFILE, Evidence.NEURONS, Evidence.ADVERSARIAL_NEURONS}
    repeated = [stage for stage in plain.plan.stages if stage.key.kind not in inside]
    assert [stage.key for stage in subject.plan.stages] == [stage.key for stage in repeated]
    for many, one in zip(subject.plan.stages, repeated, strict=True):
        assert (many.forward_passes, many.backward_passes) == (6 * one.forward_passes, 6 * one.backward_passes)
    asked = subject.classifier.forward_passes
    with open_journal(tmp_path / "plain") as journal:
        subject.gatherer._journal = journal
        gathered, _ = gather_stages(subject, settings, interrupted=False)
    assert not gathered.failed
    result = conclude(subject, gathered, data.load("digits:test"), settings, (), 0.0)
    # The predictions were made before; everything else is in between, and the Fisher spectrum's calls give logits and slopes.
    assert result.forward_passes == subject.classifier.forward_passes - asked + 6 * 32
    check = next(check for check in result.checks if check.number == 10)
    assert check.status == "warn" and "the mean of 6 calls was audited" in check.found
    assert result.identity.averaged == 6 and any("--eot 6" in caution for caution in result.identity.cautions)
    cascade = next(cascade for cascade in result.cascades if cascade.arm == "white-box")
    assert cascade.forward_passes_per_image > 6 and cascade.survivors < 32


def test_the_number_of_calls_belongs_to_the_fingerprint(tmp_path):
    identity = opened(tmp_path, trained_digits.digits_cnn(), SETTINGS).classifier.identity
    assert fingerprint.model(identity, (), 32) != fingerprint.model(replace(identity, averaged=2), (), 32)


@pytest.mark.parametrize(("labels_only", "words"), [(False, "differ by at most 0.02"), (True, "gave different labels")])
def test_the_check_tells_how_far_the_means_still_differ(labels_only, words):
    from audit.evidence import EvidenceStore
    from audit.metrics.honesty import CHECKS

    facts = RunFacts(
        threats=(THREAT,), repeat_difference=0.5, outputs="logits", outputs_clear=True, device_asked="cpu", device="cpu",
        labels_only=labels_only, averaged=9, averaged_difference=0.02,
    )  # fmt: skip
    (run,) = (run for text, run in CHECKS if text.number == 10)
    found = run(EvidenceStore(), facts)
    assert found.raised and found.found.endswith(
        f"the mean of 9 calls was audited, and two such means {words}" + (" in probability" * (not labels_only))
    )


def test_a_surrogate_changes_the_black_box_arm_and_nothing_else(tmp_path):
    dataset = data.load("digits:test")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        other = wrap(
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), image_shape=dataset.image_shape, device="cpu"
        )
    other._identity = replace(other.identity, name="other", digest="1" * 64)
    alone = opened(tmp_path / "a", trained_digits.digits_cnn(), SETTINGS)
    beside = opened(tmp_path / "b", trained_digits.digits_cnn(), SETTINGS, surrogate=other)
    assert alone.plan.left_out["transfer attacks"] == "no surrogate was given (--surrogate MODEL)"
    assert "transfer attacks" not in beside.plan.left_out
    assert beside.classifier.identity.surrogate == "other (sha256 111111111111)"
    changed = {
        stage.key.kind
        for stage in alone.plan.stages
        if alone.gatherer.fingerprints(stage.key, stage.needs) != beside.gatherer.fingerprints(stage.key, stage.needs)
    }
    assert changed == {Evidence.WORST_CASE_BLACK_BOX}
    assert np.isfinite(beside.gatherer.store[EvidenceKey(kind=Evidence.PREDICTIONS)].logits).all()
