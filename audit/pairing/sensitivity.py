"""Whether raw outputs order two models by sensitivity otherwise than outputs at the fitted temperature do."""

from __future__ import annotations

from audit.result import Measured, ModelResult

# At the fitted temperature and raw: exact values, or estimates from queries where a model has no others.
_MEDIANS = tuple(
    (f"{metric}/median", f"{metric}_raw/median") for metric in ("fisher_spectral_norm", "fisher_spectral_norm_estimate")
)


def raw_flatters(first: ModelResult, second: ModelResult) -> int | None:
    """Which of the two, 0 or 1, has the smaller median eigenvalue at T = 1 and the larger one at its fitted temperature.

    None where the two orders agree, where neither is beyond chance (the intervals of the medians overlap both times), or where
    either model lacks one of them.
    """
    for keys in _MEDIANS:
        found = [[_measured(model, key) for model in (first, second)] for key in keys]
        fitted, raw = ([value for value in pair if value is not None] for pair in found)
        if len(fitted) == len(raw) == 2:
            flattered = 0 if raw[0].value < raw[1].value else 1
            turned = fitted[flattered].value > fitted[1 - flattered].value and raw[0].value != raw[1].value
            return flattered if turned and (_apart(*fitted) or _apart(*raw)) else None
    return None


def _measured(model: ModelResult, key: str) -> Measured | None:
    record = model.metric(key)
    return record.outcome if record is not None and isinstance(record.outcome, Measured) else None


def _apart(one: Measured, other: Measured) -> bool:
    if one.interval is None or other.interval is None:
        return False
    return one.interval.high < other.interval.low or other.interval.high < one.interval.low
