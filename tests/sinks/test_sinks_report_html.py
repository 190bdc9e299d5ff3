"""The HTML report: well-formed, inert, self-contained, the same every time, and plain about input it cannot read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_page import page
from sample_result import HOSTILE, sample, write_folder

from audit import result as r
from audit.errors import InputError, SinkError
from audit.sinks import report
from audit.text import printable

VARIANTS = {
    "one model": {"models": 1},
    "one model and a reference": {"models": 2, "reference": True},
    "two versions": {"models": 2},
    "three with a reference": {"models": 3, "reference": True},
    "eight models": {"models": 8},
    "no policy, no images": {"models": 1, "judged": False, "images": False},
    "no failures": {"models": 2, "failures": False},
    "hostile names": {"models": 2, "names": (HOSTILE, HOSTILE[::-1])},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_every_variant_is_well_formed_and_self_contained(tmp_path, options):
    text, parsed = page(tmp_path, sample(**options))
    assert not parsed.faults and not parsed.open
    assert "{{" not in text.split("<body>")[1] and "{%" not in text.split("<body>")[1]
    # The one address is the name of the SVG language, which nobody fetches.
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= {"http://www.w3.org/2000/svg"}
    for _, attributes in parsed.tags:
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/png;base64,", "#")), value
    assert [line for line in re.findall(r"url\((.{0,12})", text) if not line.startswith(("data:", "#"))] == []
    assert len(text.encode()) < 8_000_000
    ids = [attributes["id"] for _, attributes in parsed.tags if attributes.get("id")]
    assert len(ids) == len(set(ids)), sorted(i for i in ids if ids.count(i) > 1)
    assert {attributes["href"][1:] for tag, attributes in parsed.tags if tag == "a"} <= set(ids)


def test_headings_go_down_one_level_at_a_time(tmp_path):
    _, parsed = page(tmp_path, sample())
    assert parsed.headings[0] == 1 and parsed.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(parsed.headings, parsed.headings[1:], strict=False))


def test_hostile_names_are_inert(tmp_path):
    text, parsed = page(tmp_path, sample(models=2, names=(HOSTILE, "b" * 400)))
    body = text.split("<body>")[1]
    assert body.count("<script>") == 1 and "alert(1)</script>" not in body
    assert "&lt;script&gt;" in body
    for character in ("\x1b", "\u202e", "\u2066"):
        assert character not in text
    assert printable(HOSTILE)[:40] in parsed.text
    assert "שלום" in parsed.text and "模型" in parsed.text


def test_a_name_cannot_leave_the_print_footer(tmp_path):
    result = replace(sample(models=1), id='"; } body { display: none } </style><script>x()</script>')
    text, parsed = page(tmp_path, result)
    assert "x()</script>" not in text and "display: none }" not in text.split("@bottom-left { content:")[-1].split("\n")[0]
    assert not parsed.faults


def test_only_the_gallery_script_may_run(tmp_path):
    import base64
    import hashlib

    text, _ = page(tmp_path, sample())
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and "default-src 'none'" in text


def test_the_same_result_gives_the_same_bytes(tmp_path):
    first, _ = page(tmp_path / "a", sample())
    second, _ = page(tmp_path / "b", sample())
    assert first == second


def test_it_reads_neither_the_clock_nor_the_working_folder(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "result", sample())
    first = report.render(folder, pdf=False).html.read_bytes()
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    relative = Path("..") / "result"
    assert report.render(relative, pdf=False).html.read_bytes() == first
    assert b"28\xc2\xa0November\xc2\xa02026" in first


def test_an_image_path_cannot_leave_the_folder(tmp_path):
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "secret.png")
    result = sample(models=1)
    failure = replace(result.models[0].failures[0], clean_image="failures/../../secret.png", adversarial_image="../secret.png")
    changed = replace(result, models=(replace(result.models[0], failures=(failure,)),))
    _, parsed = page(tmp_path / "folder", changed)
    assert not [tag for tag, _ in parsed.tags if tag == "img"]
    assert "are not in the result folder" in parsed.text


def test_large_images_stay_within_the_budget(tmp_path):
    text, parsed = page(tmp_path, sample(models=2), side=224)
    assert len(text.encode()) < 8_000_000
    assert "Shown reduced from 224 × 224 pixels" in parsed.text


def test_a_user_can_replace_the_clause_map(tmp_path):
    folder = write_folder(tmp_path / "r", sample(models=1))
    own = tmp_path / "own.toml"
    own.write_text('[[clause]]\nsource = "House rule 7"\nasks = "care"\nevidence = "this"\nsections = ["data"]\n', encoding="utf-8")
    text = report.render(folder, pdf=False, clause_map=own).html.read_text(encoding="utf-8")
    assert "House rule 7" in text and "EU AI Act" not in text
    for wrong in (
        "nothing = 1",
        "[[clause]]\nsource = 1",
        '[[clause]]\nsource="a"\nasks="b"\nevidence="c"\nsections=["nowhere"]',
        "= =",
    ):
        own.write_text(wrong, encoding="utf-8")
        with pytest.raises(InputError, match=r"own\.toml"):
            report.render(folder, pdf=False, clause_map=own)


def test_a_folder_without_a_result_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"there is no result\.json in"):
        report.render(tmp_path)
    (tmp_path / r.RESULT_FILE).write_text('{"id": 3}', encoding="utf-8")
    with pytest.raises(InputError, match="not an audit result: it has no schema_version"):
        report.render(tmp_path)


def test_a_newer_schema_is_refused(tmp_path):
    write_folder(tmp_path, replace(sample(models=1), schema_version=r.SCHEMA_VERSION + 1))
    with pytest.raises(InputError, match=r"schema version 2, and this version of the tool reads up to 1; upgrade it"):
        report.render(tmp_path, pdf=False)


def test_a_report_that_cannot_be_written_is_a_sink_error(tmp_path):
    folder = write_folder(tmp_path, sample(models=1))
    (folder / "report.html").mkdir()
    with pytest.raises(SinkError, match="cannot be written"):
        report.render(folder, pdf=False)
