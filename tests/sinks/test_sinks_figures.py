"""Figures: inline SVG with a title first, roles as classes, labels that do not overlap, and nothing a name can inject."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from audit.sinks import figures
from audit.sinks.figures import Ranked, Sample, Series

SVG = "{http://www.w3.org/2000/svg}"


def curves(count, label="version {}"):
    x = np.array([0.0, 2.0, 4.0, 8.0])
    return [
        Series(
            label=label.format(k),
            subject=k > 0,
            x=x,
            y=90 - x * (3 + 0.01 * k),
            low=85 - x * (3 + 0.01 * k),
            high=95 - x * (3 + 0.01 * k),
        )
        for k in range(count)
    ]


def draw_accuracy(count=2, **more):
    return figures.accuracy_epsilon(
        curves(count, **more), mark=4.0, mark_label="ε = 4/255", chance=10.0, x_label="ε", key="k1", alt="alt & text"
    )


def draw_all():
    rng = np.random.default_rng(0)
    samples = [Sample(label=f"version {k}", subject=k > 0, values=rng.gamma(2, 3, 50)) for k in range(3)]
    rows = [
        Ranked(rank="1–2", label="a", subject=True, value=80.0, low=78.0, high=82.0),
        Ranked(rank="1–2", label="b", subject=False, value=79.0, low=77.0, high=81.0),
    ]
    return {
        "accuracy": draw_accuracy(),
        "histograms": figures.histograms(samples, limits=(1e-3, 50.0), x_label="λ", key="k2", alt="alt"),
        "margins": figures.margin_survival(samples, mark=4.0, mark_label="ε", highest=20.0, key="k3", alt="alt"),
        "ranking": figures.ranking(rows, x_label="%", decimals=1, key="k4", alt="alt"),
    }


@pytest.mark.parametrize("name", ["accuracy", "histograms", "margins", "ranking"])
def test_every_figure_follows_the_rules(name):
    text = draw_all()[name]
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg" and root[0].tag == f"{SVG}title" and root[0].text
    assert root.get("role") == "img" and "width" not in root.attrib and root.get("viewBox").split()[2] == "340"
    assert "style=" not in text and "<style" not in text and "xlink" not in text and "metadata" not in text
    for element in root.iter(f"{SVG}text"):
        assert element.get("font-family").startswith("IBM Plex Sans") and element.get("fill")
        assert element.get("font-weight") in (None, "400", "600")
    # Every colour is a role of the design, so that dark mode reaches all of them.
    colours = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', text))
    assert colours <= {"#1b2026", "#56606b", "#dde1e6", "#0a5c9e", "#6f7a86", "#ffffff"}
    for element in root.iter():
        for kind in ("fill", "stroke"):
            if element.get(kind, "").startswith("#"):
                assert f"{kind[0]}-" in element.get("class", "")
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | {value[1:] for value in re.findall(r' href="(#[^"]+)"', text)}
    assert used <= set(re.findall(r'id="([^"]+)"', text))


def test_ids_of_two_figures_never_meet():
    drawn = draw_all()
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in drawn.values()]
    assert all(not a & b for a, b in itertools.combinations(ids, 2))


def test_the_same_numbers_give_the_same_svg():
    assert draw_all() == draw_all()


def test_names_are_text_and_nothing_else():
    text = draw_accuracy(label="$x^2$ <b>&{} \\frac")
    root = ElementTree.fromstring(text)
    words = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    assert "$x^2$ <b>&1 \\frac" in words


def test_eight_labels_keep_their_distance():
    root = ElementTree.fromstring(draw_accuracy(8))
    places = []
    for element in root.iter(f"{SVG}text"):
        words = "".join(element.itertext())
        if words.startswith("version"):
            numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.get("transform", ""))]
            places.append(float(element.get("y")) if element.get("y") else numbers[1])
    assert len(places) == 8
    assert min(np.diff(sorted(places))) > 11


def test_reference_is_grey_and_audited_blue():
    rows = [
        Ranked(rank="1", label="audited", subject=True, value=80.0, low=78.0, high=82.0),
        Ranked(rank="2", label="reference", subject=False, value=70.0, low=68.0, high=72.0),
    ]
    root = ElementTree.fromstring(figures.ranking(rows, x_label="%", decimals=1, key="k", alt="alt"))
    colours = {"".join(element.itertext()): element.get("fill") for element in root.iter(f"{SVG}text")}
    assert colours["audited"] == "#0a5c9e" and colours["reference"] == "#1b2026" and colours["70.0"] == "#56606b"


@pytest.mark.parametrize("seed", range(20))
def test_spread_keeps_order_gap_and_bounds_and_is_nearest(seed):
    rng = np.random.default_rng(seed)
    targets = rng.uniform(0, 100, 5).tolist()
    placed = figures.spread(targets, 8.0, 2.0, 98.0)
    order = np.argsort(targets, kind="stable")
    gaps = np.diff(np.array(placed)[order])
    assert gaps.min() >= 8.0 - 1e-9 and min(placed) >= 2.0 - 1e-9 and max(placed) <= 98.0 + 1e-9
    # No random feasible placement lies closer in squares: the slow obvious truth.
    best = float(np.sum((np.array(placed) - targets) ** 2))
    for _ in range(2000):
        other = np.sort(rng.uniform(2, 98, 5))
        if np.diff(other).min() >= 8.0:
            assert np.sum((other - np.array(targets)[order]) ** 2) >= best - 1e-6


def test_spread_leaves_distant_labels_alone():
    assert figures.spread([80.0, 10.0, 40.0], 5.0, 0.0, 100.0) == pytest.approx([80.0, 10.0, 40.0])
