"""The catalogue: every value an audit can measure, in report order.

Adding a metric touches its family's file, this tuple and a test.
"""

from __future__ import annotations

from audit.metrics import (
    accuracy,
    adversarial,
    boundary,
    certification,
    corruption,
    coverage,
    fisher,
    fisher_agreement,
    flips,
    margin,
    neurons,
)
from audit.metrics.spec import Metric

CATALOG: tuple[Metric, ...] = (
    accuracy.clean_accuracy,
    accuracy.adversarial_accuracy_white_box,
    accuracy.adversarial_accuracy_black_box,
    accuracy.accuracy_epsilon_curve,
    accuracy.attack_success_rate,
    adversarial.average_confidence_of_adversarial_class,
    adversarial.average_confidence_of_true_class,
    adversarial.noise_tolerance_estimation,
    adversarial.average_lp_distortion,
    adversarial.average_structural_similarity,
    adversarial.perturbation_sensitivity_distance,
    corruption.mean_corruption_error,
    corruption.relative_mean_corruption_error,
    corruption.unnormalised_mean_corruption_error,
    corruption.clean_subtracted_corruption_error,
    corruption.corruption_error,
    corruption.corruption_error_by_severity,
    flips.mean_flip_rate,
    flips.mean_flip_probability,
    flips.flip_probability,
    fisher.fisher_spectral_norm,
    fisher.fisher_spectral_norm_raw,
    fisher.fisher_trace,
    fisher.fisher_effective_rank,
    fisher.fisher_spectral_norm_estimate,
    fisher.fisher_spectral_norm_estimate_raw,
    fisher.fisher_trace_estimate,
    fisher_agreement.fisher_estimate_agreement,
    fisher.fitted_temperature,
    fisher.saturated_share,
    margin.linearised_margin_radius,
    margin.linearised_margin_share,
    fisher.kl_radius,
    boundary.empirical_boundary_distance,
    boundary.empirical_boundary_distance_adversarial,
    boundary.empirical_noise_insensitivity,
    certification.certified_accuracy,
    certification.average_certified_radius,
    neurons.neuron_sensitivity,
    neurons.neuron_uncertainty,
    coverage.k_multisection_neuron_coverage,
    coverage.neuron_boundary_coverage,
    coverage.strong_neuron_activation_coverage,
    coverage.top_k_neuron_coverage,
)
