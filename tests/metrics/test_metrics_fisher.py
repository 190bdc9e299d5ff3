"""What the Fisher values say of models that the numbers could flatter: saturated, masked, or without a temperature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_by_hand import LINF, estimate, lipschitz, predictions, spectrum, temperature

from audit.errors import MissingCapability, Undefined
from audit.fisher.sampling import relative_standard_error
from audit.fisher.temperature import fit_temperature
from audit.metrics import fisher, fisher_agreement, fisher_bound, kl_radius, margin
from audit.metrics.margin import MOST_ZERO_GRADIENTS

AT_T = {
    "lambda": lambda fit: fisher.fisher_spectral_norm(
        fisher_spectrum=spectrum(np.arange(1, 21)), temperature=fit, variant="median"
    ),
    "trace": lambda fit: fisher.fisher_trace(fisher_spectrum=spectrum(np.arange(1, 21)), temperature=fit),
    "rank": lambda fit: fisher.fisher_effective_rank(fisher_spectrum=spectrum(np.arange(1, 21)), temperature=fit),
    "radius": lambda fit: kl_radius.kl_radius(fisher_spectrum=spectrum(np.arange(1, 21)), temperature=fit),
    "radius, Linf": lambda fit: kl_radius.kl_radius_linf(fisher_spectrum=spectrum(np.arange(1, 21)), temperature=fit),
    "bound": lambda fit: fisher_bound.fisher_architecture_bound(architecture_bound=lipschitz(20), temperature=fit),
    "looseness": lambda fit: fisher_bound.fisher_bound_looseness(
        architecture_bound=lipschitz(20), fisher_spectrum=spectrum(np.arange(1, 21)), temperature=fit
    ),
    "lambda, queries": lambda fit: fisher.fisher_spectral_norm_estimate(
        fisher_estimate=estimate(np.arange(1, 21)), temperature=fit, variant="median"
    ),
    "trace, queries": lambda fit: fisher.fisher_trace_estimate(fisher_estimate=estimate(np.arange(1, 21)), temperature=fit),
}


@pytest.mark.parametrize("name", AT_T)
def test_nothing_is_measured_at_a_temperature_that_was_not_fitted(name):
    assert AT_T[name](temperature(1.0)).value > 0
    with pytest.raises(Undefined, match="no temperature could be fitted"):
        AT_T[name](temperature(0.01, at_limit=True))


def test_a_model_without_an_error_has_no_fitted_temperature():
    # Without this rule its eigenvalues at T = 0.01 would be the smallest of all.
    logits = np.random.default_rng(0).normal(size=(50, 4))
    assert fit_temperature(logits, logits.argmax(axis=1)).at_limit


@pytest.mark.parametrize("variant", ["median", "p95", "max"])
def test_outputs_that_do_not_move_are_undefined_and_never_zero(variant):
    with pytest.raises(Undefined, match="do not move at all around 30 of 30"):
        fisher.fisher_spectral_norm(fisher_spectrum=spectrum(np.zeros(30)), temperature=temperature(), variant=variant)
    for still in (
        lambda: fisher.fisher_trace(fisher_spectrum=spectrum(np.zeros(30)), temperature=temperature()),
        lambda: fisher.fisher_spectral_norm_raw(fisher_spectrum=spectrum(np.zeros(30)), variant="mean"),
    ):
        with pytest.raises(Undefined):
            still()


def test_a_few_outputs_that_do_not_move_are_counted():
    sizes = np.r_[np.zeros(4), np.full(26, 8.0)]
    found = fisher.fisher_spectral_norm(fisher_spectrum=spectrum(sizes), temperature=temperature(), variant="median")
    assert found.value == pytest.approx(2.0) and found.samples == 30
    assert any(note.startswith("4 examples at 0") for note in found.notes)
    rank = fisher.fisher_effective_rank(fisher_spectrum=spectrum(sizes), temperature=temperature())
    assert rank.value == pytest.approx(1.0) and rank.samples == 26 and "4 examples left out" in rank.notes[0]


def test_margin_share_counts_every_example_and_no_vanished_gradient():
    margins = np.r_[np.zeros(40), np.full(10, 0.02), np.full(50, 0.05)]
    share = margin.linearised_margin_share(fisher_spectrum=spectrum(np.ones(100), margins), threat=LINF)
    # 8/255 = 0.031; the 40 misclassified examples stay in the denominator.
    assert share.value == 0.5 and share.samples == 100
    vanished = np.arange(100) >= 95
    share = margin.linearised_margin_share(fisher_spectrum=spectrum(np.ones(100), margins, vanished), threat=LINF)
    assert share.value == 0.45 and share.samples == 100


def test_margins_of_a_masked_model_are_undefined():
    masked = spectrum(np.ones(100), np.ones(100), np.arange(100) < 100 * MOST_ZERO_GRADIENTS + 1)
    with pytest.raises(Undefined, match="6 of 100 examples have all-zero gradients"):
        margin.linearised_margin_share(fisher_spectrum=masked, threat=LINF)
    with pytest.raises(Undefined, match="nothing to linearise"):
        margin.linearised_margin_radius(fisher_spectrum=masked, variant="linf")


def test_estimates_need_more_than_half_of_the_examples():
    values = np.arange(1.0, 21)
    states = np.array(["measured"] * 11 + ["saturated"] * 5 + ["not_smooth"] * 4)
    found = fisher.fisher_spectral_norm_estimate(
        fisher_estimate=estimate(values, status=states), temperature=temperature(), variant="median"
    )
    assert found.value == 6.0 and found.samples == 11 and any("9 examples left out" in note for note in found.notes)
    states[10] = "saturated"
    with pytest.raises(Undefined, match=r"only 10 of 20 .*6 saturated, 4 not smooth"):
        fisher.fisher_spectral_norm_estimate(
            fisher_estimate=estimate(values, status=states), temperature=temperature(), variant="median"
        )


def test_intervals_of_estimates_have_width_from_directions_and_step():
    alike = np.full(40, 2.0)
    exact = fisher.fisher_spectral_norm_estimate(fisher_estimate=estimate(alike), temperature=temperature(), variant="median")
    assert (exact.interval.low, exact.interval.high) == (2.0, 2.0)
    stepped = fisher.fisher_spectral_norm_estimate(
        fisher_estimate=estimate(alike, step_error=0.1), temperature=temperature(), variant="median"
    )
    assert (stepped.interval.low, stepped.interval.high) == pytest.approx((2 / 1.1, 2.2))


@pytest.mark.parametrize("variant", ["median", "p95"])
def test_interval_of_a_quantile_covers_it_through_the_noise_of_the_directions(variant):
    """Examples that are nearly alike are the hard case: there the noise alone moves a high quantile by 1.6 standard errors."""
    generator = np.random.default_rng(0)
    error, probability = relative_standard_error(784, 64), {"median": 0.5, "p95": 0.95}[variant]
    for spread in (0.05, 1.0):
        truth = np.exp(spread * generator.normal(size=20000))
        covered = []
        for _ in range(150):
            # A sum of 64 squares has this relative error; 4 % is the bias that was measured on ten nearly equal eigenvalues.
            noisy = generator.choice(truth, 100) * 1.04 * generator.chisquare(64, 100) / 64
            interval = fisher.fisher_spectral_norm_estimate(
                fisher_estimate=estimate(noisy, standard_error=error), temperature=temperature(), variant=variant
            ).interval
            covered.append(interval.low <= np.quantile(truth, probability) <= interval.high)
        assert np.mean(covered) >= 0.93


def test_saturated_share_reads_probabilities():
    assert fisher.saturated_share(predictions=predictions(np.log([[0.9995, 0.0005], [0.99, 0.01]]), [0, 0])).value == 0.5


def test_agreement_of_the_estimate_with_the_exact_value():
    exact = spectrum(4 * np.array([1.0, 2.0, 4.0, 0.0, 1.0]))
    states = ["measured"] * 4 + ["saturated"]
    queried = estimate([1.1, 2.0, 8.0, 1.0, 9.0], standard_error=0.1, status=states)

    def of(variant, fit=None):
        return fisher_agreement.fisher_estimate_agreement(
            fisher_spectrum=exact, fisher_estimate=queried, temperature=fit or temperature(), variant=variant
        )

    assert of("ratio").value == pytest.approx(1.1) and of("ratio").samples == 3
    assert of("covered").value == pytest.approx(2 / 3)
    with pytest.raises(Undefined, match="no temperature"):
        of("ratio", temperature(0.01, at_limit=True))
    queried = replace(queried, positions=np.arange(5) + 10)
    with pytest.raises(Undefined, match="both"):
        of("ratio")


def test_the_radius_in_linf_is_that_in_l2_over_the_root_of_the_dimension():
    found = spectrum(np.arange(1, 22))
    both = [
        metric(fisher_spectrum=found, temperature=temperature()).value for metric in (kl_radius.kl_radius, kl_radius.kl_radius_linf)
    ]
    assert both == pytest.approx([np.sqrt(0.2 / (11 / 4)), np.sqrt(0.2 / (11 / 4)) / 28])
    for metric in (kl_radius.kl_radius, kl_radius.kl_radius_linf):
        with pytest.raises(Undefined, match="around 1 examples"):
            metric(fisher_spectrum=spectrum([0.0, 1.0]), temperature=temperature())


def test_the_architecture_bound_comes_with_its_looseness():
    # Lip = 200 at T = 2: 200² / (2 · 2²) = 5000, and the largest eigenvalue is 5.
    weights, measured = lipschitz(200), spectrum([20.0, 4.0])

    def loose(bound=weights, exact=measured):
        return fisher_bound.fisher_bound_looseness(architecture_bound=bound, fisher_spectrum=exact, temperature=temperature(2.0))

    bound = fisher_bound.fisher_architecture_bound(architecture_bound=weights, temperature=temperature(2.0))
    assert bound.value == pytest.approx(np.log10(5000)) and bound.interval is None
    assert loose().value == pytest.approx(3.0) and loose(lipschitz(201)).notes == (
        "vacuous: more than 1000 times the largest value",
    )
    assert loose(lipschitz(199)).notes == ()
    with pytest.raises(MissingCapability, match="the module trunk"):
        loose(lipschitz(1, "no architecture bound: the module trunk is of a kind whose constant is not known here"))
    with pytest.raises(Undefined, match="never move"), np.errstate(divide="ignore"):
        loose(lipschitz(0))
    with pytest.raises(Undefined, match="nothing to compare"):
        loose(exact=spectrum([0.0]))
