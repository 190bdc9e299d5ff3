"""Result files of every schema version ever released load for ever.

`golden/v1` is a real audit (`audit demo --samples 30`) of the first schema, its platform shortened. A new schema version adds a
folder `golden/v2` of its own, made by the first release that writes it; no old folder is ever changed, and these tests read both.
"""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from audit import gate, records
from audit.errors import InputError
from audit.policy import load_policy
from audit.result import SCHEMA_VERSION, Measured
from audit.sinks import report

GOLDEN = sorted((Path(__file__).parent / "golden").iterdir(), key=lambda folder: int(folder.name[1:]))
by_version = pytest.mark.parametrize("golden", GOLDEN, ids=lambda folder: folder.name)


def test_every_schema_version_has_its_golden_folder() -> None:
    assert [folder.name for folder in GOLDEN] == [f"v{number}" for number in range(1, SCHEMA_VERSION + 1)]


@by_version
def test_it_is_small_and_names_no_machine(golden: Path) -> None:
    assert sum(file.stat().st_size for file in golden.iterdir()) < 300_000
    text = (golden / "result.json").read_text(encoding="utf-8")
    assert json.loads(text)["schema_version"] == int(golden.name[1:])
    assert not re.search(r"(?<![\w:.])/(?:home|root|tmp|work|opt|Users)/|file://|https?://(?!arxiv)", text)


@by_version
def test_it_loads_with_values_that_its_table_gives(golden: Path) -> None:
    first, second = records.audits(str(golden))
    assert (first.label, second.label) == ("digits-classifier, version\u00a01", "digits-classifier, version\u00a02")
    for audited in (first, second):
        assert len(audited.ids) == len(set(audited.ids.tolist())) == 30 and audited.no_table is None
        for key, name in (
            ("clean_accuracy", "correct"),
            ("adversarial_accuracy_white_box/linf_0.15", "white_box_state/linf_0.15"),
            ("adversarial_accuracy_black_box/linf_0.15", "black_box_state/linf_0.15"),
        ):
            record, column = audited.model.metric(key), audited.columns[name]
            assert record is not None and isinstance(record.outcome, Measured)
            assert column.known.all() and np.isclose(column.values.mean(), record.outcome.value, atol=1e-12)
    values = [audited.model.metric("adversarial_accuracy_white_box/linf_0.15").outcome.value for audited in (first, second)]  # type: ignore[union-attr]
    assert values == pytest.approx([5 / 30, 20 / 30])


@by_version
def test_it_renders(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden, tmp_path / "copy")
    text = report.render(tmp_path / "copy", pdf=False).html.read_text(encoding="utf-8")
    assert "digits-classifier" in text and "16.7" in text and "66.7" in text


@by_version
def test_the_minimal_policy_judges_it(golden: Path) -> None:
    first, second = records.audits(str(golden))
    verdicts = [
        gate.judge(
            audited,
            load_policy(None),
            references={},
            now=datetime(2026, 12, 1, tzinfo=UTC),
            current=gate.CurrentModel.of(audited.model.identity),
        )
        for audited in (first, second)
    ]
    # 5 of 30 under attack cannot be told from guessing (chance is the largest class's share); 20 of 30 can.
    assert [verdict.status for verdict in verdicts] == ["undecided", "pass"]


@by_version
def test_fields_of_a_later_release_are_passed_over(golden: Path, tmp_path: Path) -> None:
    """A release may add fields within a schema version; this one reads the file without them, and still refuses what is missing."""
    shutil.copytree(golden, tmp_path / "copy")
    file = tmp_path / "copy" / "result.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["weather"] = "fine"
    document["models"][0]["identity"]["colour"] = {"of": "money"}
    document["models"][0]["metrics"][0]["outcome"]["mood"] = [1]
    file.write_text(json.dumps(document), encoding="utf-8")
    assert records.find(str(tmp_path / "copy"))[0] == records.find(str(golden))[0]
    del document["models"][0]["identity"]["digest"]
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match=r"does not keep schema version 1: models\.0\.identity\.digest"):
        records.find(str(tmp_path / "copy"))
