"""The probe attacks the first clean-correct examples and no others, at its own budgets, and costs at most what the plan says."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import small_run
import torch

from audit.collect import COLLECTORS, probe
from audit.collect.costs import passes
from audit.collect.probe import budgets, fit_probe_sample, huge
from audit.collect.reference_attack import in_8_bits
from audit.evidence import Evidence, EvidenceKey, EvidenceStore
from audit.models.torch_module import wrap
from audit.vocabulary import Capability, Norm, Threat

KINDS = (Evidence.PREDICTIONS, Evidence.PROBE_SAMPLE, Evidence.PROBE, Evidence.GRADIENT_PROBE, Evidence.GRADIENT_HEALTH)


def gathered(run, sample, size=1000) -> EvidenceStore:
    store = EvidenceStore()
    cuts = [slice(start, min(start + size, len(sample.labels))) for start in range(0, len(sample.labels), size)]
    for kind in KINDS:
        if kind in COLLECTORS and COLLECTORS[kind].capabilities & set(run.classifier.lacks):
            break
        found = run.collect(kind, sample, cuts, store) if kind in COLLECTORS else run.fit(kind, store)
        store = store.with_item(run.key(kind), found)
    return store


@pytest.fixture
def sample():
    return small_run.sample()


@pytest.fixture
def few(monkeypatch):
    """A probe of five examples."""
    monkeypatch.setattr(probe, "PROBE_EXAMPLES", 5)


@pytest.mark.parametrize("threat", ["linf:0.03", "l2:0.3", "l1:2"])
def test_only_the_first_clean_correct_examples_are_attacked(few, sample, threat):
    run = replace(small_run.small_run(), threat=Threat.parse(threat))
    store = gathered(run, sample, size=4)
    right = np.flatnonzero(store[run.key(Evidence.PREDICTIONS)].correct)
    assert store[run.key(Evidence.PROBE_SAMPLE)].positions.tolist() == right[:5].tolist() == [1, 2, 3, 4, 5]
    at, led = store[run.key(Evidence.PROBE)], store[run.key(Evidence.GRADIENT_PROBE)]
    outside = ~np.isin(np.arange(23), right[:5])
    for evidence in (at, led):
        assert (np.flatnonzero(evidence.probed) == right[:5]).all()
        for name, column in vars(evidence).items():
            if isinstance(column, np.ndarray):
                assert len(column) == 23 and not column[outside].any(), name
    assert at.by_epsilon[:, -1].sum() == 5 and led.step_gain[1:6].all()
    assert store[run.key(Evidence.GRADIENT_HEALTH)].examples == 5


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("threat", ["linf:0.03", "linf:0", "linf:1", "linf:0.5", "l2:100"])
def test_it_costs_at_most_what_the_plan_says(few, sample, threat, gradients):
    run = replace(small_run.small_run(gradients=gradients), threat=Threat.parse(threat))
    if not gradients and run.threat.norm is not Norm.LINF:
        return
    store = gathered(run, sample)
    for kind in (Evidence.PROBE, Evidence.GRADIENT_PROBE)[: 1 + gradients]:
        evidence = store[run.key(kind)]
        forward, backward = passes(run.key(kind), run.settings, run.classifier.lacks, 4, 64)
        assert evidence.forward_passes.max() <= forward and evidence.backward_passes.max() <= backward
        assert (evidence.forward_passes.sum() > 0) == (run.threat.epsilon > 0)
        assert (backward > 0) == (gradients and run.threat.epsilon > 0)


def test_epsilon_zero_probes_nothing_and_believes_gradients(sample):
    run = replace(small_run.small_run(), threat=Threat.parse("linf:0"))
    store = gathered(run, sample)
    assert not store[run.key(Evidence.PROBE)].probed.any()
    assert store[run.key(Evidence.GRADIENT_HEALTH)].believed


def test_budgets_hold_the_own_one_once_and_end_with_the_grey_image():
    for text in ("linf:1/255", "linf:0.25", "linf:0.5", "linf:1", "l2:0.5", "l1:3", "l2:1000"):
        threat = Threat.parse(text)
        for gradients in (True, False):
            found = budgets(threat, 784, gradients=gradients)
            assert list(found) == sorted(set(found)) and threat.epsilon in found and found[-1] >= huge(threat.norm, 784)
    assert budgets(Threat.parse("linf:1"), 784, gradients=True) == (0.5, 1.0)
    # Of all images the white and the black one are farthest from the grey one.
    grey = torch.full((784,), 0.5)
    for norm, order in ((Norm.LINF, torch.inf), (Norm.L2, 2), (Norm.L1, 1)):
        assert huge(norm, 784) == pytest.approx(float(torch.linalg.vector_norm(torch.ones(784) - grey, order)))


def test_attacks_do_not_see_what_others_broke(sample):
    """At the huge budget every example is attacked, the ones that smaller budgets broke included."""
    run = replace(small_run.small_run(), threat=Threat.parse("linf:0.1"))
    at = gathered(run, sample)[run.key(Evidence.PROBE)]
    index = at.epsilons.index(0.1)
    assert at.by_epsilon[:, index].any() and (at.broken == at.by_epsilon[:, index]).all()
    assert at.by_epsilon[at.probed, -1].all()


def test_square_is_asked_about_what_gradient_attacks_left_standing(sample):
    store = gathered(small_run.small_run(), sample)
    run = small_run.small_run()
    at, led = store[run.key(Evidence.PROBE)], store[run.key(Evidence.GRADIENT_PROBE)]
    standing = at.probed & ~(at.broken | led.single_step | led.doubled | led.restarted)
    assert (led.standing == standing).all() and standing.any() and not (led.queried & ~standing).any()
    assert led.queries == 200


class Wavering(torch.nn.Module):
    """Other scores every second time that it is asked about the same image."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.asked = inner, Counter()

    def forward(self, x):
        keys = [image.detach().numpy().tobytes() for image in x]
        self.asked.update(keys)
        scores = self.inner(x)
        return torch.stack([row.roll(1) if self.asked[key] % 2 == 0 else row for row, key in zip(scores, keys, strict=True)])


