"""The HTML report: complete, inert, self-contained, the same every time."""

from __future__ import annotations

import html.parser
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sample_result import CLASSES, HOSTILE, KEY, sample, write_folder

from audit import result as r
from audit.errors import InputError, SinkError
from audit.sinks import report
from audit.text import printable

VOID = {"meta", "br", "img", "link", "hr", "input", "col", "use"}


class Page(html.parser.HTMLParser):
    """Checks nesting while it reads, and keeps what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.headings: list[int] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        # A list item or table cell may be closed implicitly in HTML; this report closes everything.
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self.open[-3:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"style", "script", "title"} & set(self.open[-1:]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())


def page(folder: Path, result: r.AuditResult, **options: object) -> tuple[str, Page]:
    write_folder(folder, result, **options)  # type: ignore[arg-type]
    text = report.render(folder, pdf=False).html.read_text(encoding="utf-8")
    return text, Page(text)


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


def test_sections_come_in_the_promised_order(tmp_path):
    text, _ = page(tmp_path, sample())
    order = re.findall(r'<section class="s[^"]*" id="(\w+)"', text)
    assert order == [
        "record", "policy", "use", "data", "results", "compare", "examples", "checks", "certification", "clauses",
        "reproducibility", "definitions",
    ]  # fmt: skip


@pytest.mark.parametrize("models", [1, 2, 5])
def test_every_metric_shows_its_value_or_its_reason(tmp_path, models):
    result = sample(models=models)
    text, parsed = page(tmp_path, result)
    for model in result.models:
        for record in model.metrics:
            assert f"<code>{record.key}</code>" in text
            outcome = record.outcome
            if isinstance(outcome, r.Undefined):
                assert f"Undefined , because {outcome.because}" in parsed.text
            elif isinstance(outcome, r.NotApplicable):
                assert f"Not applicable , because {outcome.because}" in parsed.text
            elif isinstance(outcome, r.Failed):
                assert f"Failed , because {outcome.error}" in parsed.text
            elif outcome.interval is None:
                assert f"no interval: {outcome.why_no_interval}" in parsed.text
    assert "nan" not in parsed.text.lower().split()


def test_robust_accuracy_is_shown_in_percent_with_norm_epsilon_and_n(tmp_path):
    result = sample(models=1)
    _, parsed = page(tmp_path, result)
    section = parsed.text[parsed.text.index("Under attack, L∞ 8/255") :]
    row = section[: section.index("Adversarial accuracy, black-box")]
    # 0.118 of 500 with its Wilson interval, worked by hand: 9.3 to 14.9.
    for part in ("Adversarial accuracy, white-box", "11.8", "%", "↑ higher", "9.3 to 14.9", "500"):
        assert part in row


def test_page_one_has_verdict_scores_worries_and_steps(tmp_path):
    _, parsed = page(tmp_path, sample(models=1))
    front = parsed.text[: parsed.text.index("Contents")]
    for part in (
        "FAIL", "does not meet the policy release-gate", "Overall score = weakest dimension: at most 12, undetermined",
        "Check 7", "And 1 more in section 5", "Do not release version 1", "Sign-off", "Reviewed by",
    ):  # fmt: skip
        assert part in front
    assert front.index("Under attack") < front.index("Clean accuracy") < front.index("Corruption")


def test_without_a_policy_nothing_is_judged(tmp_path):
    text, parsed = page(tmp_path, sample(models=1, judged=False))
    assert "Verdict: NOT JUDGED" in text
    assert "no policy was given" in parsed.text and "Write a policy" in parsed.text
    assert "does not meet" not in parsed.text


def test_a_passed_policy_is_not_called_a_proof(tmp_path):
    result = sample(models=2)
    passed = replace(result, models=(replace(result.models[1], verdict=result.models[1].verdict),), rankings=())
    _, parsed = page(tmp_path, passed)
    assert "PASS" in parsed.text and "a pass is not a proof" in parsed.text
    assert "compliant" not in parsed.text and "is robust" not in parsed.text


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


def test_failures_are_shown_as_images_with_a_true_difference(tmp_path):
    import base64
    import io

    import numpy as np
    from PIL import Image

    result = sample(models=1)
    _, parsed = page(tmp_path, result)
    images = [attributes for tag, attributes in parsed.tags if tag == "img"]
    assert len(images) == 3 * len(result.models[0].failures)
    decoded = [np.asarray(Image.open(io.BytesIO(base64.b64decode(image["src"].split(",")[1])))) for image in images[:3]]
    assert decoded[0].shape == (96, 96)
    factor = int(re.search(r"amplified (\d+) times", images[2]["alt"]).group(1))
    expected = np.clip(128 + factor * (decoded[1].astype(int) - decoded[0].astype(int)), 0, 255)
    assert np.array_equal(decoded[2], expected) and factor == 127 // 8
    assert "zero 0.97 → three 0.55" in parsed.text and "distance L∞ 8/255" in parsed.text


def test_images_left_out_are_said_to_be(tmp_path):
    _, parsed = page(tmp_path, sample(models=1, images=False))
    assert not [tag for tag, _ in parsed.tags if tag == "img"]
    assert parsed.text.count("left out of all outputs on request") == 2


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


def test_figures_without_their_column_say_so(tmp_path):
    _, parsed = page(tmp_path, sample(models=1), table=False)
    assert "no histogram for version 1, because the result folder has no examples.parquet" in parsed.text


def test_raised_checks_come_first(tmp_path):
    _, parsed = page(tmp_path, sample(models=1))
    section = parsed.text[parsed.text.index("Honesty checks Checks of the audit itself") :]
    numbers = [int(n) for n in re.findall(r"(?:WARN|NOT RUN|PASS) (\d+) ", section)]
    assert numbers == [7, 15, 6, 1, 2]
    assert "2 raised, 1 not run, 2 passed" in section


def test_findings_need_a_test(tmp_path):
    _, parsed = page(tmp_path / "a", sample(models=2))
    assert "At L∞ 8/255, version 2 keeps more images right than version 1" in parsed.text
    assert "Clean: the tests cannot tell these models apart" in parsed.text
    result = sample(models=2)
    equal = tuple(
        replace(ranking, tests=tuple(replace(t, adjusted_p_value=0.3) for t in ranking.tests)) for ranking in result.rankings
    )
    _, parsed = page(tmp_path / "b", replace(result, rankings=equal))
    assert "keeps more images right" not in parsed.text and "Accuracy under white-box attack" in parsed.text


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


def test_the_built_in_clause_map_names_every_promised_source(tmp_path):
    _, parsed = page(tmp_path, sample(models=1))
    for source in (
        "Art. 15(1)",
        "Art. 15(4)",
        "Art. 15(5)",
        "Annex IV 2(g)",
        "TR 24029-1",
        "24029-2",
        "24029-3 (draft)",
        "MEASURE 2.7",
        "100-2e2025",
        "SR 26-2",
    ):
        assert source in parsed.text
    assert "It states no conformity" in parsed.text


def test_a_folder_without_a_result_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"holds no readable result\.json"):
        report.render(tmp_path)
    (tmp_path / r.RESULT_FILE).write_text('{"id": 3}', encoding="utf-8")
    with pytest.raises(InputError, match="is not an audit result"):
        report.render(tmp_path)


def test_a_newer_schema_is_refused(tmp_path):
    write_folder(tmp_path, replace(sample(models=1), schema_version=r.SCHEMA_VERSION + 1))
    with pytest.raises(InputError, match="install a newer"):
        report.render(tmp_path, pdf=False)


def test_a_report_that_cannot_be_written_is_a_sink_error(tmp_path):
    folder = write_folder(tmp_path, sample(models=1))
    (folder / "report.html").mkdir()
    with pytest.raises(SinkError, match="cannot be written"):
        report.render(folder, pdf=False)


def test_many_classes_are_cut_and_counted(tmp_path):
    result = sample(models=1)
    rows = tuple(replace(result.models[0].classes[k % 10], name=f"class {k}", robust=k / 100) for k in range(80))
    _, parsed = page(tmp_path, replace(result, models=(replace(result.models[0], classes=rows),)))
    assert "50 more classes stand in result.json" in parsed.text
    assert "class 0 " in parsed.text and "class 79" not in parsed.text


def test_threat_models_use_the_words_of_nist(tmp_path):
    _, parsed = page(tmp_path, sample(models=2))
    section = parsed.text[parsed.text.index("Who the attacker is assumed to be") : parsed.text.index("What was not done")]
    for part in ("White-box, L∞ 8/255", "Integrity violation: untargeted evasion", "Testing data control", "version 1 : 58 of 500"):
        assert part in section
    assert "No adaptive attack was performed" in parsed.text
    assert "Poisoning, backdoors, privacy and model extraction were not examined" in parsed.text
    assert "no surrogate model was given" in parsed.text
    assert KEY not in section and CLASSES[0] in parsed.text
