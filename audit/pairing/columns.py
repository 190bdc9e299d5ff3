"""The per-example column behind a metric's value, and the statistic of it that the value is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import scipy.stats

from audit.audited import Audited
from audit.evidence import Bools, Floats
from audit.result import Measured, MetricRecord
from audit.text import printable

WHITE_BOX, BLACK_BOX, CURVE = "adversarial_accuracy_white_box", "adversarial_accuracy_black_box", "accuracy_epsilon_curve"
OVER_SUCCESSES = frozenset(
    {
        "average_confidence_of_adversarial_class", "average_confidence_of_true_class", "noise_tolerance_estimation",
        "average_lp_distortion", "average_structural_similarity", "perturbation_sensitivity_distance",
    }
)  # fmt: skip
REFERENCE_ATTACK = OVER_SUCCESSES | {"attack_success_rate"}
ATTACKED = REFERENCE_ATTACK | {WHITE_BOX, BLACK_BOX, CURVE}
QUERIED_FISHER = frozenset(
    {
        "fisher_spectral_norm_estimate", "fisher_spectral_norm_estimate_raw", "fisher_trace_estimate", "fisher_estimate_agreement",
    }
)  # fmt: skip
AT_FITTED_TEMPERATURE = frozenset(
    {"fisher_spectral_norm", "fisher_trace", "fisher_effective_rank", "kl_radius", "kl_radius_linf"}
    | {"fisher_architecture_bound", "fisher_bound_looseness", "fitted_temperature"}
) | (QUERIED_FISHER - {"fisher_spectral_norm_estimate_raw"})


class Statistic(StrEnum):
    """How a per-example column becomes the metric's value."""

    SHARE = "share"
    MEAN = "mean"
    MEDIAN = "median"
    P95 = "95th percentile"

    def of(self, values: Floats) -> Floats:
        """Reduce the last axis of (..., n)."""
        match self:
            case Statistic.SHARE | Statistic.MEAN:
                return np.asarray(values.mean(axis=-1))
            case Statistic.MEDIAN:
                return np.asarray(np.quantile(values, 0.5, axis=-1))
            case Statistic.P95:
                return np.asarray(np.quantile(values, 0.95, axis=-1))


@dataclass(frozen=True, kw_only=True)
class Behind:
    """What stands behind a metric's value: `values` (n,) where `known` (n,), and the statistic of them that it is.

    `noise` is the relative error of the value that comes from within the examples: 0 unless each of them is an estimate itself.
    """

    values: Floats
    known: Bools
    statistic: Statistic
    noise: float = 0.0


_DIRECTION_ERROR = "lambda_estimate_relative_error"
_BY_VARIANT = {"mean": Statistic.MEAN, "median": Statistic.MEDIAN, "p95": Statistic.P95}
# The column and the statistic behind each metric; None where the variant names it. `{key}` is the metric's own key.
_COLUMNS: dict[str, tuple[str, Statistic | None]] = {
    "clean_accuracy": ("correct", Statistic.SHARE),
    WHITE_BOX: ("white_box_state/{threat}", Statistic.SHARE),
    BLACK_BOX: ("black_box_state/{threat}", Statistic.SHARE),
    CURVE: ("{key}", Statistic.SHARE),
    "attack_success_rate": ("reference_success/{threat}", Statistic.SHARE),
    "fisher_spectral_norm": ("lambda_max_T", None),
    "fisher_spectral_norm_raw": ("lambda_max_raw", None),
    "fisher_trace": ("trace_T", Statistic.MEDIAN),
    "fisher_effective_rank": ("{key}", Statistic.MEDIAN),
    "fisher_spectral_norm_estimate": ("lambda_estimate_T", None),
    "fisher_spectral_norm_estimate_raw": ("lambda_estimate_raw", None),
    "fisher_trace_estimate": ("{key}", Statistic.MEDIAN),
    "unnormalised_mean_corruption_error": ("{key}", Statistic.MEAN),
    "corruption_error": ("{key}", Statistic.MEAN),
    "mean_flip_probability": ("{key}", Statistic.MEAN),
    "flip_probability": ("{key}", Statistic.MEAN),
    "saturated_share": ("{key}", Statistic.SHARE),
    "linearised_margin_radius": ("margin_{variant}", Statistic.MEDIAN),
    "linearised_margin_share": ("{key}", Statistic.SHARE),
    "kl_radius": ("{key}", Statistic.MEDIAN),
    "kl_radius_linf": ("{key}", Statistic.MEDIAN),
    "empirical_boundary_distance": ("{key}", Statistic.MEAN),
    "empirical_boundary_distance_adversarial": ("{key}", Statistic.MEAN),
    "empirical_noise_insensitivity": ("{key}", Statistic.MEAN),
    "universal_perturbation_success": ("{key}", Statistic.SHARE),
    "certified_accuracy": ("{key}", Statistic.SHARE),
    "average_certified_radius": ("{key}", Statistic.MEAN),
}


def behind(audit: Audited, record: MetricRecord) -> Behind | str:
    """The column behind a measured value, which must give that value; or why there is none."""
    if record.id in OVER_SUCCESSES:
        return "it is a mean over the images that fooled the model, and those are not the same for another model"
    template, statistic = _COLUMNS.get(record.id, ("", None))
    statistic = statistic or _BY_VARIANT.get(record.variant or "")
    if not template or statistic is None:
        return "it describes a sample as a whole, and there is no value per example to pair"
    name = template.format(key=record.key, threat=record.key.rpartition("/")[2], variant=record.variant)
    column = audit.columns.get(name)
    if column is None or (name.startswith("lambda_estimate") and _DIRECTION_ERROR not in audit.columns):
        return f"the per-example table of {printable(audit.label, 80)} has no column for it; a new audit has"
    values, known = column.values, column.known
    if "_state/" in name:  # an unknown example counts as not robust
        values, known = np.where(known, values, 0.0), np.ones(len(known), dtype=np.bool_)
    outcome = record.outcome
    if isinstance(outcome, Measured) and not (
        known.any() and np.isclose(statistic.of(values[known]), outcome.value, rtol=1e-9, atol=1e-12)
    ):
        return (
            f"the per-example table of {printable(audit.label, 80)} does not give its value; it is of another audit, or was changed"
        )
    noise = 0.0
    if name.startswith("lambda_estimate"):
        errors = audit.columns[_DIRECTION_ERROR]
        # As the metric widens its own interval: the bias that is left, and at a high quantile the spread of the estimates too.
        raised = scipy.stats.norm.ppf(0.95) if statistic is Statistic.P95 else 0.0
        noise = float((1 + raised) * np.median(errors.values[known & errors.known]))
    return Behind(values=values, known=known, statistic=statistic, noise=noise)


def value_of(audit: Audited, key: str) -> float | None:
    """The metric's value recomputed from the per-example columns; None where no column stands behind it."""
    record = audit.model.metric(key)
    found = behind(audit, record) if record is not None else ""
    return None if isinstance(found, str) else float(found.statistic.of(found.values[found.known]))
