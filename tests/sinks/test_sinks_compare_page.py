"""The comparison's page: nothing from outside, nothing that runs, every number of the comparison, and hostile names as text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from audits_by_hand import BLACK, CLEAN, MEDIAN, SETTINGS, WHITE, audited, column, first
from sample_result import HOSTILE

from audit import statistics
from audit.compare import compare
from audit.errors import SinkError
from audit.sinks.compare_page import render
from audit.sinks.compare_view import view
from audit.statistics import PairedCounts

VALUES = np.random.default_rng(0).lognormal(size=100)


def pair(**options):
    baseline = audited({CLEAN: first(90), WHITE: first(50), BLACK: first(60), MEDIAN: column(VALUES)})
    other = audited(
        {CLEAN: first(91), WHITE: first(20), BLACK: first(60), MEDIAN: column(VALUES * 9)}, **{"version": "2", **options}
    )
    return [baseline, other]


def written(tmp_path, audits) -> str:
    render(compare(audits), tmp_path / "compare.html")
    return (tmp_path / "compare.html").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    body = re.sub(r"<style.*?</style>|<svg.*?</svg>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("\u00a0", " ")


def test_the_page_shows_who_how_much_and_how_sure(tmp_path):
    page = written(tmp_path, pair())
    text = text_of(page)
    assert "digits, version 1" in text and "digits, version 2" in text and "n = 100" in text
    assert "B is worse than A in 2 metrics and better in 0; in 2 they are not told apart." in text
    interval = statistics.paired_share_difference(PairedCounts(both_right=20, only_first=0, only_second=30, both_wrong=50))
    assert "−30.0" in text and f"−{-100 * interval.low:.1f} to −{-100 * interval.high:.1f}" in text
    assert "0 : 30" in text and "&lt; 0.001" in text
    assert text.index("Adversarial accuracy, white-box, L∞ 8/255") < text.index("Clean accuracy")
    assert page.count("<svg") == 2 and 'role="img"' in page


def test_nothing_is_fetched_and_nothing_runs(tmp_path):
    page = written(tmp_path, pair())
    assert "default-src 'none'" in page and "<script" not in page and "<img" not in page
    # Namespaces are names, not addresses; everything else that could be fetched is inside.
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?((?:https?:)?//[^"')\s]+)""", page)
    assert addresses == []
    assert page == written(tmp_path, pair()), "the same comparison, byte for byte"


@pytest.mark.parametrize("name", [HOSTILE, "::error file=x::boom", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>'])
def test_a_hostile_name_is_text(tmp_path, name):
    audits = pair(name=name)
    audits[1] = replace(audits[1], source=name)
    page = written(tmp_path, audits)

    found = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.add(tag)
            assert not any(key.startswith("on") for key, _ in attributes)

    Tags().feed(page)
    assert "svg" in found and not found & {"script", "img", "iframe", "object", "form"}
    assert "\x1b" not in page and "\u202e" not in page


def test_what_was_not_compared_is_named_with_its_reason(tmp_path):
    text = text_of(written(tmp_path, pair(settings={**SETTINGS, "profile linf": "1"})))
    assert "B: attack settings. Their settings differ (linf 1 against 20, 20)" in text
    assert f"Not compared for this: {WHITE} ." in text
    assert "Nothing of B could be compared" not in text
    nothing = pair(data_digest="f" * 64)
    text = text_of(written(tmp_path, nothing))
    assert "Nothing of B could be compared with A." in text and "different data" in text
    assert "Every difference" not in text


def test_equal_audits_say_that_nothing_differs(tmp_path):
    one = audited({CLEAN: first(90)})
    other = audited({CLEAN: first(90)}, version="2")
    assert "Nothing: the audits agree" in text_of(written(tmp_path, [one, other]))


def test_three_models_are_ranked_and_every_line_names_its_model(tmp_path):
    audits = [audited({CLEAN: first(right), WHITE: first(right - 40)}, version=str(right)) for right in (90, 60, 88)]
    shown = view(compare(audits))
    assert [(line.letter, line.verdict) for line in shown.lines] == [
        ("B", "worse"),
        ("B", "worse"),
        ("C", "not told apart"),
        ("C", "not told apart"),
    ]
    text = text_of(written(tmp_path, audits))
    assert "Ranks" in text and "1 to 2" in text and "Clean accuracy, n = 100" in text


def test_a_page_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(SinkError, match="cannot be written"):
        render(compare(pair()), tmp_path / "missing" / "compare.html")
