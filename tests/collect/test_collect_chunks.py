"""A row's numbers depend on its example only: bit-identical under any chunking and any order."""

from dataclasses import fields, replace

import numpy as np
import pytest
import small_run
import torch

from audit.collect import COLLECTORS, FITS, why_not
from audit.data import Chunk
from audit.evidence import OF_REFERENCE, UNKNOWN, Evidence, EvidenceKey, EvidenceStore, Neurons
from audit.models import resolve_outputs
from audit.models.torch_module import wrap
from audit.vocabulary import Capability, Threat


@pytest.fixture
def run():
    return small_run.small_run()


@pytest.fixture
def sample():
    return small_run.sample()


@pytest.fixture
def run_without_gradients():
    return small_run.small_run(gradients=False)


def assert_equal(first, second, order=None, *, whole_blocks=True):
    moments = isinstance(first, Neurons)
    if moments:
        for a, b in zip(first.moments(), second.moments(), strict=True):
            # Sums over neurons are taken block by block; a chunk is a whole number of blocks.
            np.testing.assert_allclose(a, b, rtol=0 if whole_blocks and order is None else 1e-12)
    for field in fields(first):
        if moments and field.name in {"counts", "means", "squares", "magnitudes"}:
            continue
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, np.ndarray):
            b = b if order is None or len(b) != len(order) else b[order]
            assert a.dtype.kind == b.dtype.kind and a.shape == b.shape, field.name
            np.testing.assert_array_equal(a, b, err_msg=f"{type(first).__name__}.{field.name}")
        elif field.name == "shown":
            assert_same_examples(a, b)
        else:
            assert a == b, field.name


def assert_same_examples(first, second):
    first, second = (sorted(part, key=lambda example: example.position) for part in (first, second))
    assert [example.position for example in first] == [example.position for example in second]
    for a, b in zip(first, second, strict=True):
        for field in fields(a):
            np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))


@pytest.mark.parametrize("threat", ["linf:0.03", "l2:0.3", "l1:2"])
def test_chunking_changes_no_bit(run, sample, threat):
    run = replace(run, threat=Threat.parse(threat))
    kinds = [kind for kind in (COLLECTORS if threat == "linf:0.03" else small_run.per_threat()) if kind in COLLECTORS]
    whole = everything(run, sample, kinds, 1000)
    for size in (1, 5, 8, 16):
        cut = everything(run, sample, kinds, size)
        for kind in kinds:
            assert_equal(whole[run.key(kind)], cut[run.key(kind)], whole_blocks=size % 8 == 0)


def everything(run, sample, kinds, size):
    cuts = [slice(start, min(start + size, 23)) for start in range(0, 23, size)]
    store = EvidenceStore()
    for kind in (kind for kind in Evidence if kind in kinds or kind in FITS):
        if kind in FITS:
            found = run.fit(kind, store)
        else:
            needed = EvidenceStore({run.key(need): store[run.key(need)] for need in COLLECTORS[kind].needs})
            found = run.collect(kind, sample, cuts, needed)
        store = store.with_item(run.key(kind), found)
    return store


