"""How numbers, outcomes, threats and names are written in the report; plain text only, no markup.

Shares of images in percent, probabilities from 0 to 1, L∞ distances as k/255, true minus signs, "a to b" for intervals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from audit.errors import InputError
from audit.result import Interval, Measured, MetricRecord, ModelIdentity, Outcome, Undefined
from audit.result import NotApplicable as NotApplicableOutcome
from audit.text import printable
from audit.vocabulary import Norm, Threat, Unit

MINUS = "\u2212"
NO_BREAK = "\u00a0"
LONGEST = 2000
_FIRST_WORD = re.compile(r"[a-z]+(?:[\s,;:.'’-]|$)")
_THREAT_IN_TEXT = re.compile(r"\b(?P<norm>linf|l2|l1)[ _:](?P<epsilon>\d+(?:\.\d+)?(?:[/-]\d+(?:\.\d+)?)?)")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
# What stands in the unit column; a share and a distance in 1/255 carry their unit in the number.
_IN_PERCENT = frozenset({Unit.SHARE.value, Unit.POINTS.value})
_UNIT_WORDS = {Unit.PROBABILITY.value: "prob.", Unit.TEMPERATURE.value: "", Unit.RANK.value: "", Unit.PIXELS.value: "px range"}


def number(value: float, significant: int = 3) -> str:
    r"""A number with about `significant` digits: 1.49, 0.0341, 71.4, 12 300, 2.1e−7.

    >>> [number(x) for x in (0, 1.4912, -0.0341, 1234.5, 2.1e-7)]
    ['0', '1.49', '−0.0341', '1\xa0234', '2.10e−7']
    """
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size >= 7:
        mantissa, _, exponent = f"{value:.{significant - 1}e}".partition("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    return f"{value:,.{max(0, significant - 1 - size)}f}".replace(",", NO_BREAK).replace("-", MINUS)


def fixed(value: float, decimals: int) -> str:
    """A number with fixed decimals and a true minus sign, never "−0.0".

    >>> fixed(-0.04, 1), fixed(-1.25, 2)
    ('0.0', '−1.25')
    """
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def percent(share: float, decimals: int = 1) -> str:
    """A share in [0, 1] in percent, without the sign.

    >>> percent(0.7201)
    '72.0'
    """
    return fixed(share * 100, decimals)


def epsilon_text(norm: str, epsilon: float) -> str:
    """A distance or budget: k/255 in L∞, a decimal in other norms.

    >>> epsilon_text("linf", 8 / 255), epsilon_text("linf", 2.5 / 255), epsilon_text("l2", 0.5)
    ('8/255', '2.5/255', '0.5')
    """
    if norm == Norm.LINF.value and epsilon != 0:
        return f"{fixed(epsilon * 255, 1).removesuffix('.0')}/255"
    return f"{epsilon:.3g}".replace("-", MINUS)


def norm_label(norm: str) -> str:
    """`L∞` for `linf`; an unknown norm as it is written."""
    return Norm(norm).label if norm in set(Norm) else norm


def parsed_threat(text: str) -> Threat | None:
    """The threat of `linf:8/255` or of its key `linf_8-255`; None for anything else."""
    norm, _, rest = text.partition("_")
    try:
        return Threat.parse(f"{norm}:{rest.replace('-', '/')}" if rest and ":" not in text else text)
    except InputError:
        return None


def threat_label(text: str) -> str:
    r"""`L∞ 8/255` with a no-break space; an unreadable threat as it is written.

    >>> threat_label("linf:8/255")
    'L∞\xa08/255'
    """
    threat = parsed_threat(text)
    return text if threat is None else threat.label.replace(" ", NO_BREAK)


def readable(text: str) -> str:
    r"""A text from elsewhere with its threats spelled for readers, in whatever form they are written.

    >>> readable("worst_case_white_box/linf_8-255")
    'worst case white box, L∞\xa08/255'
    """
    spelled = _THREAT_IN_TEXT.sub(lambda match: threat_label(f"{match['norm']}:{match['epsilon'].replace('-', '/')}"), text)
    return spelled.replace("/L", ", L").replace("_", " ") if spelled != text or " " not in text else spelled


@dataclass(frozen=True, kw_only=True)
class ValueText:
    """A measured value in words: number, unit, interval or why there is none, and n."""

    value: str
    unit: str
    interval: str | None
    why_no_interval: str | None
    samples: int


def written(value: float, unit: str, where: str | None = None) -> str:
    """A value of the catalogue without its unit; `where` is its variant or threat, since L∞ distances are written as k/255.

    >>> written(0.7201, "share"), written(0.7201, "probability"), written(0.02, "pixel range", "linf")
    ('72.0', '0.720', '5.1')
    """
    if unit in _IN_PERCENT:
        return percent(value)
    if unit in {Unit.PROBABILITY.value, Unit.SSIM.value}:
        return fixed(value, 3)
    if unit == Unit.TEMPERATURE.value:
        return fixed(value, 2)
    return fixed(value * 255, 1) if _in_grey_levels(unit, where) else number(value)


def unit_word(unit: str, where: str | None = None) -> str:
    """What stands after a value that `written` wrote: `%`, `points`, `/255`, `prob.` or nothing."""
    if unit == Unit.SHARE.value:
        return "%"
    if unit == Unit.POINTS.value:
        return "points"
    return "/255" if _in_grey_levels(unit, where) else _UNIT_WORDS.get(unit, unit)


def scale(unit: str, where: str | None = None) -> float:
    """What `written` multiplies a value with."""
    if unit in _IN_PERCENT:
        return 100.0
    return 255.0 if _in_grey_levels(unit, where) else 1.0


def _in_grey_levels(unit: str, where: str | None) -> bool:
    return unit == Unit.PIXELS.value and (where or "").startswith(Norm.LINF.value)


def value_text(record: MetricRecord, measured: Measured) -> ValueText:
    """A metric's value as its row shows it; bounds are written like the value."""
    interval, where = measured.interval, record.variant or record.threat
    low, high = (written(bound, record.unit, where) for bound in (interval.low, interval.high)) if interval else ("", "")
    return ValueText(
        value=written(measured.value, record.unit, where),
        unit=unit_word(record.unit, where),
        interval=None if interval is None else f"{low} to {high}",
        why_no_interval=measured.why_no_interval,
        samples=measured.samples,
    )


