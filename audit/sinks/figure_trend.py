"""A metric over the versions of a model: values with error bars, broken where audits are not comparable, marks for regressions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.axes import Axes

from audit.sinks.figure_svg import INK, MUTED, PAPER, SUBJECT, inline_svg
from audit.sinks.figures import SMALL, drawing, panel

_LEFT, _RIGHT = 46, 22
_HEIGHT, _TOP, _BOTTOM = 220, 20, 44
_MOST_LABELS, _LONGEST_LABEL = 12, 6


@dataclass(frozen=True, kw_only=True)
class Place:
    """One version on the axis. Without a value (in axis units) it is only marked there.

    `regression` is the text of its mark, which stands on the side that the value moved to.
    """

    label: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    regression: str | None = None
    fell: bool = True


def trend(
    places: Sequence[Place], breaks: Collection[int], *, bounds: tuple[float, float] | None, x_label: str, key: str, alt: str
) -> Markup:
    """Values over versions, evenly spaced and oldest first.

    Args:
        places: every version.
        breaks: indices of places that are not comparable with the value before them.
        bounds: where values end by nature, e.g. 0 and 100 percent.
        x_label: below the axis.
        key: a prefix that keeps the figure's ids apart.
        alt: what the figure shows, read aloud instead of it.
    """
    with drawing():
        figure, axes = panel(_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
        low, high = _limits(places, bounds)
        axes.set(xlim=(-0.5, len(places) - 0.5), ylim=(low, high))
        if bounds is not None:  # room for marks is no part of the scale
            axes.set_yticks([tick for tick in axes.get_yticks() if bounds[0] <= tick <= bounds[1] and low <= tick <= high])
        before: tuple[int, float] | None = None
        for x, place in enumerate(places):
            if place.value is None:
                axes.plot([x], [low], "x", color=MUTED, ms=6, mew=1.6, clip_on=False)
                continue
            if x in breaks and before is not None:
                axes.axvline((before[0] + x) / 2, color=MUTED, lw=1.2, ls=(0, (1, 2.2)))
            elif before is not None:
                axes.plot([before[0], x], [before[1], place.value], color=SUBJECT, lw=2)
            if place.low is not None and place.high is not None:
                axes.plot([x, x], [place.low, place.high], color=SUBJECT, lw=1.4, solid_capstyle="butt")
            axes.plot([x], [place.value], "o", color=SUBJECT, ms=6, mec=PAPER, mew=1)
            if place.regression is not None:
                _mark(axes, x, place, place.value)
            before = x, place.value
        # Long histories keep the newest version's label and drop others evenly.
        shown = range(len(places) - 1, -1, -math.ceil(len(places) / _MOST_LABELS))
        axes.set_xticks(list(shown), [places[x].label[:_LONGEST_LABEL] for x in shown])
        axes.set_xlabel(x_label, loc="left")
        return inline_svg(figure, key=key, alt=alt)


def _limits(places: Sequence[Place], bounds: tuple[float, float] | None) -> tuple[float, float]:
    """The axis from the lowest to the highest bound, with room for marks."""
    ends = [end for place in places for end in (place.low, place.value, place.high) if end is not None]
    low, high = (min(ends), max(ends)) if ends else bounds or (0.0, 1.0)
    room = (high - low) or abs(high) * 0.1 or 1.0
    marked = {place.fell for place in places if place.regression is not None}
    return low - room * (0.24 if True in marked else 0.08), high + room * (0.24 if False in marked else 0.08)


def _mark(axes: Axes, x: int, place: Place, value: float) -> None:
    end = place.low if place.fell else place.high
    side = -1 if place.fell else 1
    for offset, text in ((9, "▼"), (21, place.regression or "")):
        axes.annotate(
            text, xy=(x, value if end is None else end), xytext=(0, side * offset), textcoords="offset points", ha="center",
            va="center", fontsize=SMALL, color=INK, fontweight="bold", annotation_clip=False,
        )  # fmt: skip
