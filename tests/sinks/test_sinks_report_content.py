"""The HTML report: says everything it promises, in the promised words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from report_page import Page, page
from sample_result import CLASSES, KEY, sample, write_folder

from audit import result as r
from audit.sinks import report


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


def test_a_query_only_model_shows_its_estimates_and_says_so(tmp_path):
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet as pq

    folder = write_folder(tmp_path, sample(models=2))
    table = pq.read_table(folder / r.TABLE_FILE)
    second = pa.array([model == 1 for model in table["model"].to_pylist()])
    for name in ("T", "raw"):
        exact = table[f"lambda_max_{name}"]
        nothing = pa.nulls(len(exact), pa.float64())
        table = table.append_column(f"lambda_estimate_{name}", pa.compute.if_else(second, exact, nothing))
        place = table.schema.get_field_index(f"lambda_max_{name}")
        table = table.set_column(place, f"lambda_max_{name}", pa.compute.if_else(second, nothing, exact))
    pq.write_table(table, folder / r.TABLE_FILE)
    parsed = Page(report.render(folder, pdf=False).html.read_text(encoding="utf-8"))
    assert parsed.text.count("Estimated from queries: version 2.") == 2
    # Exact values are not held against estimates.
    assert "is the more sensitive on" not in parsed.text


def test_the_reference_is_never_called_audited(tmp_path):
    text, parsed = page(tmp_path, sample(models=3, reference=True))
    assert "reference, not audited itself" in parsed.text
    assert "Version 3 meets" not in parsed.text and "Version 3 does not meet" not in parsed.text
    assert text.count('class="classes other"') == 1


def test_a_model_that_attacks_break_is_worrying_without_a_policy_too(tmp_path):
    _, parsed = page(tmp_path / "a", sample(models=1, judged=False))
    # 0.118 / 0.972 of 486 right answers with its Wilson interval: 9.6 to 15.3.
    assert "Attacks break most right answers. L∞ 8/255 leaves 12 % (10 to 15) of 486 right answers standing." in parsed.text
    result = sample(models=2, judged=False)
    robust = replace(result, models=result.models[1:], rankings=())
    _, parsed = page(tmp_path / "b", robust)
    assert "Attacks break most" not in parsed.text


def test_a_model_that_no_ranking_takes_in_is_named_with_the_reason(tmp_path):
    result = sample(models=3)
    ranking = result.rankings[0]
    gone = r.LeftOut(model=2, because="ONNX Runtime has no backward pass")
    ranking = replace(ranking, rows=(), tests=(), smallest_detectable=None, left_out=(gone,))
    _, parsed = page(tmp_path, replace(result, rankings=(ranking, *result.rankings[1:])))
    label = result.models[2].identity.label.rpartition("version")[2].strip()
    assert re.search(rf"version\s{label} is not ranked, because ONNX Runtime has no backward pass\.", parsed.text)
