"""The versions of a registered model as a trend: values with intervals, broken where audits are not comparable, regressions marked.

A regression is a paired difference against the nearest earlier version with which the metric can be paired, worse in the metric's
own direction, with p < 0.05 after Holm's adjustment over all such steps of the metric. History informs; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from audit.audited import VersionRecord
from audit.errors import InputError
from audit.history.lines import SCORES, USUAL, Break, Gap, Line, Point, Step, line_of, records_of, verdict_of
from audit.text import nearest, printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Break", "Gap", "History", "Line", "Point", "Step", "Version", "history", "to_json"]


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of the model. `created` (ISO 8601), `samples` and `source` are those of its audit; without one, `why_none`."""

    version: str
    created: str | None = None
    samples: int | None = None
    verdict: str | None = None
    source: str | None = None
    why_none: str | None = None


@dataclass(frozen=True, kw_only=True)
class History:
    """Every version of one registered model, oldest first; `no_trend` says why there is no trend, where there is none."""

    name: str
    versions: tuple[Version, ...]
    lines: tuple[Line, ...]
    no_trend: str | None = None


def history(name: str, versions: Sequence[VersionRecord], keys: Sequence[str] = ()) -> History:
    """The trend of a model.

    Args:
        name: the registered model.
        versions: all its versions, oldest first.
        keys: the metrics to follow; by default clean accuracy, the accuracies under attack, and the overall score.

    Raises:
        InputError: no audit of the model has such a metric; the sentence names the nearest.
    """
    audited = [record.audited for record in versions if record.audited is not None]
    known = dict.fromkeys(key for audit in audited for key in records_of(audit))
    chosen = list(dict.fromkeys(keys)) or [key for key in known if key.partition("/")[0] in USUAL or key in SCORES]
    for key in chosen:
        if known and key not in known:
            raise InputError(f"no audit of {printable(name)} has a metric {printable(key)!r}{nearest(key, known)}")
    lines = [line_of(key, versions) for key in chosen if key in known]
    no_trend = None
    if len(audited) < 2:
        what = f"only version {audited[0].model.identity.version} is audited" if audited else "no version is audited"
        no_trend = f"{what}, and a trend needs two"
    return History(
        name=name,
        versions=tuple(_version(record) for record in versions),
        lines=tuple(line for line in lines if line.points or keys),
        no_trend=no_trend,
    )


def to_json(found: History) -> bytes:
    """The history as indented UTF-8 JSON; it never contains NaN or infinity."""
    return _adapter().dump_json(found, indent=2) + b"\n"


@cache
def _adapter() -> TypeAdapter[History]:
    from pydantic import TypeAdapter

    return TypeAdapter(History)


def _version(record: VersionRecord) -> Version:
    audit = record.audited
    if audit is None:
        return Version(version=record.version, why_none=record.why_none, verdict=record.verdict)
    return Version(
        version=record.version,
        created=audit.result.created,
        samples=audit.result.data.samples,
        verdict=verdict_of(record),
        source=audit.source,
    )