def test_a_break_that_does_not_last_is_noticed(sample):
    run = replace(small_run.small_run(), classifier=wrap(Wavering(small_run.network()), image_shape=(1, 8, 8), device="cpu"))
    store = gathered(run, sample)
    health = store[run.key(Evidence.GRADIENT_HEALTH)]
    assert store[run.key(Evidence.GRADIENT_PROBE)].unconfirmed.any()
    assert not health.believed and any("when asked again" in reason for reason in health.reasons)


def test_nothing_is_probed_where_nothing_is_right(sample):
    run = small_run.small_run()
    wrong = replace(sample, labels=(sample.labels + np.where(np.arange(23) % 6 == 0, 0, 1)) % 4)
    store = gathered(run, wrong)
    assert store[run.key(Evidence.PROBE_SAMPLE)].positions.shape == (0,)
    assert not store[run.key(Evidence.PROBE)].probed.any() and store[run.key(Evidence.GRADIENT_HEALTH)].believed
    assert fit_probe_sample(EvidenceStore({EvidenceKey(kind=Evidence.PREDICTIONS): store[run.key(Evidence.PREDICTIONS)]}), None)


def test_the_white_box_arm_is_the_longest_search_where_gradients_are_not_believed(sample):
    run = small_run.small_run()
    store = gathered(run, sample)
    key = run.key(Evidence.GRADIENT_HEALTH)
    names = {}
    for believed in (True, False):
        needed = store.with_item(key, replace(store[key], believed=believed))
        profile = run.settings.profile
        arm = profile.white_box(Norm.LINF) if believed else profile.escalation[Norm.LINF]
        attacks = COLLECTORS[Evidence.WORST_CASE_WHITE_BOX].collect(
            run.classifier, replace_rows(sample, 1), run.settings, first_row(needed), run.threat
        )
        names[believed] = attacks.attacks
        assert len(attacks.attacks) == len([search for search in arm if search.target < 4])
    assert names[True] != names[False] and names[False][-1] == "Square-5000"


def replace_rows(sample, count):
    return replace(
        sample,
        positions=sample.positions[:count],
        ids=sample.ids[:count],
        labels=sample.labels[:count],
        images=sample.images[:count],
    )


def first_row(store):
    from audit.evidence import Fitted, rows

    return EvidenceStore({key: value if isinstance(value, Fitted) else rows(value, 0, 1) for key, value in store.items()})


def test_in_8_bits_never_moves_away_from_an_8_bit_image():
    source = torch.Generator().manual_seed(0)
    x = (255 * torch.rand(9, 3, 5, 5, generator=source)).round() / 255
    changed = (x + 0.1 * (2 * torch.rand(x.shape, generator=source) - 1)).clamp(0, 1)
    rounded = in_8_bits(changed, x)
    np.testing.assert_allclose((255 * rounded).numpy(), (255 * rounded).round().numpy(), atol=1e-4)
    assert ((rounded - x).abs() <= (changed - x).abs() + 1e-6).all() and ((rounded - changed).abs() < 1 / 255).all()
    assert torch.equal(in_8_bits(x, x), x)


def test_8_bit_successes_are_successes_inside_the_ball(sample):
    """On 8-bit images and a budget of whole grey levels nearly all of them stay; within half a level none can."""
    images = (255 * sample.images).round() / 255
    for text, share in (("linf:8/255", 0.9), ("linf:0.4/255", 0.0)):
        run = replace(small_run.small_run(), threat=Threat.parse(text))
        store = EvidenceStore()
        eight = replace(sample, images=images.astype(np.float32))
        for kind in (Evidence.PREDICTIONS, Evidence.REFERENCE_ATTACK):
            store = store.with_item(run.key(kind), run.collect(kind, eight, [slice(0, 23)], store))
        found = store[run.key(Evidence.REFERENCE_ATTACK)]
        assert not (found.success_in_8_bits & ~found.success).any()
        assert found.success_in_8_bits.sum() >= share * found.success.sum()
        if share == 0.0:
            assert not found.success_in_8_bits.any()
        else:
            assert found.success.sum() > 5


def test_square_stands_in_for_gradients(few, sample):
    run = small_run.small_run(gradients=False)
    at = gathered(run, sample)[run.key(Evidence.PROBE)]
    assert at.attack == "Square-200" and at.epsilons == (0.03, 0.5) and Capability.GRADIENTS in run.classifier.lacks
    assert at.backward_passes.sum() == 0 and at.by_epsilon[at.probed, -1].all()
