"""The corruption part of the report, from tables written down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sample_result import HOSTILE, sample

from audit.result import (
    FAILURES_FOLDER,
    CorruptionExample,
    CorruptionRow,
    CorruptionTable,
    Interval,
    Measured,
    Reliability,
    ReliabilityBin,
    Undefined,
)
from audit.sinks.report_corruptions import corruption_view, kind_words

LABELS = ("one", "two")


def row(kind, *errors, averaged=True, note=""):
    low, high = (tuple(round(min(1.0, max(0.0, error + shift)), 6) for error in errors) for shift in (-0.05, 0.05))
    return CorruptionRow(kind=kind, averaged=averaged, errors=errors, low=low, high=high, note=note)


TABLE = CorruptionTable(
    samples=40,
    clean_error=0.1,
    source="made here",
    rows=(
        row("fog", 0.1, 0.2, 0.3, 0.4, 0.5),
        row("saturate", 0.0, 0.0, 0.0, 0.0, 1.0, averaged=False, note="unlike the others"),
    ),
)


def by_severity(*outcomes):
    """Records of the error by severity."""
    template, name = sample().models[0].metric("clean_accuracy"), "corruption_error_by_severity"
    return tuple(
        replace(template, key=f"{name}/severity_{place}", id=name, variant=f"severity_{place}", outcome=outcome)
        for place, outcome in enumerate(outcomes, start=1)
    )


def measured(value):
    return Measured(value=value, samples=40, interval=Interval(low=value - 0.1, high=value + 0.1, method="bootstrap"))


def view(tmp_path, first=None, second=None):
    """Of two models, the second of which is the reference, with these fields changed."""
    made = sample(models=2, reference=True)
    models = tuple(replace(model, **(changes or {})) for model, changes in zip(made.models, (first, second), strict=True))
    return corruption_view(replace(made, models=models), LABELS, tmp_path)


def test_a_result_without_corruptions_shows_nothing(tmp_path):
    empty = view(tmp_path)
    assert empty.tables == () and empty.mistakes == () and empty.panels.drawn == () and empty.reliability.drawn == ()


def test_the_heat_map_says_shares_intervals_and_their_shade(tmp_path):
    subject, reference = view(tmp_path, {"corruptions": TABLE}, {"corruptions": replace(TABLE, clean_error=0.25)}).tables
    assert (subject.label, subject.subject, reference.label, reference.subject) == ("one", True, "two", False)
    assert "n\u00a0=\u00a040" in subject.caption and "10.0\u00a0% without" in subject.caption and "25.0\u00a0%" in reference.caption
    fog, saturate = subject.rows
    assert [cell.value for cell in fog.cells] == ["10.0", "20.0", "30.0", "40.0", "50.0"] and fog.mean == "30.0"
    assert fog.cells[0].interval == "5.0 to 15.0"
    # Six shades of 1/6 each, and all wrong is the darkest.
    assert [cell.shade for cell in fog.cells] == [0, 1, 1, 2, 3] and saturate.cells[4].shade == 5
    assert (fog.extra, saturate.extra, saturate.note, saturate.mean) == (False, True, "unlike the others", "20.0")


@pytest.mark.parametrize(
    ("kind", "words"), [("jpeg_compression", "JPEG compression"), ("gaussian_noise", "Gaussian noise"), ("fog", "fog")]
)
def test_kinds_as_a_reader_sees_them(kind, words):
    assert kind_words(kind) == words


def test_what_was_done_to_the_images(tmp_path):
    assert "frost is procedural" in view(tmp_path, {"corruptions": TABLE}).made
    read = view(tmp_path, {"corruptions": replace(TABLE, source="a folder in the form of CIFAR-10-C, sha256 00")}).made
    assert read == "Images of a folder in the form of CIFAR-10-C, sha256 00, at five severities."


def test_accuracy_by_severity_is_drawn_over_the_kinds_that_enter_the_mean(tmp_path):
    records = by_severity(*(measured(error) for error in (0.1, 0.2, 0.3, 0.4, 0.5)))
    (panel,) = view(tmp_path, {"corruptions": TABLE, "metrics": records}).panels.drawn
    # Without the extra kind, whose errors would lift the beginning to 95 % and lower the end to 25 %.
    assert panel.say == "one falls from 90 to 50\u00a0% at the highest severity."
    assert "one: 90 %, 90 %, 80 %, 70 %, 60 %, 50 %" in panel.svg
    (bare,) = view(tmp_path, {"corruptions": TABLE}).panels.drawn
    assert bare.say == panel.say and len(bare.svg) < len(panel.svg)


def test_no_curve_where_the_mean_is_undefined_or_no_kind_enters_it(tmp_path):
    lacking = by_severity(*[Undefined(because="the folder has no snow")] * 5)
    assert view(tmp_path, {"corruptions": TABLE, "metrics": lacking}).panels.drawn == ()
    found = view(tmp_path, {"corruptions": replace(TABLE, rows=TABLE.rows[1:])})
    assert found.panels.drawn == () and len(found.tables) == 1


def test_reliability_shows_the_first_three_diagrams(tmp_path):
    bins = (ReliabilityBin(confidence=0.5, accuracy=0.25, low=0.1, high=0.4, samples=20),)
    diagrams = tuple(Reliability(images=name, bins=bins) for name in ("clean", "corrupted", "adversarial, L∞ 8/255", "fourth"))
    (panel,) = view(tmp_path, None, {"reliability": diagrams}).reliability.drawn
    assert panel.say.startswith("Confidence of two") and "adversarial" in panel.svg and "fourth" not in panel.svg
    assert "clean: 25 % at 0.50" in panel.svg


def test_mistakes_are_worded_with_their_images_where_those_were_kept(tmp_path):
    (tmp_path / FAILURES_FOLDER).mkdir()
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / FAILURES_FOLDER / name)
    seen = CorruptionExample(
        example_id="x7",
        label="cat",
        kind="jpeg_compression",
        severity=2,
        answered=HOSTILE,
        confidence=0.876,
        clean_image=f"{FAILURES_FOLDER}/a.png",
        corrupted_image=f"{FAILURES_FOLDER}/b.png",
    )
    bare = replace(seen, answered="dog", confidence=None, clean_image=None, corrupted_image=f"{FAILURES_FOLDER}/../../b.png")
    # Those of the reference are not shown.
    shown, other = view(tmp_path, {"corruption_examples": (seen, bare)}, {"corruption_examples": (seen,)}).mistakes
    assert shown.heading == "JPEG compression, severity 2" and shown.label == "cat"
    assert shown.line.startswith("one: cat is taken for ") and "with probability 0.88. Image x7." in shown.line
    assert len(shown.line) < 150 and "\x1b" not in shown.line and "\u202e" not in shown.line
    assert shown.clean.startswith("data:image/png;base64,") and shown.corrupted.startswith("data:image/png;base64,")
    assert other.line == "one: cat is taken for dog. Image x7." and other.clean is None and other.corrupted is None
