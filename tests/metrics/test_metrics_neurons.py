"""Coverage, NS and NU against numbers worked by hand and against loops that know nothing of bits, blocks or chunks."""

from dataclasses import replace

import numpy as np
import pytest

from audit.collect.neurons import Activity, chosen, met, topped
from audit.errors import InputError, Undefined
from audit.evidence import AdversarialNeurons, NeuronProfile, Neurons
from audit.metrics import coverage, neurons
from audit.metrics.keys import metric_key
from audit.settings import Settings
from audit.vocabulary import Threat

LINF = Threat.parse("linf:8/255")
LAYERS, UNITS = ("conv", "head"), np.array([3, 2])


def profile_of(values) -> NeuronProfile:
    values = np.asarray(values, dtype=float)
    return NeuronProfile(
        layers=LAYERS,
        units=UNITS,
        low=values.min(axis=0),
        high=values.max(axis=0),
        positions=np.full(len(values), -1),
        source="other images",
    )


def neurons_of(values, profile: NeuronProfile, blocks: int = 2) -> Neurons:
    values = np.asarray(values, dtype=float)
    sections, below, above = met(values, profile)
    parts = np.array_split(values, blocks)
    seen = Activity(layers=LAYERS, units=UNITS, values=values)
    return Neurons(
        layers=LAYERS,
        units=UNITS,
        scored=len(values),
        sections=sections,
        below=below,
        above=above,
        top=topped(seen),
        counts=np.array([len(part) for part in parts]),
        means=np.stack([part.mean(axis=0) for part in parts]),
        squares=np.stack([part.var(axis=0) * len(part) for part in parts]),
        magnitudes=np.stack([seen.layer_means(np.abs(part)).mean(axis=0) for part in parts]),
    )


def attacked_of(clean, moved, profile: NeuronProfile) -> AdversarialNeurons:
    clean, moved = np.asarray(clean, dtype=float), np.asarray(moved, dtype=float)
    both = Activity(layers=LAYERS, units=UNITS, values=moved)
    sections, below, above = met(moved, profile)
    return AdversarialNeurons(
        threat=LINF,
        layers=LAYERS,
        units=UNITS,
        scored=len(moved),
        sections=sections,
        below=below,
        above=above,
        top=topped(both),
        attacked=np.ones(len(moved), dtype=bool),
        difference=both.layer_means(np.abs(moved - clean)),
        magnitude=both.layer_means(np.abs(clean)),
        forward_passes=np.full(len(moved), 2),
        backward_passes=np.zeros(len(moved), dtype=int),
    )


# Neuron 3 is dead in the profile, and moves all the same on the images that are scored.
PROFILE = profile_of([[0, 0, 1, 5, -1], [1, 10, 3, 5, 1]])
CLEAN = [[0.5, -1, 3.5, 9, 0], [0.5, 11, 4, 5, 1], [0.0, 10, 2, 5, -1]]
MOVED = [[1.5, -1, 1, 9, 0], [0.25, 5, 4, 4, 0], [-1, 10, 2, 5, 2]]
TABLE = {
    # Sections met, of 1000 for each of 5 neurons. Clean: .500 and .000; 10 of [0, 10] is the last section; .500 of [1, 3];
    # nothing of the dead one; the middle, the last and the first of [-1, 1].
    "KMNC": {"clean": 7 / 5000, "adversarial": 6 / 5000, "union": 10 / 5000},
    # Clean: below 0 and above 10 of neuron 1, above 3 of neuron 2.
    "NBC": {"clean": 3 / 10, "adversarial": 5 / 10, "union": 6 / 10},
    "SNAC": {"clean": 2 / 5, "adversarial": 3 / 5, "union": 4 / 5},
    # Most active: of (.5, -1, 3.5) the third, of (.5, 11, 4) and (0, 10, 2) the second; the fourth always. Attacked, the first too.
    "TKNC": {"clean": 3 / 5, "adversarial": 3 / 5, "union": 4 / 5},
}
METRICS = {
    metric.symbol: metric
    for metric in (
        coverage.k_multisection_neuron_coverage,
        coverage.neuron_boundary_coverage,
        coverage.strong_neuron_activation_coverage,
        coverage.top_k_neuron_coverage,
    )
}


def value_of(symbol, clean, attacked, variant, profile=PROFILE) -> float:
    arguments = {"neurons": clean, "neuron_profile": profile, "adversarial_neurons": attacked, "variant": variant}
    metric = METRICS[symbol]
    return metric(**{name: arguments[name] for name in metric.parameters}).value


