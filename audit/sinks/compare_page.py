"""A comparison becomes one self-contained HTML page: who, the differences drawn and in a table, ranks, what was not compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from audit.compare import Comparison
from audit.sinks import page
from audit.sinks import report_words as words
from audit.sinks.compare_view import CompareView, Line, view
from audit.sinks.figure_forest import Effect, forest
from audit.vocabulary import Unit

# Relative differences further out than this say no more than "many times as much".
FURTHEST = 200.0


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawn panel with its finding and what it shows."""

    say: str
    what: str
    svg: Markup


def render(comparison: Comparison, file: Path) -> None:
    """Write the page; the same comparison gives the same page, byte for byte.

    Raises:
        SinkError: it cannot be written there.
    """
    shown = view(comparison)
    text = page.document(
        "compare.html.j2", view=shown, figures=_figures(shown), title=f"Comparison of {words.clipped(shown.title, 160)}"
    )
    page.write(text, file)


def _figures(shown: CompareView) -> list[Figure]:
    found = []
    for finding, other in zip(shown.findings, shown.who[1:], strict=True):
        lines = [line for line in shown.lines if line.letter == other.letter and line.verdict != "no side"]
        shares = [line for line in lines if line.row.unit == Unit.SHARE.value]
        others = [line for line in lines if line not in shares and _relative(line) is not None]
        pair = f"{other.letter} \u2212 {shown.who[0].letter}"
        if shares:
            found.append(
                Figure(
                    say=finding,
                    what=f"Shares of images: {pair} with 95\u00a0% intervals. Open circles: not told apart.",
                    svg=_drawn(shares, f"{pair}, percentage points", f"shares-{other.letter}", None),
                )
            )
        if others:
            found.append(
                Figure(
                    say=f"Other metrics: {pair} as a part of {shown.who[0].letter}\u2019s value",
                    what=f"With 95\u00a0% intervals; arrows lead beyond {FURTHEST:.0f}\u00a0%. Open circles: not told apart.",
                    svg=_drawn(others, f"{pair}, % of {shown.who[0].letter}", f"others-{other.letter}", FURTHEST),
                )
            )
    return found


def _relative(line: Line) -> float | None:
    """The factor that brings the line's difference to percent of the baseline's value on the same examples."""
    difference = line.pair.difference
    return None if difference is None or difference.second == 0 else 100 / abs(difference.second)


def _drawn(lines: Sequence[Line], x_label: str, key: str, furthest: float | None) -> Markup:
    effects = []
    for line in lines:
        difference = line.pair.difference
        factor = 100.0 if furthest is None else _relative(line)
        if difference is None or factor is None:
            continue
        effects.append(
            Effect(
                label=words.clean(line.title),
                value=factor * difference.value,
                low=factor * difference.interval.low,
                high=factor * difference.interval.high,
                word=line.verdict if line.verdict in {"better", "worse"} else None,
            )
        )
    spoken = "; ".join(f"{line.title}: {line.difference} ({line.interval}), {line.verdict}" for line in lines)
    return forest(effects, furthest=furthest, x_label=x_label, key=key, alt=words.clean(spoken))
