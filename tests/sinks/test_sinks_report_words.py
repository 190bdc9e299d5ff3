"""How numbers, reasons and names are written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample_metrics import metrics
from sample_result import HOSTILE, sample

from audit import result as r
from audit.records.examples import read_table
from audit.sinks import report_words as words
from audit.sinks.report_gallery import gallery


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.4912, "1.49"),
        (-0.0341, "−0.0341"),
        (71.44, "71.4"),
        (12345.6, "12\u00a0346"),
        (2.1e-7, "2.10e−7"),
        (9.9e8, "9.90e8"),
    ],
)
def test_numbers(value, text):
    assert words.number(value) == text


def test_signs_are_true_minus_signs_and_zero_has_none():
    assert words.percent(-0.012) == "−1.2"
    assert words.percent(-0.0001) == "0.0"


@pytest.mark.parametrize(
    ("norm", "epsilon", "text"),
    [("linf", 0.0, "0"), ("linf", 8 / 255, "8/255"), ("linf", 2.5 / 255, "2.5/255"), ("l2", 0.5, "0.5")],
)
def test_budgets(norm, epsilon, text):
    assert words.epsilon_text(norm, epsilon) == text


@pytest.mark.parametrize("text", ["linf:8/255", "linf_8-255"])
def test_threats_are_read_in_both_spellings(text):
    assert words.threat_label(text) == "L∞\u00a08/255"


def test_an_unknown_threat_stays_as_it_is():
    assert words.threat_label("a patch of 3 pixels") == "a patch of 3 pixels"


def test_units_decide_how_a_value_is_written():
    written = {
        record.key: words.value_text(record, record.outcome)
        for record in metrics(0.972, 0.118, 1.0, False)
        if isinstance(record.outcome, r.Measured)
    }
    accuracy = written["adversarial_accuracy_white_box/linf_8-255"]
    assert (accuracy.value, accuracy.unit, accuracy.interval) == ("11.8", "%", "9.3 to 14.9")
    assert written["average_confidence_of_adversarial_class/linf_8-255"].value == "0.598"
    margin = written["linearised_margin/linf"]
    assert (margin.value, margin.unit, margin.interval) == ("6.5", "/255", "6.0 to 7.0")
    assert written["fitted_temperature"].interval is None
    assert written["fitted_temperature"].why_no_interval == "a fit: it describes this sample"


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (r.NotApplicable(because="there is no gradient."), "Not applicable, because there is no gradient."),
        (r.Undefined(because="because no attack succeeded"), "Undefined, because no attack succeeded."),
        (r.Failed(error="out of\x1b[31m memory"), "Failed, because out of memory."),
    ],
)
def test_reasons_are_whole_sentences(outcome, sentence):
    assert words.missing(outcome).sentence == sentence


def test_labels_are_short_and_unique():
    identities = [model.identity for model in sample(models=3).models]
    assert words.short_labels(identities) == ("version\u00a01", "version\u00a02", "version\u00a03")
    hostile = [model.identity for model in sample(models=2, names=(HOSTILE, HOSTILE)).models]
    labels = words.short_labels(hostile)
    assert len(set(labels)) == 2 and all(len(label) <= 24 and "\x1b" not in label for label in labels)


def test_failures_are_shared_evenly_among_models(tmp_path):
    result = sample(models=8)
    shown = gallery(result, words.short_labels([model.identity for model in result.models]), tmp_path)
    assert len(shown.cards) == 24 and {card.model for card in shown.cards} == set(range(8))
    assert shown.total == sum(model.failures_total for model in result.models)


def test_the_table_gives_columns_or_reasons(tmp_path):
    columns = {"model": [0, 0, 1], "lambda_max_T": [1.0, None, 3.0], "id": ["a", "b", "a"]}
    pq.write_table(pa.table(columns), tmp_path / "examples.parquet")
    table = read_table(tmp_path)
    assert np.array_equal(table.values("lambda_max_T", 0), [1.0])
    assert np.array_equal(table.aligned("lambda_max_T", 0), [1.0, np.nan], equal_nan=True)
    assert "no column margin_linf" in table.values("margin_linf", 0)
    (tmp_path / "examples.parquet").write_bytes(b"not a table")
    assert "could not be read" in read_table(tmp_path).values("x", 0)


def test_formulas_keep_their_case_and_words_begin_sentences():
    assert words.sentence("lambda_max of F(x)") == "lambda_max of F(x)."
    assert words.sentence("run a stronger profile") == "Run a stronger profile."
    assert words.sentence("23 % of the answers") == "23 % of the answers."


def test_a_text_without_end_is_cut():
    cut = words.clean("x" * 100_000)
    assert len(cut) == words.LONGEST
    assert cut.endswith("…")
