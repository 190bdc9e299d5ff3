"""A history becomes one self-contained HTML page: trend plots, tables, and the rules they follow."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

from audit.history import History, Point
from audit.sinks import page
from audit.sinks import report_words as words
from audit.sinks.figure_trend import Place, trend
from audit.sinks.history_view import Trend, view
from audit.vocabulary import Unit


def render(history: History, file: Path) -> None:
    """Write the page; the same history gives the same page, byte for byte.

    Raises:
        SinkError: it cannot be written there.
    """
    templates = page.template_folder()
    shown = view(history)
    text = (
        page.environment(templates)
        .get_template("history.html.j2")
        .render(
            view=shown,
            figures={item.line.key: _figure(item, index) for index, item in enumerate(shown.trends) if item.line.points},
            title=f"History of {words.clipped(history.name, 120)}",
            tool=f"mlflow-audit {version('mlflow-audit')}",
            fonts=page.fonts(templates),
            page_css=page.style(templates, "page.css"),
            screen_css=page.style(templates, "screen.css"),
            print_css=page.style(templates, "print.css"),
        )
    )
    page.write(text, file)


def _figure(item: Trend, index: int) -> Markup:
    line = item.line
    where = line.variant or line.threat
    points = {point.version: point for point in line.points}
    later = {item.later for item in line.breaks}
    spoken = [f"version {row.version}: {row.value or row.why_none}{f' ({row.interval})' if row.value else ''}" for row in item.rows]
    worse = [f"regression in version {point.version}" for point in line.regressions]
    apart = [f"not comparable: versions {between.earlier} and {between.later}" for between in line.breaks]
    return trend(
        [_place(row.version, points.get(row.version), line.unit, where) for row in item.rows],
        [place for place, row in enumerate(item.rows) if row.version in later],
        bounds=(0.0, 100.0) if line.unit in {Unit.SHARE.value, "points"} else None,
        x_label=f"version; values in {words.unit_word(line.unit, where) or 'the metric’s own unit'}",
        key=f"trend{index}",
        alt=words.clean(f"{item.title} over the versions. {'; '.join([*spoken, *worse, *apart])}."),
    )


def _place(label: str, point: Point | None, unit: str, where: str | None) -> Place:
    if point is None:
        return Place(label=words.clean(label))
    step, scale = point.step, words.scale(unit, where)
    return Place(
        label=words.clean(label),
        value=scale * point.value,
        low=None if point.low is None else scale * point.low,
        high=None if point.high is None else scale * point.high,
        regression=words.written(step.difference, unit, where) if step is not None and step.regression else None,
        fell=step is None or step.difference < 0,
    )
