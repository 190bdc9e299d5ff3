"""Every figure of the report in one style: panels 340 units wide, direct labels, no legends, horizontal grid only.

Audited models are blue, the reference grey; among several of a kind, dashes and markers differ, so that grey print loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from audit.sinks.figure_svg import INK, MUTED, OTHER, PAPER, RULE, SUBJECT, inline_svg
from audit.sinks.report_words import fixed, number

Floats = npt.NDArray[np.float64]
WIDTH = 340
SMALL, _TEXT = 10.5, 11
# Measured for IBM Plex Sans at 11 units, with a margin: labels must fit without measuring the font itself.
_CHARACTER = 6.1
_LABEL_GAP = 13.0
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "audit", "font.family": "DejaVu Sans", "font.size": _TEXT, "text.parse_math": False,
    "text.usetex": False, "text.color": INK, "axes.labelcolor": MUTED, "axes.labelsize": _TEXT, "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "axes.grid": True,
    "axes.grid.axis": "y", "axes.axisbelow": True, "axes.facecolor": "none", "axes.unicode_minus": True, "grid.color": RULE,
    "grid.linewidth": 0.8, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelsize": SMALL, "ytick.labelsize": SMALL,
    "xtick.major.size": 3, "xtick.major.width": 0.8, "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.major.pad": 5,
    "figure.facecolor": "none", "savefig.facecolor": "none", "lines.solid_capstyle": "round", "axes.xmargin": 0,
}  # fmt: skip
_SUBJECT_LINES: tuple[tuple[Any, str], ...] = (
    ("-", "o"), ((0, (5, 2)), "D"), ((0, (1.5, 1.8)), "^"), ((0, (7, 2, 1.5, 2)), "v"),
    ("-", "P"), ((0, (5, 2)), "X"), ((0, (1.5, 1.8)), "<"), ((0, (7, 2, 1.5, 2)), ">"),
)  # fmt: skip
_REFERENCE_LINE: tuple[Any, str] = ((0, (5, 2.5)), "s")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One model's curve; `low` and `high` bound the band, or are None where there is none. All (m,)."""

    label: str
    subject: bool
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One model's per-example values, (n,), finite."""

    label: str
    subject: bool
    values: Floats


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One model in a ranking: the printed rank, value and interval in axis units."""

    rank: str
    label: str
    subject: bool
    value: float
    low: float
    high: float


def accuracy_epsilon(
    series: Sequence[Series], *, mark: float | None, mark_label: str, chance: float | None, x_label: str, key: str, alt: str
) -> Markup:
    """Accuracy in percent against epsilon or another axis, a labelled curve with its band per model; `mark` is the audited one."""
    with drawing():
        right = _label_width([item.label for item in series])
        figure, axes = panel(252, left=38, right=right, top=18, bottom=42)
        for item, (dash, marker), width in _dressed(series):
            colour = _colour(item.subject)
            if item.low is not None and item.high is not None:
                axes.fill_between(item.x, item.low, item.high, color=colour, alpha=0.15 if len(series) < 4 else 0.07, lw=0)
            axes.plot(item.x, item.y, color=colour, ls=dash, lw=width)
            axes.plot(item.x, item.y, marker, color=colour, ms=4.4 if item.subject else 3.8, mec=PAPER, mew=0.7)
        highest = max(float(item.x[-1]) for item in series) or 1.0
        _percent_axis(axes, highest)
        if mark is not None:
            _mark(axes, mark, mark_label)
        if chance is not None:
            axes.axhline(chance, color=MUTED, lw=0.8, ls=(0, (1, 2.2)))
            axes.text(highest * 0.015, chance + 1.5, "chance", fontsize=SMALL, color=MUTED, ha="left", va="bottom")
        axes.set_xlabel(x_label, loc="left")
        _label_ends(
            axes,
            [(float(item.x[-1]), float(item.y[-1]), item.label, item.subject) for item in series],
            units=192 / 100,
            across=(WIDTH - 38 - right) / highest,
            last=highest,
        )
        return inline_svg(figure, key=key, alt=alt)


def margin_survival(series: Sequence[Sample], *, mark: float, mark_label: str, highest: float, key: str, alt: str) -> Markup:
    """The share of images whose margin exceeds the axis value, in percent; values and axis in 1/255."""
    with drawing():
        figure, axes = panel(252, left=38, right=_label_width([item.label for item in series]), top=18, bottom=42)
        ends = []
        for item, (dash, _), width in _dressed(series):
            values = np.sort(item.values)
            x = np.concatenate([[0.0], values, [max(highest, float(values[-1]))]])
            # At 0 the curve shows the share strictly above 0: a misclassified image has margin 0.
            y = 100 * (1 - np.searchsorted(values, x, side="right") / values.size)
            axes.step(x, y, where="post", color=_colour(item.subject), ls=dash, lw=width)
            ends.append((highest, float(100 * np.mean(values > highest)), item.label, item.subject))
        _percent_axis(axes, highest)
        _mark(axes, mark, mark_label)
        axes.set_xlabel("linearised margin, L∞, in 1/255", loc="left")
        _label_ends(axes, ends, units=192 / 100)
        return inline_svg(figure, key=key, alt=alt)


def histograms(series: Sequence[Sample], *, limits: tuple[float, float], x_label: str, key: str, alt: str) -> Markup:
    """One histogram per model on a shared logarithmic axis, each with its median; values outside `limits` join the edge."""
    with drawing():
        row, top, bottom = (76 if len(series) < 4 else 56), 6, 42
        height = row * len(series) + top + bottom
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        bins = np.geomspace(*limits, 36).tolist()
        for index, item in enumerate(series):
            base = bottom + row * (len(series) - 1 - index)
            axes = figure.add_axes((14 / WIDTH, base / height, 1 - 26 / WIDTH, (row - 22) / height))
            colour = _colour(item.subject)
            values = np.clip(item.values, *limits)
            axes.hist(values, bins=bins, color=colour, alpha=0.3, lw=0)
            axes.hist(values, bins=bins, histtype="step", color=colour, lw=1.2)
            median = float(np.median(item.values))
            axes.axvline(float(np.clip(median, *limits)), color=colour, lw=1.8)
            axes.set_xscale("log")
            axes.set_xlim(*limits)
            axes.set_yticks([])
            axes.minorticks_off()
            axes.grid(axis="x", color=RULE)
            ticks = _decades(limits)
            last = index == len(series) - 1
            axes.set_xticks(ticks, [_decade_text(tick) for tick in ticks] if last else [""] * len(ticks))
            axes.tick_params(axis="x", length=3 if last else 0)
            _text(axes, 0, 1.06, f"{item.label}: median {number(median, 2)}", item.subject, va="bottom", transform=axes.transAxes)
            if last:
                axes.set_xlabel(x_label, loc="left")
        return inline_svg(figure, key=key, alt=alt)


def ranking(rows: Sequence[Ranked], *, x_label: str, decimals: int, key: str, alt: str) -> Markup:
    """Models best first with value and interval; models that share a rank interval are joined by a bracket."""
    with drawing():
        left = 52 + min(20, max(len(row.label) for row in rows)) * _CHARACTER
        figure, axes = panel(28 * len(rows) + 56, left=left, right=40, top=10, bottom=46)
        low, high = min(row.low for row in rows), max(row.high for row in rows)
        room = (high - low) * 0.06 or 1.0
        axes.set_xlim(low - room, high + room)
        unit = (high - low + 2 * room) / (WIDTH - left - 40)
        heights = list(range(len(rows)))[::-1]
        for y, row in zip(heights, rows, strict=True):
            colour, ink = _colour(row.subject), SUBJECT if row.subject else MUTED
            axes.plot([row.low, row.high], [y, y], color=colour, lw=2.4 if row.subject else 1.6)
            axes.plot([row.value], [y], "o" if row.subject else "s", color=colour, ms=7 if row.subject else 5.5, mec=PAPER, mew=1)
            axes.text(row.high + 5 * unit, y, fixed(row.value, decimals), color=ink, fontsize=SMALL, va="center")
            _text(axes, low - room - (left - 50) * unit, y, row.label, row.subject, va="center", colour=INK)
        for rank in dict.fromkeys(row.rank for row in rows):
            places = [y for y, row in zip(heights, rows, strict=True) if row.rank == rank]
            axes.text(
                low - room - (left - 4) * unit, sum(places) / len(places), rank, fontsize=_TEXT, fontweight="bold", va="center"
            )
            if len(places) > 1:
                bracket = [low - room - (left - 40) * unit] * 2
                axes.plot(bracket, [min(places) - 0.32, max(places) + 0.32], color=INK, lw=1.2, clip_on=False)
        axes.set_yticks([])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=RULE)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)
        # A long title starts under the names: the page ends where the figure does.
        axes.set_xlabel(x_label, loc="left" if len(x_label) * _CHARACTER < WIDTH - left else "right")
        return inline_svg(figure, key=key, alt=alt)


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart and as near to `targets` as that allows, inside [low, high] when there is room.

    >>> spread([10.0, 10.0], 4.0, 0.0, 100.0)
    [8.0, 12.0]
    """
    order = sorted(range(len(targets)), key=lambda index: targets[index])
    # Pool adjacent violators on the targets less their share of gaps: the least-squares solution.
    blocks: list[list[float]] = []
    for place, index in enumerate(order):
        blocks.append([targets[index] - place * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            before, earlier = blocks[-1]
            blocks[-1] = [(before * earlier + mean * count) / (earlier + count), earlier + count]
    values = [mean for mean, count in blocks for _ in range(int(count))]
    limit = high - (len(targets) - 1) * gap
    placed = [max(low, min(limit, value)) + place * gap for place, value in enumerate(values)]
    result = [0.0] * len(targets)
    for index, value in zip(order, placed, strict=True):
        result[index] = value
    return result


@contextmanager
def drawing() -> Iterator[None]:
    """The report's style for what is drawn inside."""
    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def panel(height: float, *, left: float, right: float, top: float, bottom: float) -> tuple[Figure, Axes]:
    """A figure `WIDTH` wide with one pair of axes; all lengths in 1/72 inch."""
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    axes = figure.add_axes((left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (top + bottom) / height))
    return figure, axes


def _colour(subject: bool) -> str:
    return SUBJECT if subject else OTHER


def _dressed(series: Sequence[Any]) -> list[tuple[Any, tuple[Any, str], float]]:
    """Each series with its (dash, marker) and line width; others first, so that audited models lie on top."""
    subjects = [item for item in series if item.subject]
    dressed = [(item, _REFERENCE_LINE, 1.6) for item in series if not item.subject]
    for index, item in enumerate(subjects):
        dressed.append((item, _SUBJECT_LINES[index % len(_SUBJECT_LINES)], 2.4 if index == 0 else 1.7))
    return dressed


def _text(axes: Axes, x: float, y: float, text: str, subject: bool, *, colour: str = MUTED, **options: Any) -> None:
    axes.text(
        x, y, text, fontsize=_TEXT, color=SUBJECT if subject else colour, fontweight="bold" if subject else "normal", **options
    )


def _label_width(labels: Sequence[str]) -> float:
    return 16 + max(len(label) for label in labels) * _CHARACTER


def _percent_axis(axes: Axes, highest: float) -> None:
    axes.set(xlim=(0, highest or 1), ylim=(0, 100))  # at a budget of 0 the curve is one point
    axes.set_yticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _mark(axes: Axes, at: float, label: str) -> None:
    axes.axvline(at, color=INK, lw=0.9, zorder=1)
    axes.text(at, 104, f" {label}", fontsize=SMALL, color=INK, va="center", ha="left")


def _label_ends(
    axes: Axes, ends: Sequence[tuple[float, float, str, bool]], *, units: float, across: float = 0.0, last: float = 0.0
) -> None:
    """Names at the right ends of curves, moved apart where they would overlap; `units` is the height of one axis unit.

    Curves that end before `last` are named beyond it; `across` is the width of one axis unit.
    """
    places = spread([y for _, y, _, _ in ends], _LABEL_GAP / units, 2.0, 98.0)
    for (x, y, label, subject), place in zip(ends, places, strict=True):
        axes.annotate(
            label, xy=(x, y), xytext=(12 + (last - x) * across, (place - y) * units), textcoords="offset points", fontsize=_TEXT,
            va="center_baseline",
            color=SUBJECT if subject else MUTED, fontweight="bold" if subject else "normal", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": _colour(subject), "lw": 0.7, "shrinkA": 1, "shrinkB": 2, "relpos": (0, 0.5)},
        )  # fmt: skip


def _decades(limits: tuple[float, float]) -> list[float]:
    first, last = int(np.ceil(np.log10(limits[0]) - 1e-9)), int(np.floor(np.log10(limits[1]) + 1e-9))
    step = max(1, -(-(last - first + 1) // 5))
    return [10.0**power for power in range(first, last + 1, step)]


def _decade_text(value: float) -> str:
    power = round(np.log10(value))
    return f"{10.0**power:.{max(0, -power)}f}" if -4 <= power <= 4 else f"1e{power}".replace("-", "\u2212")
