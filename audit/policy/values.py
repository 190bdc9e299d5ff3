"""The kinds of value that a policy's fields take, each refused with its reason."""

from __future__ import annotations

import math
import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from audit.errors import InputError
from audit.metrics.keys import metric_key
from audit.text import nearest, printable
from audit.vocabulary import Threat

ANY = "any"
CHANCE = "chance"

T = TypeVar("T")


def _opted_out(value: object) -> object:
    return None if value == ANY else value


# A value that must be written, where "any" becomes None.
Pinned = Annotated[T | None, BeforeValidator(_opted_out)]
Bound = Annotated[float, Field(allow_inf_nan=False, strict=True)]


def known_metric(text: str) -> str:
    """A metric's key that the catalogue knows, as given."""
    metric_key(text)
    return text


def one_of(valid: tuple[str, ...], what: str) -> AfterValidator:
    """A word among `valid`; `what` says what it names."""

    def check(text: str) -> str:
        if text not in valid:
            raise ValueError(f"there is no {what} {printable(text, 80)!r}{nearest(text, valid)}")
        return text

    return AfterValidator(check)


def matching(pattern: str, message: str) -> AfterValidator:
    """A text that `pattern` matches as a whole."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(message)
        return text

    return AfterValidator(check)


def number_or_chance(value: object) -> float | str:
    """A finite number, or "chance"."""
    if value == CHANCE:
        return CHANCE
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond every float
        pass
    raise ValueError(f'it is neither a finite number nor "{CHANCE}"')


def threat(text: object) -> Threat:
    """A threat, as in `linf:8/255`."""
    try:
        return Threat.parse(str(text))
    except InputError as error:
        raise ValueError(str(error)) from None


def words(value: object) -> object:
    """Numbers as a result spells them: `[0.5, 0.25]` is `0.5/0.25`."""
    numbers = value if isinstance(value, list) else [value]
    if numbers and all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        try:
            return "/".join(f"{each:g}" for each in numbers)
        except OverflowError as error:
            raise ValueError("it is beyond every number that an image has") from error
    return value


def range_words(value: object) -> object:
    """A range as a result spells it: `[0, 1]` is `0 to 1`."""
    return " to ".join(str(words(each)) for each in value) if isinstance(value, list) else value
