"""Inner layers of a small network: what is collected is what a plain pass through it shows, and nothing is scored by itself."""

from dataclasses import fields, replace

import numpy as np
import pytest
import small_run

from audit import data
from audit.collect import COLLECTORS
from audit.data.sampling import sample as draw
from audit.engine.apart import check_given, set_apart
from audit.errors import InputError
from audit.evidence import AdversarialNeurons, Evidence, EvidenceStore, NeuronProfile, Neurons
from audit.settings import Settings

CUTS = [slice(start, min(start + 8, 23)) for start in range(0, 23, 8)]


@pytest.fixture(scope="module")
def run():
    return small_run.small_run()


@pytest.fixture(scope="module")
def store(run) -> EvidenceStore:
    """Predictions, the profile, both kinds of neurons and the reference attack, in chunks of 8."""
    found, sample = EvidenceStore(), small_run.sample()
    for kind in (
        *(Evidence.PREDICTIONS, Evidence.NEURON_PROFILE, Evidence.NEURONS, Evidence.REFERENCE_ATTACK),
        Evidence.ADVERSARIAL_NEURONS,
    ):
        needed = EvidenceStore({run.key(need): found[run.key(need)] for need in COLLECTORS[kind].needs})
        found = found.with_item(run.key(kind), run.collect(kind, sample, CUTS, needed))
    return found


def activations(images) -> np.ndarray:
    """Channels of the convolution and of the rectifier by their spatial mean, and the outputs: 6 + 6 + 4 neurons."""
    conv, relu, flat, head = small_run.network()
    import torch

    with torch.no_grad():
        first = conv(torch.from_numpy(images))
        second = relu(first)
        third = head(flat(second))
    return np.concatenate([first.mean(dim=(2, 3)), second.mean(dim=(2, 3)), third], axis=1).astype(float)


def test_the_profile_is_the_range_on_the_images_set_apart(run, store):
    found = store.get_as(NeuronProfile, run.key(Evidence.NEURON_PROFILE))
    values = activations(small_run.apart().images)
    assert found.units.tolist() == [6, 6, 4] and len(found.layers) == 3 and len(found.positions) == 17
    np.testing.assert_allclose(found.low, values.min(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.high, values.max(axis=0), rtol=1e-5, atol=1e-6)


def test_every_chunk_counts(run, store):
    found = store.get_as(Neurons, run.key(Evidence.NEURONS))
    values = activations(small_run.sample().images)
    count, means, squares, magnitudes = found.moments()
    assert count == found.scored == 23
    np.testing.assert_allclose(means, values.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(squares / 23, values.var(axis=0), rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(magnitudes[2], np.abs(values[:, 12:]).mean(), rtol=1e-5)
    high = store.get_as(NeuronProfile, run.key(Evidence.NEURON_PROFILE)).high
    assert (found.above == (values > high + 1e-6).any(axis=0)).all()


def test_attacked_images_are_seen_beside_the_clean_ones(run, store):
    found = store.get_as(AdversarialNeurons, run.key(Evidence.ADVERSARIAL_NEURONS))
    clean = store[run.key(Evidence.PREDICTIONS)].correct
    assert (found.attacked == clean).all() and found.scored == clean.sum()
    values = activations(small_run.sample().images)
    np.testing.assert_allclose(found.magnitude[clean, 2], np.abs(values[clean, 12:]).mean(axis=1), rtol=1e-5)
    assert (found.difference[clean] > 0).all() and not found.difference[~clean].any()
    attack = store[run.key(Evidence.REFERENCE_ATTACK)]
    # The outputs are the last layer, so how far they moved is known from the attack itself.
    moved = np.abs(attack.adversarial_logits - store[run.key(Evidence.PREDICTIONS)].logits)
    np.testing.assert_allclose(found.difference[clean, 2], moved[clean].mean(axis=1), rtol=1e-4)


def test_on_the_way_of_the_attack_comes_what_the_collector_collects(run, store):
    sample = small_run.sample()
    needed = EvidenceStore({run.key(kind): store[run.key(kind)] for kind in (Evidence.PREDICTIONS, Evidence.NEURON_PROFILE)})
    given = (run.classifier, sample, run.settings, needed, run.threat)
    attack, beside = COLLECTORS[Evidence.REFERENCE_ATTACK].beside.collect(*given)
    alone = COLLECTORS[Evidence.ADVERSARIAL_NEURONS].collect(*given)
    for found, expected in (
        *((beside, alone), (beside, store[run.key(Evidence.ADVERSARIAL_NEURONS)])),
        (attack, store[run.key(Evidence.REFERENCE_ATTACK)]),
    ):
        for field in fields(found):
            np.testing.assert_equal(getattr(found, field.name), getattr(expected, field.name), err_msg=field.name)


def test_images_of_the_profile_are_not_scored(run, store):
    profile = replace(store[run.key(Evidence.NEURON_PROFILE)], positions=np.arange(1, 23, 2))
    needed = EvidenceStore({run.key(Evidence.NEURON_PROFILE): profile})
    found = run.collect(Evidence.NEURONS, small_run.sample(), CUTS, needed)
    even = small_run.sample().images[::2]
    assert found.scored == 12 and found.moments()[0] == 23
    outside = (activations(even) > profile.high + 1e-6).any(axis=0)
    assert (found.above == outside).all()


def test_layers_can_be_chosen(run, store):
    some = replace(run, settings=replace(run.settings, layers=("3", "0")))
    found = some.collect(Evidence.NEURON_PROFILE, small_run.sample(), CUTS, EvidenceStore())
    assert found.layers == ("0", "3") and found.units.tolist() == [6, 4]
    with pytest.raises(InputError, match="no layer is called 'conv'"):
        wrong = replace(run, settings=replace(run.settings, layers=("conv",)))
        wrong.collect(Evidence.NEURON_PROFILE, small_run.sample(), CUTS, EvidenceStore())


def test_what_is_set_apart_is_not_in_the_sample():
    dataset, settings = data.load("digits:test"), replace(Settings.of("quick"), samples=100)
    indices = draw(dataset, 100, 0)
    rest = set_apart(dataset, indices, settings)
    assert len(rest.indices) == 500 and not set(rest.indices) & set(indices) and (rest.positions == -1).all()
    # A time budget takes the beginning of the sample and leaves what is set apart as it is.
    assert (set_apart(dataset, indices[:32], settings).indices == rest.indices).all()
    whole = replace(settings, samples=len(dataset.labels))
    everything = draw(dataset, len(dataset.labels), 0)
    part = set_apart(dataset, everything, whole)
    assert (part.indices == everything[part.positions]).all() and part.positions[:3].tolist() == [1, 3, 5]
    assert "left out of what is scored" in part.words and "other images" in rest.words
    given = data.load("digits:train")
    other = set_apart(dataset, indices, settings, given)
    assert other.dataset is given and len(other.indices) == 500 and "digits:train" in other.words
    assert len(set_apart(dataset, everything[:1], replace(settings, samples=len(dataset.labels))).indices) == 0


def test_profile_data_must_be_other_data_of_the_same_shape():
    dataset = data.load("digits:test")
    check_given(data.load("digits:train"), dataset)
    with pytest.raises(InputError, match="are the audited data"):
        check_given(data.load("digits:test"), dataset)
    with pytest.raises(InputError, match="images of shape"):
        check_given(data.load("digits:train", resize=data.Resize.parse("4x4")), dataset)