@pytest.mark.parametrize("symbol", METRICS)
@pytest.mark.parametrize("variant", coverage.VARIANTS)
def test_coverage_by_hand(symbol, variant):
    """NBC and SNAC are not halved: a platform before this one divided both by twice what they are shares of."""
    clean, attacked = neurons_of(CLEAN, PROFILE), attacked_of(CLEAN, MOVED, PROFILE)
    assert value_of(symbol, clean, None if variant == "clean" else attacked, variant) == pytest.approx(TABLE[symbol][variant])


def brute_force(symbol, profile_values, values) -> float:
    """The definitions as loops over neurons and images."""
    covered = possible = 0
    edges = np.cumsum([0, *UNITS])
    for layer in range(len(UNITS)):
        for neuron in range(edges[layer], edges[layer + 1]):
            low, high = min(profile_values[:, neuron]), max(profile_values[:, neuron])
            possible += {"KMNC": 1000, "NBC": 2, "SNAC": 1, "TKNC": 1}[symbol]
            met_here = set()
            for row in values:
                if symbol == "TKNC" and all(
                    row[neuron] > row[other] for other in range(edges[layer], edges[layer + 1]) if other != neuron
                ):
                    met_here.add("top")
                if low == high:
                    continue
                if symbol == "KMNC" and low <= row[neuron] <= high:
                    place = int(1000 * (row[neuron] - low) / (high - low))
                    met_here.add(min(place, 999))
                if symbol in {"NBC", "SNAC"} and row[neuron] > high:
                    met_here.add("above")
                if symbol == "NBC" and row[neuron] < low:
                    met_here.add("below")
            covered += len(met_here)
    return covered / possible


@pytest.mark.parametrize("symbol", METRICS)
def test_coverage_against_loops(symbol):
    generator = np.random.default_rng(0)
    profiled, clean = generator.normal(size=(40, 5)), generator.normal(size=(90, 5)) * 1.3
    profiled[:, 1] = 0.0
    moved = clean + generator.normal(size=(90, 5))
    profile = profile_of(profiled)
    evidence, attacked = neurons_of(clean, profile), attacked_of(clean, moved, profile)
    for variant, values in (("clean", clean), ("adversarial", moved), ("union", np.concatenate([clean, moved]))):
        assert value_of(symbol, evidence, attacked, variant, profile) == pytest.approx(brute_force(symbol, profiled, values))


def test_more_images_never_cover_less():
    generator = np.random.default_rng(1)
    profile, values = profile_of(generator.normal(size=(30, 5))), generator.normal(size=(60, 5)) * 1.5
    for symbol in METRICS:
        found = [value_of(symbol, neurons_of(values[:n], profile), None, "clean", profile) for n in (5, 20, 60)]
        assert found == sorted(found) and found[0] < found[-1]


