"""Which figures a result has, with captions; a title states a finding only where a test or disjoint intervals support it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from audit.records.examples import ExampleTable
from audit.result import AuditResult, Curve, CurvePoint, PairTest
from audit.sinks import figures
from audit.sinks import report_words as words
from audit.sinks.figures import Ranked, Sample, Series
from audit.sinks.report_results import SIGNIFICANT, EpsilonTable, RankingTable
from audit.vocabulary import Norm

# Exact values where the model has gradients, else the estimates from queries.
_LAMBDA = {"fitted": ("lambda_max_T", "lambda_estimate_T"), "raw": ("lambda_max_raw", "lambda_estimate_raw")}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A figure with its caption: `say` is the finding or the subject, `what` gives quantity, unit, band and n."""

    say: str
    what: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class Panels:
    """Some figures, and sentences for those that could not be drawn."""

    drawn: tuple[Panel, ...]
    left_out: tuple[str, ...]


def epsilon_panels(result: AuditResult, labels: Sequence[str], tables: Sequence[EpsilonTable]) -> Panels:
    """One accuracy-epsilon panel per table."""
    return Panels(drawn=tuple(_epsilon(result, labels, table, place) for place, table in enumerate(tables)), left_out=())


def _epsilon(result: AuditResult, labels: Sequence[str], table: EpsilonTable, place: int) -> Panel:
    curve = table.curves[0][1]
    linf = curve.norm == Norm.LINF.value
    scale = 255.0 if linf else 1.0
    series = [_series(item, labels[index], not result.models[index].is_reference, scale) for index, item in table.curves]
    threat = words.parsed_threat(curve.threat)
    epsilon = threat.epsilon if threat else max(point.epsilon for point in curve.points)
    mark = f"ε = {threat.written if threat else words.epsilon_text(curve.norm, epsilon)}"
    norm = words.norm_label(curve.norm)
    spoken = "; ".join(
        f"{row.label}: " + ", ".join(f"{cell[0]} % at {eps}" for eps, cell in zip(table.epsilons, row.cells, strict=True) if cell)
        for row in table.rows
    )
    svg = figures.accuracy_epsilon(
        series,
        mark=epsilon * scale,
        mark_label=mark,
        chance=100 / max(1, result.models[0].identity.classes),
        x_label=f"ε, {norm}, in 1/255" if linf else f"ε, {norm}, pixels in [0, 1]",
        key=f"eps{place}",
        alt=f"Accuracy under {curve.arm} attack against epsilon in {norm}. {spoken}.",
    )
    return Panel(
        say=_epsilon_finding(result, labels, table, epsilon, f"{norm} {mark.removeprefix('ε = ')}"),
        what=f"Accuracy against ε, {norm}, {curve.arm}. Bands: 95 % Wilson intervals, n\u00a0=\u00a0{curve.samples}.",
        svg=svg,
    )


def _series(curve: Curve, label: str, subject: bool, scale: float) -> Series:
    points = sorted(curve.points, key=lambda point: point.epsilon)
    return Series(
        label=label,
        subject=subject,
        x=np.array([point.epsilon * scale for point in points]),
        y=np.array([point.accuracy * 100 for point in points]),
        low=np.array([point.low * 100 for point in points]),
        high=np.array([point.high * 100 for point in points]),
    )


def _epsilon_finding(result: AuditResult, labels: Sequence[str], table: EpsilonTable, epsilon: float, threat: str) -> str:
    """Two models: the paired test at this threat, where it tells them apart. One model: a loss whose intervals are disjoint."""
    curve = table.curves[0][1]
    if len(table.curves) == 2:
        test = _test_at(result, curve)
        if test is not None and test.adjusted_p_value < SIGNIFICANT:
            winner = test.first if test.only_first > test.only_second else test.second
            loser = test.second if winner == test.first else test.first
            return f"At {threat}, {labels[winner]} keeps more images right than {labels[loser]}"
    if len(table.curves) == 1:
        clean, attacked = _point(curve, 0.0), _point(curve, epsilon)
        if clean is not None and attacked is not None and attacked.high < clean.low:
            loss = f"{words.percent(clean.accuracy)} to {words.percent(attacked.accuracy)}{words.NO_BREAK}%"
            return f"At {threat}, accuracy falls from {loss}"
    return f"Accuracy under {curve.arm} attack"


