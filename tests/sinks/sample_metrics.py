"""Invented metric records for `sample_result.py`: every unit and every kind of outcome occurs."""

from __future__ import annotations

import math

from audit import result as r
from audit.vocabulary import Better, Family, Unit

N, SHOWN_FISHER = 500, 100
THREAT, KEY = "linf:8/255", "linf_8-255"
DEFINITION = """{name}.

Mean over S of something, with a & b < c.
Reads as: how much {lower} there is.
Undefined when: no attack succeeded."""


def wilson(share: float, n: int) -> r.Interval:
    z = 1.959964
    centre = (share + z * z / 2 / n) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / 4 / n / n) / (1 + z * z / n)
    return r.Interval(low=max(0.0, centre - half), high=min(1.0, centre + half), method="Wilson")


def share(value: float, n: int = N) -> r.Measured:
    return r.Measured(value=value, samples=n, interval=wilson(value, n))


def mean(value: float, n: int, width: float) -> r.Measured:
    return r.Measured(value=value, samples=n, interval=r.Interval(low=value - width, high=value + width, method="bootstrap"))


def bare(value: float, n: int, why: str) -> r.Measured:
    return r.Measured(value=value, samples=n, why_no_interval=why)


Row = tuple[str, str, Unit, Better, r.Outcome, tuple[str, ...]]


def records(family: Family, names: dict[str, str], rows: list[Row]) -> list[r.MetricRecord]:
    built = []
    for key, symbol, unit, better, outcome, notes in rows:
        parts = key.split("/")
        name = names[parts[0]]
        built.append(
            r.MetricRecord(
                key=key,
                id=parts[0],
                name=name,
                symbol=symbol,
                family=family.value,
                unit=unit.value,
                better=better,
                outcome=outcome,
                definition=DEFINITION.format(name=name, lower=name.lower()),
                source="Guo et al. 2021 (arXiv 2101.09617)",
                threat=THREAT if KEY in parts else None,
                variant=parts[1] if len(parts) > 1 and parts[1] != KEY else None,
                paper_row=name.lower(),
                notes=notes,
            )
        )
    return built


NAMES = {
    "clean_accuracy": "Clean accuracy",
    "adversarial_accuracy_white_box": "Adversarial accuracy, white-box",
    "adversarial_accuracy_black_box": "Adversarial accuracy, black-box",
    "average_confidence_of_adversarial_class": "Average confidence of the adversarial class",
    "average_confidence_of_true_class": "Average confidence of the true class",
    "noise_tolerance_estimation": "Noise tolerance estimation",
    "average_lp_distortion": "Average Lp distortion",
    "average_structural_similarity": "Average structural similarity",
    "perturbation_sensitivity_distance": "Perturbation sensitivity distance",
    "fisher_spectral_norm": "Largest Fisher eigenvalue at the fitted temperature",
    "fisher_spectral_norm_raw": "Largest Fisher eigenvalue of the raw outputs",
    "fitted_temperature": "Fitted temperature",
    "linearised_margin": "Linearised margin",
    "linearised_margin_share": "Images with a linearised margin above the budget",
}


def metrics(clean: float, robust: float, scale: float, black_box: bool) -> tuple[r.MetricRecord, ...]:
    higher, lower, neither = Better.HIGHER, Better.LOWER, Better.NEITHER
    lam, prob, fish = Unit.PER_PIXEL_SQUARED, Unit.PROBABILITY, SHOWN_FISHER
    broken = int((clean - robust) * N)
    bound = ("an upper bound on true robustness; the interval is sampling error only",)
    gone = r.NotApplicable(because="ONNX Runtime has no backward pass")
    crashed = r.Failed(error="MemoryError at chunk 3 of 4")

    def attacked(value: float, width: float) -> r.Outcome:
        return mean(value, broken, width) if broken > 0 else r.Undefined(because="no attack succeeded")

    white = gone if black_box else share(robust)
    exact = gone if black_box else mean(1.49 * scale, fish, 0.3 * scale)
    remarks = ("T = 1.17", "a small value is not evidence of robustness")
    longest = bare(34.1 * scale, fish, "a maximum describes this sample")
    task: list[Row] = [("clean_accuracy", "CA", Unit.SHARE, higher, share(clean), ())]
    adversarial: list[Row] = [
        (f"adversarial_accuracy_white_box/{KEY}", "AAW", Unit.SHARE, higher, white, bound),
        (f"adversarial_accuracy_black_box/{KEY}", "AAB", Unit.SHARE, higher, share(min(clean, robust + 0.1)), bound),
        (f"average_confidence_of_adversarial_class/{KEY}", "ACAC", prob, lower, attacked(0.598, 0.011), ()),
        (f"average_confidence_of_true_class/{KEY}", "ACTC", prob, higher, attacked(0.309, 0.008), ()),
        (f"noise_tolerance_estimation/{KEY}", "NTE", prob, lower, crashed, ()),
    ]
    size: list[Row] = [
        (f"average_lp_distortion/l2/{KEY}", "ALDp", Unit.RATIO, neither, attacked(0.0341, 0.0006), ()),
        (f"average_structural_similarity/{KEY}", "ASS", Unit.SSIM, neither, attacked(0.981, 0.002), ()),
        (f"perturbation_sensitivity_distance/sum/{KEY}", "PSD", Unit.SENSITIVITY, neither, attacked(71.4, 2.4), ()),
    ]
    fisher: list[Row] = [
        ("fisher_spectral_norm/median", "λ", lam, lower, exact, remarks),
        ("fisher_spectral_norm_raw/mean", "λ raw", lam, neither, mean(3.9e-7 * scale, fish, 0.9e-7 * scale), ()),
        ("fisher_spectral_norm/max", "λ", lam, lower, longest, ()),
        ("fitted_temperature", "T", Unit.TEMPERATURE, neither, bare(1.17, N, "a fit: it describes this sample"), ()),
        ("linearised_margin/linf", "ρ", Unit.PIXELS, higher, mean(6.5 / 255 / scale, fish, 0.5 / 255), ()),
        (f"linearised_margin_share/{KEY}", "ρ > ε", Unit.SHARE, higher, share(min(0.93, 0.4 / scale), fish), ()),
    ]
    return (
        *records(Family.TASK, NAMES, task),
        *records(Family.ADVERSARIAL, NAMES, adversarial),
        *records(Family.IMPERCEPTIBILITY, NAMES, size),
        *records(Family.FISHER, NAMES, fisher),
    )