def score_interval(interval: Interval | None) -> str | None:
    """A score's interval in whole points, `64 to 71`."""
    return None if interval is None else f"{fixed(interval.low, 0)} to {fixed(interval.high, 0)}"


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Why there is no value: `Not applicable`, because ..."""

    kind: str
    because: str

    @property
    def sentence(self) -> str:
        """The whole sentence, ending in a full stop."""
        return f"{self.kind}, because {self.because}."


def missing(outcome: Outcome) -> Missing | None:
    """The reason an outcome has no value, or None where it has one."""
    if isinstance(outcome, Measured):
        return None
    if isinstance(outcome, NotApplicableOutcome):
        return Missing(kind="Not applicable", because=clause(outcome.because))
    if isinstance(outcome, Undefined):
        return Missing(kind="Undefined", because=clause(outcome.because))
    return Missing(kind="Failed", because=clause(outcome.error))


def clause(text: str) -> str:
    """A reason as it continues a sentence: no leading "because", no closing full stop."""
    return printable(text, 2000).removeprefix("because ").rstrip(". ")


def sentence(text: str) -> str:
    """A text as a sentence: capital first letter, closing mark.

    >>> sentence("lower the budget")
    'Lower the budget.'
    """
    text = printable(text, 2000)
    if not text:
        return text
    # A formula keeps its case: `lambda_max of F(x)`, `mCE = ...`.
    word = _FIRST_WORD.match(text) is not None
    return (text[0].upper() + text[1:] if word else text) + ("" if text[-1] in ".!?…" else ".")


def opening(label: str) -> str:
    """A short label at the start of a sentence: `Version 1`; a model's own name stays as it is."""
    return label[:1].upper() + label[1:] if label.startswith(f"version{NO_BREAK}") else label


def clean(text: str) -> str:
    """A text made printable (no control characters, ANSI escapes or direction overrides), its no-break spaces kept.

    Cut at `LONGEST` characters: an unbroken text of 100,000 kept the PDF's layout busy for more than seven minutes.
    """
    return NO_BREAK.join(printable(part, LONGEST) for part in text.split(NO_BREAK))


def clipped(text: str, limit: int) -> str:
    """One printable line of at most `limit` characters, cut with an ellipsis."""
    line = clean(text)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else ""


def grouped(count: int) -> str:
    """A count with no-break spaces between thousands."""
    return f"{count:,}".replace(",", NO_BREAK)


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 line`, `3 lines`; thousands with a no-break space."""
    return grouped(count) + NO_BREAK + (one if count == 1 else many or one + "s")


def day(iso: str) -> str:
    """`28 November 2026` for an ISO 8601 time; other text as it is written."""
    try:
        date = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{date.day}{NO_BREAK}{_MONTHS[date.month - 1]}{NO_BREAK}{date.year}"


def short_labels(models: Sequence[ModelIdentity], limit: int = 18) -> tuple[str, ...]:
    """A short name per model, unique within the audit: `version 7` where only versions differ, else `name v7`.

    Names longer than `limit` lose their middle, since the ends tell models apart.
    """
    one_name = len({model.name for model in models}) == 1 and all(model.version is not None for model in models)
    labels: list[str] = []
    for model in models:
        version = None if model.version is None else clipped(model.version, 8)
        if one_name:
            label = f"version{NO_BREAK}{version}"
        else:
            tail = "" if version is None else f"{NO_BREAK}v{version}"
            label = _middle_cut(printable(model.name) or "unnamed", limit - len(tail)) + tail
        labels.append(label)
    return tuple(label if labels.count(label) == 1 else f"{label} ({index + 1})" for index, label in enumerate(labels))


def _middle_cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"