def _point(curve: Curve, epsilon: float) -> CurvePoint | None:
    return next((point for point in curve.points if abs(point.epsilon - epsilon) < 1e-9), None)


def _test_at(result: AuditResult, curve: Curve) -> PairTest | None:
    """The paired test of two models under the attacks that the curve rests on."""
    threat = words.parsed_threat(curve.threat)
    for ranking in result.rankings:
        same = threat is not None and ranking.metric.endswith(f"{curve.arm.replace('-', '_')}/{threat.key}")
        if same and len(ranking.tests) == 1:
            return ranking.tests[0]
    return None


def lambda_panels(result: AuditResult, labels: Sequence[str], table: ExampleTable) -> Panels:
    """The pair of λ histograms, at the fitted temperature and raw, on one axis."""
    titles = {"fitted": "λ at the fitted temperature", "raw": "λ of the raw outputs (T = 1)"}
    found: dict[str, list[Sample]] = {}
    left_out: list[str] = []
    for kind, title in titles.items():
        samples, reasons = _samples(result, labels, table, _LAMBDA[kind])
        left_out += [f"{title}: no histogram for {who}, because {reason}." for who, reason in reasons]
        if samples:
            found[kind] = samples
    if not found:
        return Panels(drawn=(), left_out=tuple(left_out))
    limits = _limits([sample.values for samples in found.values() for sample in samples])
    panels = []
    for kind, samples in found.items():
        spoken = "; ".join(f"{sample.label}: median {words.number(float(np.median(sample.values)), 2)}" for sample in samples)
        queried = _queried(result, labels, table, _LAMBDA[kind])
        estimated = f" Estimated from queries: {words.listed(queried)}." if queried else ""
        panels.append(
            Panel(
                say=_pair_finding(result, labels, table, kind) or titles[kind],
                what=f"{titles[kind]}, per image, logarithmic axis, n\u00a0=\u00a0{_sizes(samples)}. "
                f"The edges collect values beyond the axis.{estimated}",
                svg=figures.histograms(
                    samples,
                    limits=limits,
                    x_label="λ, per squared pixel range",
                    key=f"lambda{kind}",
                    alt=f"Histograms of {titles[kind]}. {spoken}.",
                ),
            )
        )
    return Panels(drawn=tuple(panels), left_out=tuple(left_out))


def margin_panels(result: AuditResult, labels: Sequence[str], table: ExampleTable) -> Panels:
    """The share of images above each linearised margin; needs the L∞ margins of the per-example table."""
    samples, reasons = _samples(result, labels, table, ("margin_linf",))
    left_out = tuple(f"Linearised margins: no curve for {who}, because {reason}." for who, reason in reasons)
    threats = [threat for text in result.threats if (threat := words.parsed_threat(text)) and threat.norm is Norm.LINF]
    if not samples or not threats:
        return Panels(drawn=(), left_out=left_out)
    epsilon = threats[0].epsilon * 255
    scaled = [Sample(label=item.label, subject=item.subject, values=item.values * 255) for item in samples]
    widest = max(float(np.quantile(item.values, 0.98)) for item in scaled)
    highest = float(np.ceil(min(max(widest, 1.5 * epsilon), 6 * epsilon)))
    cut = " The axis is cut." if any(float(item.values.max()) > highest for item in scaled) else ""
    shares = [f"{item.label}: {words.percent(float(np.mean(item.values > epsilon)))}{words.NO_BREAK}%" for item in scaled]
    mark = f"ε = {threats[0].written}"
    panel = Panel(
        say=f"Images with a linearised margin above {threats[0].written}: {'; '.join(shares[:3])}"
        + (" …" if len(shares) > 3 else ""),
        what="Share of images with a larger margin than the axis value, first order, not a guarantee, "
        f"n\u00a0=\u00a0{_sizes(samples)}.{cut}",
        svg=figures.margin_survival(
            scaled,
            mark=epsilon,
            mark_label=mark,
            highest=highest,
            key="margin",
            alt=f"Share of images whose linearised L∞ margin exceeds {mark}. {'; '.join(shares)}.",
        ),
    )
    return Panels(drawn=(panel,), left_out=left_out)


