"""The PDF report: tagged, bookmarked, with attachments, page one on one sheet, and never in the way of the HTML."""

from __future__ import annotations

import builtins
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from sample_result import HOSTILE, sample, write_folder

from audit import result as r
from audit.sinks import report

try:
    import weasyprint  # noqa: F401
except OSError:
    pytestmark = pytest.mark.skip(reason="the system libraries of WeasyPrint are not installed")

pikepdf = pytest.importorskip("pikepdf")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder of an audit of two versions, rendered once."""
    folder = write_folder(tmp_path_factory.mktemp("two"), sample(models=2))
    rendered = report.render(folder)
    assert rendered.pdf_problem is None
    return rendered


def pages_of(pdf):
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed")
    done = subprocess.run(["pdftotext", "-layout", str(pdf), "-"], capture_output=True, text=True, check=True)
    return [" ".join(page.split()) for page in done.stdout.split("\f")]


def test_it_is_tagged_and_has_a_language_and_a_title(two):
    with pikepdf.open(two.pdf) as pdf:
        assert pdf.Root.MarkInfo.Marked and "/StructTreeRoot" in pdf.Root
        assert str(pdf.Root.Lang) == "en"
        assert pdf.Root.ViewerPreferences.DisplayDocTitle
        assert str(pdf.docinfo.Title).startswith("Robustness audit: digits-cnn, versions")


def test_it_claims_nothing_that_no_validator_has_seen(two):
    raw = two.pdf.read_bytes()
    assert b"pdfaid" not in raw and b"pdfuaid" not in raw
    with pikepdf.open(two.pdf) as pdf:
        assert "/Metadata" not in pdf.Root
    assert "tagged, not validated as PDF/A" in " ".join(pages_of(two.pdf))


def test_the_result_and_the_table_are_attached(two):
    folder = two.html.parent
    with pikepdf.open(two.pdf) as pdf:
        assert set(pdf.attachments) == {"result.json", "examples.parquet"}
        assert pdf.attachments["result.json"].get_file().read_bytes() == (folder / "result.json").read_bytes()
        described = {str(file.F): (str(file.AFRelationship), str(file.EF.F.Subtype)) for file in pdf.Root.AF}
    assert described == {
        "result.json": ("/Data", "/application/json"),
        "examples.parquet": ("/Data", "/application/vnd.apache.parquet"),
    }


def test_bookmarks_follow_the_sections(two):
    with pikepdf.open(two.pdf) as pdf, pdf.open_outline() as outline:
        titles = [item.title for item in outline.root]
        below = [child.title for child in outline.root[titles.index("5 Results")].children]
    assert titles[:3] == ["Summary", "Contents", "1 Record"] and titles[-1] == "12 Metric definitions"
    assert below[0] == "5.1 Accuracy under attack"


def test_every_figure_has_its_alternative_text(two):
    found = []

    def walk(node):
        if isinstance(node, pikepdf.Dictionary):
            if node.get("/S") == "/Figure":
                found.append(str(node.get("/Alt", "")))
            kids = node.get("/K")
            for kid in kids if isinstance(kids, pikepdf.Array) else [kids]:
                walk(kid)

    with pikepdf.open(two.pdf) as pdf:
        walk(pdf.Root.StructTreeRoot)
    # Four figures of section 5, two rankings, three images for each of 24 failures.
    assert len(found) == 4 + 2 + 3 * 24 and all(found)


def test_only_the_reports_own_fonts_are_embedded(two):
    with pikepdf.open(two.pdf) as pdf:
        fonts = {str(font.BaseFont).split("+")[1] for page in pdf.pages for font in page.Resources.Font.values()}
    assert fonts == {"IBM-Plex-Sans", "IBM-Plex-Sans-Semi-Bold", "IBM-Plex-Mono"}


def test_pages_are_numbered_and_carry_model_and_verdict(two):
    pages = [page for page in pages_of(two.pdf) if page]
    for number, text in enumerate(pages, start=1):
        assert f"{number} of {len(pages)}" in text
        assert ("Verdicts: 1 FAIL, 1 PASS" in text) == (number > 1)


@pytest.mark.parametrize(
    "options",
    [
        {"models": 1},
        {"models": 3, "reference": True},
        {"models": 8},
        {"models": 1, "judged": False},
        {"models": 2, "names": (HOSTILE, "w" * 300)},
    ],
    ids=["one", "three", "eight", "not judged", "hostile"],
)
def test_page_one_is_one_sheet(tmp_path, options):
    rendered = report.render(write_folder(tmp_path, sample(**options)))
    pages = pages_of(rendered.pdf)
    for part in (
        "Robustness audit report",
        "What to worry about",
        "What to do next",
        "Reviewed by",
        "The tool measures; a person decides.",
    ):
        assert part in pages[0]
    assert ("NOT JUDGED" if options.get("judged") is False else "FAIL") in pages[0]
    assert pages[1].find("Contents") >= 0 and "Reviewed by" not in pages[1]
    assert rendered.pdf.stat().st_size < 10_000_000


def test_page_one_stays_one_sheet_with_many_long_worries(tmp_path):
    result = sample(models=1)
    model = result.models[0]
    long = "this goes on and on about what was found in the images of the sample " * 9
    checks = tuple(replace(check, status="warn", found=long, do=long) for check in model.checks)
    scores = tuple(
        replace(score, outcome=r.NotApplicable(because=long[:250])) if index > 2 else score
        for index, score in enumerate(model.scores)
    )
    result = replace(result, models=(replace(model, checks=checks, scores=scores),))
    pages = pages_of(report.render(write_folder(tmp_path, result)).pdf)
    assert "The tool measures; a person decides." in pages[0] and "Contents" in pages[1]


def test_the_same_result_gives_the_same_bytes(two, tmp_path):
    again = report.render(write_folder(tmp_path, sample(models=2)))
    assert again.pdf.read_bytes() == two.pdf.read_bytes()


def test_nothing_but_data_is_fetched(tmp_path):
    from datetime import UTC, datetime

    from audit.errors import SinkError
    from audit.sinks import pdf

    (tmp_path / "local.png").write_bytes(b"")
    page = '<html lang="en"><title>t</title><img alt="" src="{}">'
    for address in ((tmp_path / "local.png").as_uri(), "http://127.0.0.1:9/x.png"):
        with pytest.raises(SinkError, match="the PDF was not made"):
            pdf.write(
                page.format(address), tmp_path / "x.pdf", attachments=[], created=datetime(2026, 1, 1, tzinfo=UTC), identifier="x"
            )
        assert not (tmp_path / "x.pdf").exists() and not (tmp_path / "x.pdf.partial").exists()


@pytest.mark.parametrize(
    ("error", "advice"),
    [(OSError("cannot load library 'libpango-1.0-0'"), "apt-get install"), (ImportError(name="weasyprint"), "pip install")],
)
def test_without_weasyprint_there_is_still_the_html(tmp_path, monkeypatch, error, advice):
    folder = write_folder(tmp_path, sample(models=1))
    (folder / "report.pdf").write_bytes(b"of an earlier result")
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.split(".")[0] == "weasyprint":
            raise error
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    rendered = report.render(folder)
    assert rendered.pdf is None and advice in rendered.pdf_problem and "\n" not in rendered.pdf_problem
    assert rendered.html.stat().st_size > 100_000 and not (folder / "report.pdf").exists()