class Fragile(torch.nn.Module):
    """No answer where one pixel is bright; the attacks walk into it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.where((x[:, 0, 3, 3] > 0.9)[:, None], torch.nan, self.inner(x))


def test_chunking_changes_no_bit_where_the_model_fails(run, sample):
    images = sample.images.copy()
    images[:, 0, 3, 3] = np.minimum(images[:, 0, 3, 3], 0.89)
    images[::4, 0, 3, 3] = 0.89
    sample = replace(sample, images=images)
    run = replace(run, classifier=wrap(Fragile(small_run.network()), image_shape=(1, 8, 8), device="cpu", block_rows=8))
    # Fisher evidence and corruptions need every answer; of thousands, those that are missing would be looked for one by one.
    left_out = {*(Evidence.FISHER_SPECTRUM, Evidence.FISHER_ESTIMATE), Evidence.CERTIFICATION, Evidence.BOUNDARY_DISTANCE}
    left_out |= {Evidence.MINIMAL_PERTURBATIONS, Evidence.UNIVERSAL_PERTURBATION, Evidence.UNIVERSAL_EFFECT}
    left_out |= {Evidence.CORRUPTIONS, Evidence.SEQUENCES}
    kinds = [kind for kind in COLLECTORS if kind not in left_out]
    whole = everything(run, sample, kinds, 1000)
    for size in (1, 6):
        cut = everything(run, sample, kinds, size)
        for kind in kinds:
            assert_equal(whole[run.key(kind)], cut[run.key(kind)], whole_blocks=False)
    assert (whole[run.key(Evidence.WORST_CASE_WHITE_BOX)].state == UNKNOWN).any()


def test_chunking_changes_no_bit_for_probabilities(run, sample):
    softmax = torch.nn.Sequential(small_run.network(), torch.nn.Softmax(dim=1))
    inner = wrap(softmax, image_shape=(1, 8, 8), device="cpu", block_rows=8)
    run = replace(run, classifier=resolve_outputs(inner, torch.from_numpy(sample.images)))
    whole = everything(run, sample, list(COLLECTORS), 1000)
    for size in (1, 6):
        cut = everything(run, sample, list(COLLECTORS), size)
        for kind in COLLECTORS:
            assert_equal(whole[run.key(kind)], cut[run.key(kind)], whole_blocks=False)


def test_order_changes_no_bit(run, run_without_gradients, sample):
    order = np.random.default_rng(0).permutation(23)
    shuffled = Chunk(
        positions=sample.positions[order], ids=sample.ids[order], labels=sample.labels[order], images=sample.images[order]
    )
    for runner in (run, run_without_gradients):
        straight, mixed = runner.everything(sample), runner.everything(shuffled, size=6)
        assert set(straight) == set(mixed)
        for key, value in straight.items():
            if key.kind is Evidence.TEMPERATURE:
                assert mixed[key].value == pytest.approx(value.value, rel=1e-9)
            elif key.kind is Evidence.PROBE_SAMPLE:
                assert sorted(mixed[key].positions) == sorted(value.positions)
            elif key.kind is Evidence.GRADIENT_HEALTH:
                assert_equal(value, mixed[key])
            elif key.kind is Evidence.FISHER_ESTIMATE:
                continue  # read the fitted temperature, whose sum order changed; covered by chunking
            elif key.kind in {Evidence.BOUNDARY_STEPS, Evidence.MINIMAL_PERTURBATIONS}:
                back = np.argsort(mixed[key].positions)
                np.testing.assert_array_equal(value.distance, mixed[key].distance[back])
            else:
                some = {Evidence.FISHER_SPECTRUM, Evidence.BOUNDARY_DISTANCE, Evidence.CERTIFICATION}
                some |= {Evidence.CORRUPTIONS, Evidence.SEQUENCES, Evidence.ARCHITECTURE_BOUND}
                back = np.argsort(mixed[key].positions) if key.kind in some else np.argsort(order)
                assert_equal(value, mixed[key], back)


def test_a_query_only_model_gets_its_arms(run_without_gradients, sample):
    evidence = run_without_gradients.everything(sample)
    kinds = {key.kind for key in evidence}
    led = {Evidence.GRADIENT_PROBE, Evidence.GRADIENT_HEALTH, Evidence.WORST_CASE_WHITE_BOX, Evidence.FISHER_SPECTRUM}
    led |= {Evidence.BOUNDARY_STEPS, Evidence.MINIMAL_PERTURBATIONS, Evidence.ARCHITECTURE_BOUND}
    led |= {Evidence.UNIVERSAL_PERTURBATION, Evidence.UNIVERSAL_EFFECT}
    inside = {Evidence.NEURON_PROFILE, Evidence.NEURONS, Evidence.ADVERSARIAL_NEURONS}
    assert kinds == set(Evidence) - led - inside - set(OF_REFERENCE)
    curve = evidence[run_without_gradients.key(Evidence.ACCURACY_EPSILON)]
    reference = evidence[run_without_gradients.key(Evidence.REFERENCE_ATTACK)]
    assert curve.arm == "black-box" and reference.attack == "Square-20"
    assert reference.backward_passes.sum() == 0
    assert (reference.forward_passes[reference.clean_correct] == 22).all()


def test_why_not_speaks_in_words():
    lacking = {Capability.GRADIENTS: "ONNX Runtime has no backward pass"}
    assert all(why_not(kind, {}) is None for kind in Evidence)
    assert why_not(Evidence.WORST_CASE_WHITE_BOX, lacking) == "ONNX Runtime has no backward pass"
    led = {Evidence.GRADIENT_PROBE, Evidence.GRADIENT_HEALTH, Evidence.WORST_CASE_WHITE_BOX, Evidence.FISHER_SPECTRUM}
    led |= {Evidence.BOUNDARY_STEPS, Evidence.MINIMAL_PERTURBATIONS, Evidence.ARCHITECTURE_BOUND}
    led |= {Evidence.UNIVERSAL_PERTURBATION, Evidence.UNIVERSAL_EFFECT}
    queried = set(Evidence) - led
    assert {kind for kind in Evidence if why_not(kind, lacking) is None} == queried
    lacking[Capability.SCORES] = "labels only"
    labelled = {Evidence.PREDICTIONS, Evidence.PROBE_SAMPLE, Evidence.WORST_CASE_BLACK_BOX, Evidence.ACCURACY_EPSILON}
    labelled |= {Evidence.NEURON_PROFILE, Evidence.NEURONS, Evidence.BOUNDARY_DISTANCE, Evidence.CERTIFICATION}
    labelled |= {Evidence.CORRUPTIONS, Evidence.SEQUENCES, *OF_REFERENCE}
    assert {kind for kind in Evidence if why_not(kind, lacking) is None} == labelled
    lacking[Capability.REFERENCE] = "none was given"
    assert {why_not(kind, lacking) for kind in OF_REFERENCE} == {"none was given"}
    assert why_not(Evidence.TEMPERATURE, lacking) == why_not(Evidence.REFERENCE_ATTACK, lacking) == "labels only"


def test_the_declared_graph_is_whole_and_acyclic():
    kinds = [*COLLECTORS, *FITS, *OF_REFERENCE]
    assert set(kinds) == set(Evidence) and len(set(kinds)) == len(kinds)
    done: set[Evidence] = set()
    for lacks in ({}, {Capability.GRADIENTS: "none"}):
        done.clear()
        while len(done) < len(COLLECTORS) + len(FITS):
            ready = {kind for kind in COLLECTORS if COLLECTORS[kind].needs_of(lacks) <= done}
            ready |= {kind for kind in FITS if FITS[kind].needs <= done}
            assert ready - done
            done |= ready
    assert EvidenceKey(kind=Evidence.PREDICTIONS) == EvidenceKey(kind=Evidence.PREDICTIONS, threat=None)
