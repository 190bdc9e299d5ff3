"""Section 9 as data: certified-accuracy curves, the numbers behind them, and what they say of a model not trained with noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit.result import AuditResult, CertifiedCurve
from audit.sinks import figures
from audit.sinks import report_words as words
from audit.sinks.figures import Series
from audit.sinks.report_panels import Panel, Panels

# Every second point of the curve: the radii of the catalogue.
_EVERY = 2


@dataclass(frozen=True, kw_only=True)
class CertifiedTable:
    """One model: (radius, certified accuracy in percent, interval) rows, and what is said below them."""

    label: str
    caption: str
    rows: tuple[tuple[str, str, str], ...]
    abstained: str
    average_radius: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class CertifiedView:
    """All of section 9; empty where no model was certified."""

    panels: Panels
    tables: tuple[CertifiedTable, ...]


def certified_view(result: AuditResult, labels: Sequence[str]) -> CertifiedView:
    """One figure over all certified models, and a table each."""
    found = [
        (label, not model.is_reference, model.certified)
        for model, label in zip(result.models, labels, strict=True)
        if model.certified is not None
    ]
    if not found:
        return CertifiedView(panels=Panels(drawn=(), left_out=()), tables=())
    return CertifiedView(
        panels=Panels(drawn=(_panel(found),), left_out=()),
        tables=tuple(_table(label, curve) for label, _, curve in found),
    )


def _panel(found: Sequence[tuple[str, bool, CertifiedCurve]]) -> Panel:
    series = [
        Series(
            label=label,
            subject=subject,
            x=np.array([point.radius for point in curve.points]),
            y=np.array([point.accuracy * 100 for point in curve.points]),
            low=np.array([point.low * 100 for point in curve.points]),
            high=np.array([point.high * 100 for point in curve.points]),
        )
        for label, subject, curve in found
    ]
    spoken = "; ".join(
        f"{label}: " + ", ".join(f"{accuracy} % at {radius}" for radius, accuracy, _ in _rows(curve)) for label, _, curve in found
    )
    sizes = words.listed([str(size) for size in dict.fromkeys(curve.samples for _, _, curve in found)])
    return Panel(
        say="Certified accuracy of the smoothed classifier",
        what="Share of images answered rightly, provably so within the radius, L2. "
        f"Bands: 95 % Wilson intervals, n\u00a0=\u00a0{sizes}.",
        svg=figures.accuracy_epsilon(
            series,
            mark=None,
            mark_label="",
            chance=None,
            x_label="radius, L2, pixels in [0, 1]",
            key="certified",
            alt=f"Certified accuracy against the L2 radius. {spoken}.",
        ),
    )


def _rows(curve: CertifiedCurve) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (
            words.fixed(point.radius, 1),
            words.percent(point.accuracy),
            f"{words.percent(point.low)} to {words.percent(point.high)}",
        )
        for point in curve.points[::_EVERY]
    )


def _table(label: str, curve: CertifiedCurve) -> CertifiedTable:
    return CertifiedTable(
        label=label,
        caption=f"σ = {curve.sigma:g}, n0 = {curve.looked}, n = {words.grouped(curve.drawn)}, α = {curve.alpha:g}, "
        f"fixed in advance; {words.counted(curve.samples, 'image')}.",
        rows=_rows(curve),
        abstained=f"{words.percent(curve.abstained)}{words.NO_BREAK}%",
        average_radius=words.number(curve.average_radius),
        meaning=f"The model itself is right on {words.percent(curve.right_in_noise)}{words.NO_BREAK}% of the noisy copies and on "
        f"{words.percent(curve.right_clean)}{words.NO_BREAK}% of these images without noise. If it was not trained with such "
        "noise, a small certificate shows that it does not bear the noise, not that an attack succeeds nearby.",
    )
