"""The history's page and figures: well-formed, self-contained, every value and reason on it, names inert, no sideways scrolling."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from report_page import Page
from sample_result import HOSTILE
from test_sinks_report_browser import CHROMIUM, WIDTHS, measured
from version_sample import ROBUST, outcomes, record

from audit.audited import VersionRecord
from audit.errors import SinkError
from audit.history import History, history
from audit.sinks import history_page
from audit.sinks.figure_trend import Place, trend
from audit.sinks.history_view import view

SVG = "{http://www.w3.org/2000/svg}"


def eight(name: str = "digits", why: str = "not audited") -> History:
    """Five comparable versions with a regression in the fourth, one without an audit, two on other data with another regression."""
    counts = ((480, 300), (482, 306), (484, 310), (483, 279), (485, 315))
    records = [record(str(place), outcomes(clean), outcomes(robust)) for place, (clean, robust) in enumerate(counts, 1)]
    records.append(VersionRecord(name=name, version="6", why_none=why))
    records += [record(str(place), outcomes(470), outcomes(robust), data_digest="f" * 64) for place, robust in ((7, 330), (8, 0))]
    return history(name, records)


def rendered(found: History, folder: Path) -> tuple[str, Page]:
    history_page.render(found, folder / "history.html")
    text = (folder / "history.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_the_page_is_well_formed_self_contained_and_always_the_same(tmp_path: Path) -> None:
    text, page = rendered(eight(), tmp_path)
    assert page.faults == [] and page.open == []
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip(page.headings, page.headings[1:], strict=False))
    assert "script" not in {tag for tag, _ in page.tags}
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in {"src", "href"}]
    assert links and all((link or "").startswith("#") for link in links)
    assert not re.search(r"url\((?!data:|#)", text) and text.count("http://") == text.count('xmlns="http://www.w3.org/2000/svg"')
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert rendered(eight(), tmp_path)[0] == text


def test_every_number_and_reason_is_on_the_page(tmp_path: Path) -> None:
    _, page = rendered(eight(), tmp_path)
    for words in (
        "8 versions, 7 audited",
        "Adversarial accuracy, white-box, L∞ 8/255: worse in version 4: −6.2 points (−8.7 to −4.4); version 8: −66.0 points",
        "2026-11-04 500 55.8 % 51.4 to 60.1 ▼ regression −6.2 points (−8.7 to −4.4)",
        "▲ improvement +7.2 points",
        "not comparable with version 5: they rest on different data",
        "6 not audited",
        "higher is better",
        "adjusted by Holm",
    ):
        assert words in page.text, words


def test_figures_say_in_words_what_they_show(tmp_path: Path) -> None:
    text, _ = rendered(eight(), tmp_path)
    spoken = re.findall(r'aria-label="([^"]+)"', text)
    robust = next(item for item in spoken if item.startswith("Adversarial accuracy"))
    assert "version 4: 55.8\u00a0% (51.4 to 60.1)" in robust and "version 6: not audited" in robust
    assert robust.count("regression in version") == 2 and "not comparable: versions 5 and 7" in robust


def test_a_name_cannot_leave_its_place(tmp_path: Path) -> None:
    text, page = rendered(eight(HOSTILE, why=HOSTILE), tmp_path)
    assert page.faults == [] and "<script" not in text
    assert "\x1b" not in text and "\u202e" not in text


def test_one_version_or_none_says_that_there_is_no_trend(tmp_path: Path) -> None:
    missing = VersionRecord(name="digits", version="2", why_none="not audited")
    for records in ([record("1", outcomes(480), outcomes(300)), missing], [missing]):
        _, page = rendered(history("digits", records), tmp_path)
        assert "and a trend needs two" in page.text and "Version 2: not audited" in page.text


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="cannot be written to"):
        history_page.render(eight(), tmp_path / "absent" / "page.html")


def drawn(*places: Place, breaks: tuple[int, ...] = (), bounds: tuple[float, float] | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(str(trend(places, breaks, bounds=bounds, x_label="version", key="t", alt="a trend")))


def lines(figure: ElementTree.Element) -> int:
    """Paths in the model's own colour that are not filled: connecting lines and error bars."""
    return sum(path.get("class") == "s-subj" for path in figure.iter(f"{SVG}path") if "use" not in path.tag)


def test_a_break_and_a_gap_leave_out_lines() -> None:
    one, two, three = (Place(label=str(value), value=value) for value in (1.0, 2.0, 3.0))
    assert lines(drawn(one, two, three)) == 2
    assert lines(drawn(one, two, three, breaks=(2,))) == 1
    # A version without a value interrupts nothing: its neighbours are comparable.
    assert lines(drawn(one, Place(label="x"), three)) == 1
    assert lines(drawn(one, Place(label="2", value=2.0, low=1.5, high=2.5))) == 2


def test_marks_stand_where_the_value_went_and_labels_end_with_nature() -> None:
    fallen = drawn(Place(label="1", value=90.0), Place(label="2", value=0.0, regression="−90.0"), bounds=(0, 100))
    texts = [(text.text or "").strip() for text in fallen.iter(f"{SVG}text")]
    assert {"▼", "−90.0", "1", "2"} <= set(texts)
    ticks = [float(text.replace("−", "-")) for text in texts if re.fullmatch("[−0-9]+", text) and text not in {"1", "2"}]
    assert ticks and min(ticks) >= 0 and max(ticks) <= 100


def test_a_long_history_labels_its_newest_version_and_not_every_one() -> None:
    figure = drawn(*(Place(label=f"v{place}", value=float(place % 7)) for place in range(1, 101)))
    labels = [text.text for text in figure.iter(f"{SVG}text") if (text.text or "").startswith("v")]
    assert "v100" in labels and 6 <= len([label for label in labels if label != "version"]) <= 12


def test_words_of_metrics_that_are_no_shares() -> None:
    line = eight().lines[1]
    assert line.key == ROBUST
    shown = view(eight()).trends[2]
    assert shown.line.key == "score/overall_at_most"
    assert [row.value for row in shown.rows[:2]] == ["96.0\u00a0points", "96.0\u00a0points"]
    assert shown.notes[0].startswith("No version is tested against the one before") and shown.notes[1].startswith("No interval")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("name", ["digits", HOSTILE, "w" * 250], ids=["plain", "hostile", "long"])
def test_no_width_scrolls_sideways(tmp_path: Path, name: str) -> None:
    text, _ = rendered(eight(name, why=name), tmp_path)
    assert [width for width, _ in measured(tmp_path, text)] == list(WIDTHS)
