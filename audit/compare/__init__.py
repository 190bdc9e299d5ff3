"""Audits against the first of them on the same examples: paired differences with verdicts, and rank intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

from audit import pairing, statistics
from audit.audited import Audited
from audit.compare.ranking import rank
from audit.pairing import Difference, NotComparable, Obstacle
from audit.pairing.columns import BLACK_BOX, CURVE, WHITE_BOX
from audit.pairing.sensitivity import raw_flatters
from audit.result import MetricRecord, NotApplicable, Outcome, Ranking
from audit.vocabulary import Better, Threat

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Verdict = Literal["worse", "better", "not told apart", "no side", "not compared"]
# Worst news first: what is known to be worse, then what may be, then the rest.
VERDICTS: tuple[Verdict, ...] = ("worse", "not told apart", "better", "no side", "not compared")
RANKED = {
    "clean_accuracy": "Clean accuracy",
    WHITE_BOX: "Accuracy under white-box attack",
    BLACK_BOX: "Accuracy under black-box attack",
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One compared model: `letter` names it in tables, the rest says what was audited, when and on what."""

    letter: str
    label: str
    digest: str
    source: str
    result_id: str
    created: str
    profile: str
    threats: tuple[str, ...]
    data: str
    data_digest: str
    samples: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One model against the baseline in one metric; `model` counts along the subjects.

    The verdict is the model owner's side ("no side" where the metric has none), claimed at 5 % after Holm's adjustment over every
    claim of the comparison; `adjusted_p_value` is None where nothing is claimed. `because` says why there is no difference.
    """

    model: int
    verdict: Verdict
    difference: Difference | None = None
    adjusted_p_value: float | None = None
    because: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric: every model's value on its own examples, and the paired differences from the baseline."""

    key: str
    name: str
    unit: str
    better: Better
    values: tuple[Outcome, ...]
    pairs: tuple[Pair, ...]
    variant: str | None = None
    threat: str | None = None


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """An obstacle between one model and the baseline."""

    model: int
    obstacle: Obstacle


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Audits against the first of them; `claims` counts the differences that have a better side.

    `rankings` rank all of them, where three or more share examples.
    """

    subjects: tuple[Subject, ...]
    rows: tuple[Row, ...]
    barriers: tuple[Barrier, ...]
    rankings: tuple[Ranking, ...]
    claims: int
    level: float = statistics.LEVEL

    @property
    def worst_first(self) -> tuple[tuple[Row, Pair], ...]:
        """What could be compared, worst news first, each kind in catalogue order."""
        compared = [(row, pair) for row in self.rows for pair in row.pairs if pair.difference is not None]
        return tuple(sorted(compared, key=lambda item: VERDICTS.index(item[1].verdict)))

    @property
    def gaps(self) -> dict[tuple[int, str], tuple[str, ...]]:
        """What could not be compared: keys by (model, reason), in the order met."""
        found: dict[tuple[int, str], list[str]] = {}
        for row in self.rows:
            for pair in row.pairs:
                if pair.because is not None:
                    found.setdefault((pair.model, pair.because), []).append(row.key)
        return {place: tuple(keys) for place, keys in found.items()}


def compare(audits: Sequence[Audited]) -> Comparison:
    """Compare audits with the first of them, metric by metric, on the examples they share.

    Raises:
        ValueError: there are fewer than two.
    """
    if len(audits) < 2:
        raise ValueError("a comparison needs at least two audited models")
    keys = tuple(dict.fromkeys(record.key for audit in audits for record in audit.model.metrics if not _is_elsewhere(record)))
    rows = _with_verdicts([_row(audits, key) for key in keys])
    claims = sum(pair.adjusted_p_value is not None for row in rows for pair in row.pairs)
    return Comparison(
        subjects=tuple(_subject(audit, place) for place, audit in enumerate(audits)),
        rows=rows,
        barriers=tuple(
            Barrier(model=place, obstacle=obstacle)
            for place, audit in enumerate(audits)
            if place
            for obstacle in (
                *_same_model(audits[0], audit),
                *_raw_order(audits[0], audit),
                *pairing.comparability(audit, audits[0]),
            )
        ),
        rankings=_rankings(audits, rows) if len(audits) > 2 else (),
        claims=claims,
    )


@cache
def _adapter() -> TypeAdapter[Comparison]:
    from pydantic import TypeAdapter

    return TypeAdapter(Comparison)


def to_json(comparison: Comparison) -> bytes:
    """The comparison as indented UTF-8 JSON; it never contains NaN or infinity."""
    return _adapter().dump_json(comparison, indent=2) + b"\n"


def _subject(audit: Audited, place: int) -> Subject:
    result = audit.result
    return Subject(
        letter=chr(ord("A") + place) if place < 26 else f"M{place + 1}",
        label=audit.label,
        digest=audit.model.identity.digest,
        source=audit.source,
        result_id=result.id,
        created=result.created,
        profile=result.profile,
        threats=result.threats,
        data=result.data.source,
        data_digest=result.data.digest,
        samples=result.data.samples,
        seed=result.data.seed,
    )


def _same_model(baseline: Audited, other: Audited) -> tuple[Obstacle, ...]:
    if baseline.model.identity.digest != other.model.identity.digest:
        return ()
    if baseline.model.identity.opaque or other.model.identity.opaque:
        because = "it was asked in the same place, and no files show whether it was the same model"
        return (Obstacle(what="model", because=because, still="everything; a difference may be the model's or the audits' own"),)
    return (
        Obstacle(
            what="model", because="it is the same model, file by file", still="everything; a difference would be the audits' own"
        ),
    )


def _raw_order(baseline: Audited, other: Audited) -> tuple[Obstacle, ...]:
    flattered = raw_flatters(baseline.model, other.model)
    if flattered is None:
        return ()
    who = (baseline.label, other.label)[flattered]
    return (
        Obstacle(
            what="sensitivity",
            because=f"raw outputs (T = 1) make {who} look the less sensitive, at the fitted temperatures it is the more sensitive; "
            "only the latter compares models",
            still="everything; leave the raw eigenvalues out of it",
        ),
    )


def _is_elsewhere(record: MetricRecord) -> bool:
    """Whether it is the curve's point at 0 or at the budget itself: by definition another row's value, and one claim."""
    if record.id != CURVE or record.threat is None:
        return False
    threat = Threat.parse(record.threat)
    return record.variant in {f"at_{threat.at(epsilon).written.replace('/', '-')}" for epsilon in (0.0, threat.epsilon)}


def _row(audits: Sequence[Audited], key: str) -> Row:
    records = [audit.model.metric(key) for audit in audits]
    known = next(record for record in records if record is not None)
    asked = NotApplicable(because="it was not asked for")
    return Row(
        key=key,
        name=known.name,
        unit=known.unit,
        better=known.better,
        values=tuple(asked if record is None else record.outcome for record in records),
        pairs=tuple(_pair(place, pairing.difference(audit, audits[0], key)) for place, audit in enumerate(audits) if place),
        variant=known.variant,
        threat=known.threat,
    )


def _pair(place: int, found: Difference | NotComparable) -> Pair:
    if isinstance(found, NotComparable):
        return Pair(model=place, verdict="not compared", because=found.because)
    return Pair(model=place, verdict="no side" if found.better is Better.NEITHER else "not told apart", difference=found)


def _with_verdicts(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Holm over every difference that has a better side, of all rows and models: one comparison is one family of claims."""
    claims = [pair.difference for row in rows for pair in row.pairs if pair.difference and pair.verdict != "no side"]
    adjusted = iter(statistics.holm([claim.p_value for claim in claims]))

    def judged(pair: Pair) -> Pair:
        difference = pair.difference
        if difference is None or pair.verdict == "no side":
            return pair
        p_value = next(adjusted)
        if p_value >= 1 - statistics.LEVEL:
            return replace(pair, adjusted_p_value=p_value)
        gained = (difference.value > 0) == (difference.better is Better.HIGHER)
        return replace(pair, adjusted_p_value=p_value, verdict="better" if gained else "worse")

    return tuple(replace(row, pairs=tuple(map(judged, row.pairs))) for row in rows)


def _rankings(audits: Sequence[Audited], rows: Sequence[Row]) -> tuple[Ranking, ...]:
    """Clean accuracy and accuracy under attack, each where every pair of the audits may be compared."""
    found = []
    for row in rows:
        dimension = RANKED.get(row.key.partition("/")[0])
        columns = pairing.outcomes(audits, row.key) if dimension is not None else None
        if columns is not None and not isinstance(columns, NotComparable):
            threat = "" if row.threat is None else f", {Threat.parse(row.threat).label}"
            found.append(rank(f"{dimension}{threat}", row.key, columns))
    return tuple(found)