def ranking_panels(tables: Sequence[RankingTable]) -> Panels:
    """One panel per ranking."""
    panels = []
    for place, table in enumerate(tables):
        share = table.title.endswith("%")
        scale = 100.0 if share else 1.0
        rows = [
            Ranked(rank=rank, label=label, subject=subject, value=row.value * scale, low=row.low * scale, high=row.high * scale)
            for (rank, label, subject, _, _), row in zip(table.rows, table.ranking.rows, strict=True)
        ]
        spoken = "; ".join(f"rank {rank}: {label}, {value} ({interval})" for rank, label, _, value, interval in table.rows)
        panels.append(
            Panel(
                say=_ranking_finding(table),
                what=f"{table.title}. Bars: 95 % intervals, n\u00a0=\u00a0{table.ranking.samples}. The axis need not start at 0.",
                svg=figures.ranking(
                    rows, x_label=table.title, decimals=1 if share else 3, key=f"rank{place}", alt=f"{table.title}. {spoken}."
                ),
            )
        )
    return Panels(drawn=tuple(panels), left_out=())


def _ranking_finding(table: RankingTable) -> str:
    dimension = table.ranking.dimension[:1].upper() + table.ranking.dimension[1:]
    first = table.ranking.rows[0]
    if all(pair.test.adjusted_p_value >= SIGNIFICANT for pair in table.pairs):
        return f"{dimension}: the tests cannot tell these models apart"
    if first.rank_low == first.rank_high == 1:
        return f"{dimension}: {table.rows[0][1]} ranks first"
    return f"{dimension}: some models differ"


def _samples(
    result: AuditResult, labels: Sequence[str], table: ExampleTable, columns: Sequence[str]
) -> tuple[list[Sample], list[tuple[str, str]]]:
    """Per model the first of `columns` that has numbers; else who has none, and why."""
    samples: list[Sample] = []
    reasons: dict[str, list[str]] = {}
    for index, (model, label) in enumerate(zip(result.models, labels, strict=True)):
        tried = [table.values(column, index) for column in columns]
        values = next((item for item in tried if not isinstance(item, str)), None)
        if values is not None:
            samples.append(Sample(label=label, subject=not model.is_reference, values=values))
        elif isinstance(tried[0], str):
            reasons.setdefault(tried[0], []).append(label)
    return samples, [(words.listed(names), reason) for reason, names in reasons.items()]


def _queried(result: AuditResult, labels: Sequence[str], table: ExampleTable, columns: Sequence[str]) -> list[str]:
    exact, estimate = columns
    return [
        labels[index]
        for index in range(len(result.models))
        if isinstance(table.values(exact, index), str) and not isinstance(table.values(estimate, index), str)
    ]


def _limits(columns: Sequence[Floats]) -> tuple[float, float]:
    """A shared logarithmic axis of at most eight decades, up to the largest value."""
    positive = np.concatenate([column[column > 0] for column in columns])
    if positive.size == 0:
        return 1e-6, 1.0
    high = float(positive.max()) * 1.3
    low = max(float(np.quantile(positive, 0.01)) / 1.3, high * 1e-8)
    return (low, high) if high > low * 10 else (high / 30, high * 3)


def _sizes(samples: Sequence[Sample]) -> str:
    return words.listed([str(size) for size in dict.fromkeys(sample.values.size for sample in samples)])


def _pair_finding(result: AuditResult, labels: Sequence[str], table: ExampleTable, kind: str) -> str | None:
    """With two models: which is the more sensitive on most images, by a two-sided exact sign test on the same images.

    Exact values are compared with exact values only.
    """
    if len(result.models) != 2:
        return None
    column = _LAMBDA[kind][0]
    first, second = table.aligned(column, 0), table.aligned(column, 1)
    if isinstance(first, str) or isinstance(second, str) or first.shape != second.shape:
        return None
    both = np.isfinite(first) & np.isfinite(second) & (first != second)
    more, total = int(np.sum(first[both] > second[both])), int(both.sum())
    if total == 0:
        return None
    from scipy.stats import binomtest

    if binomtest(more, total).pvalue >= SIGNIFICANT:
        return None
    winner, count = (labels[0], more) if 2 * more > total else (labels[1], total - more)
    setting = "At the fitted temperature" if kind == "fitted" else "At T = 1"
    return f"{setting}, {winner} is the more sensitive on {count} of {total} images"