def test_parts_joined_are_the_whole():
    """Activations of every batch count: a platform before this one kept those of the first."""
    generator = np.random.default_rng(2)
    values, profile = generator.normal(size=(64, 5)) * 2 + 3, profile_of(generator.normal(size=(30, 5)) + 3)
    whole = neurons_of(values, profile, blocks=8)
    parts = [neurons_of(values[start : start + 16], profile, blocks=2) for start in range(0, 64, 16)]
    joined = parts[0].joined(parts[1]).joined(parts[2]).joined(parts[3])
    for a, b in zip(joined.moments(), whole.moments(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (joined.sections == whole.sections).all() and (joined.top == whole.top).all() and joined.scored == 64
    _, means, squares, _ = whole.moments()
    np.testing.assert_allclose(means, values.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(squares / 64, values.var(axis=0), rtol=1e-12)
    assert value_of("KMNC", whole, None, "clean", profile) > value_of("KMNC", parts[0], None, "clean", profile)


def test_sensitivity_and_uncertainty_by_hand():
    """Not the constants that a platform before this one returned for both."""
    clean, attacked = neurons_of(CLEAN, PROFILE), attacked_of(CLEAN, MOVED, PROFILE)
    # Layer conv: |x' - x| sums to 1 + 0 + 2.5, .25 + 6 + 0, 1 + 0 + 0; |x| to 5, 15.5, 12. Head: 0, 1 + 1, 0 + 3; 9, 6, 6.
    estimate = neurons.neuron_sensitivity(adversarial_neurons=attacked)
    assert estimate.value == pytest.approx((10.75 / 32.5 + 5 / 21) / 2)
    assert estimate.samples == 3 and estimate.interval is None and "fewer than 10" in estimate.why_no_interval
    rows = np.array(CLEAN, dtype=float)
    conv = rows[:, :3].var(axis=0).mean() / (32.5 / 9) ** 2
    head = rows[:, 3:].var(axis=0).mean() / (21 / 6) ** 2
    assert neurons.neuron_uncertainty(neurons=clean).value == pytest.approx((conv + head) / 2)


def test_sensitivity_rises_with_the_change_and_has_an_interval():
    generator = np.random.default_rng(3)
    profile, clean = profile_of(generator.normal(size=(9, 5))), generator.normal(size=(80, 5))
    step = generator.normal(size=(80, 5))
    small, large = (
        neurons.neuron_sensitivity(adversarial_neurons=attacked_of(clean, clean + s * step, profile)) for s in (0.1, 0.3)
    )
    assert large.value == pytest.approx(3 * small.value)
    assert small.interval.low < small.value < small.interval.high


def test_a_silent_layer_is_left_out_and_said():
    rows = np.array(CLEAN, dtype=float)
    rows[:, 3:] = 0.0
    moved = rows + 1
    estimate = neurons.neuron_sensitivity(adversarial_neurons=attacked_of(rows, moved, PROFILE))
    assert estimate.value == pytest.approx(3 / (32.5 / 3)) and "1 layers left out" in estimate.notes[1]
    with pytest.raises(Undefined, match="silent"):
        neurons.neuron_uncertainty(neurons=neurons_of(np.zeros((4, 5)), PROFILE))


def test_nothing_attacked_is_undefined_and_never_zero():
    clean, attacked = neurons_of(CLEAN, PROFILE), attacked_of(CLEAN, MOVED, PROFILE)
    nothing = replace(attacked, attacked=np.zeros(3, dtype=bool), scored=0)
    with pytest.raises(Undefined, match="nothing to attack"):
        neurons.neuron_sensitivity(adversarial_neurons=nothing)
    for symbol in METRICS:
        for variant in ("adversarial", "union"):
            with pytest.raises(Undefined, match="nothing to attack"):
                value_of(symbol, clean, nothing, variant)
    with pytest.raises(Undefined, match="ranges were taken from"):
        value_of("KMNC", replace(clean, scored=0), None, "clean")
    with pytest.raises(Undefined, match="one image"):
        neurons.neuron_uncertainty(neurons=neurons_of(CLEAN[:1], PROFILE, blocks=1))


def test_a_reader_is_told_what_the_number_rests_on():
    metric = coverage.k_multisection_neuron_coverage
    estimate = metric(neurons=neurons_of(CLEAN, PROFILE), neuron_profile=PROFILE, adversarial_neurons=None, variant="clean")
    text = " ".join(estimate.notes)
    assert "not the model's robustness" in text and "5 neurons in 2 layers (list sha256 " in text
    assert "1 dead in the profile and never covered" in text and "other images" in text
    assert estimate.interval is None and estimate.samples == 3


def test_the_clean_variant_belongs_to_no_threat():
    settings = replace(Settings.of("quick"), threats=(LINF, Threat.parse("l2:0.5")))
    values = list(coverage.k_multisection_neuron_coverage.values(settings))
    assert values[0] == ("clean", None) and len(values) == 5
    assert metric_key("k_multisection_neuron_coverage/clean").threat is None
    assert metric_key("k_multisection_neuron_coverage/union/linf_8-255").threat == LINF
    with pytest.raises(ValueError, match="one value per threat"):
        metric_key("k_multisection_neuron_coverage/adversarial")


def test_ties_have_no_most_active_neuron():
    flat = Activity(layers=LAYERS, units=UNITS, values=np.array([[0.0, 0, 0, 1, 1], [2, 2, 1, 0, 1]]))
    assert topped(flat).tolist() == [False, False, False, False, True]
    assert topped(Activity(layers=("one",), units=np.array([1]), values=np.zeros((1, 1)))).tolist() == [True]


def test_layers_are_chosen_by_pattern():
    units = {"features.0": 8, "features.1": 8, "head": 10}
    assert chosen(units, ()) == tuple(units) and chosen(units, ("head", "features.1")) == ("features.1", "head")
    with pytest.raises(InputError, match=r"no layer is called 'heat'; did you mean head\?"):
        chosen(units, ("heat",))
