"""Paired differences with their intervals, one below the other around the line of no difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from audit.sinks.figure_svg import INK, MUTED, OTHER, PAPER, RULE, SUBJECT, inline_svg
from audit.sinks.figures import SMALL, drawing, panel

_ROW, _TOP, _BOTTOM, _SIDE = 36, 12, 44, 14
_LONGEST, _END = 52, 24
# Behind a label, so that no line runs through it.
_GROUND = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One difference in axis units; `word` is its verdict where it is significant."""

    label: str
    value: float
    low: float
    high: float
    word: str | None


def forest(effects: Sequence[Effect], *, furthest: float | None, x_label: str, key: str, alt: str) -> Markup:
    """Differences in the order given.

    Args:
        effects: what is drawn.
        furthest: how far from 0 the axis reaches at most; what lies beyond ends in an arrow. None shows all.
        x_label: below the axis.
        key: a prefix that keeps the figure's ids apart.
        alt: what the figure shows, read aloud instead of it.
    """
    reach = max(1e-9, *(abs(end) for effect in effects for end in (effect.low, effect.high)))
    reach = 1.05 * (reach if furthest is None else min(reach, furthest))
    with drawing():
        figure, axes = panel(_ROW * len(effects) + _TOP + _BOTTOM, left=_SIDE, right=_SIDE, top=_TOP, bottom=_BOTTOM)
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-len(effects) + 0.35, 0.65)
        axes.axvline(0, color=INK, lw=0.9, zorder=1)
        for place, effect in enumerate(effects):
            told_apart = effect.word is not None
            colour, ink = (SUBJECT, INK) if told_apart else (OTHER, MUTED)
            low, high = (max(-reach, min(reach, end)) for end in (effect.low, effect.high))
            axes.plot([low, high], [-place] * 2, color=colour, lw=2.2 if told_apart else 1.6, solid_capstyle="butt")
            for end, cut, marker in ((low, effect.low < -reach, "<"), (high, effect.high > reach, ">")):
                if cut:
                    axes.plot([end], [-place], marker, color=colour, ms=5, clip_on=False)
            if abs(effect.value) <= reach:
                axes.plot([effect.value], [-place], "o", color=colour, mfc=colour if told_apart else PAPER, ms=6, mew=1.4)
            height = -place + 0.4
            axes.text(-reach, height, _shortened(effect.label), fontsize=SMALL, color=ink, va="center", ha="left", bbox=_GROUND)
            axes.text(reach, height, effect.word or "", fontsize=SMALL, color=ink, va="center", ha="right", fontweight="bold")
        axes.set_yticks([])
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=RULE)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(x_label, loc="left")
        return inline_svg(figure, key=key, alt=alt)


def _shortened(label: str) -> str:
    """A label that fits the panel; it is cut in the middle, since the end tells median from percentile."""
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - _END - 2].rstrip()}… {label[-_END:].lstrip()}"
