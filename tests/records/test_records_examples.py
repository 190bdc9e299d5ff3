"""The per-example table: what counts as a number, what is known, and why there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import version_sample as sample

from audit import records
from audit.records.examples import read_table

STATE = "white_box_state/linf_8-255"


def written(folder: Path, columns: dict[str, list[object]]) -> Path:
    pq.write_table(pa.table(columns), folder / "examples.parquet")
    return folder


def test_words_flags_and_nulls_become_numbers_or_are_not_known(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "model": [1, 0, 1, 1, 1],
        "id": ["a", "a", "b", "模型", "d"],
        "correct": [True, False, False, None, True],
        "confidence": [0.5, 0.1, None, float("nan"), float("inf")],
        "label": [3, 1, None, 2, 9],
        STATE: ["survived", "survived", "broken", "unknown", None],
        "lambda_estimate_status": ["measured"] * 5,
        "white_box_broken_by/linf_8-255": [None, "survived", "broken", None, None],
    }
    ids, found = read_table(written(tmp_path, columns)).of(1)
    assert ids.tolist() == ["a", "b", "模型", "d"]
    assert set(found) == {"correct", "confidence", "label", STATE}
    expected = {
        "correct": ([1, 0, 0, 1], [True, True, False, True]),
        "confidence": ([0.5, 0, 0, 0], [True, False, False, False]),
        "label": ([3, 0, 2, 9], [True, False, True, True]),
        STATE: ([1, 0, 0, 0], [True, True, False, False]),
    }
    for name, (values, known) in expected.items():
        assert np.array_equal(found[name].values, values) and found[name].known.tolist() == known, name


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"id": ["a"]}, "has no column model"),
        ({"model": [0]}, "has no column id"),
        ({"model": ["zero"], "id": ["a"]}, "could not be read"),
    ],
)
def test_a_table_without_its_keys_says_so(tmp_path: Path, columns: dict[str, list[object]], problem: str) -> None:
    assert problem in (read_table(written(tmp_path, columns)).problem or "")


def test_a_table_that_does_not_fit_its_result_is_not_used(tmp_path: Path) -> None:
    clean, robust = sample.outcomes(40, 50), sample.outcomes(20, 50)
    folder = sample.folder(tmp_path / "one", sample.audited("1", clean, robust))
    (whole,) = records.audits(str(folder))
    assert whole.no_table is None and whole.columns["correct"].values.sum() == 40 and whole.columns[STATE].values.sum() == 20
    pq.write_table(pq.read_table(folder / "examples.parquet").slice(1), folder / "examples.parquet")
    (cut,) = records.audits(str(folder))
    assert cut.no_table == "examples.parquet has 49 rows of this model, and the result rests on 50 examples"
    (folder / "examples.parquet").unlink()
    (bare,) = records.audits(str(folder / "result.json"))
    assert bare.no_table == "the result folder has no examples.parquet"
    assert len(cut.ids) == len(bare.ids) == 0 and not cut.columns and not bare.columns


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux shows them")
def test_reading_leaves_no_thread_behind(tmp_path: Path) -> None:
    """A thread that still starts when the process ends aborts it, and the exit code is then no verdict."""
    table = pa.table({"model": [0] * 500, "id": [str(row) for row in range(500)], **{f"c{k}": [0.5] * 500 for k in range(20)}})
    pq.write_table(table, tmp_path / "examples.parquet")
    code = (
        "import os, sys, pathlib, numpy, pyarrow.parquet\n"
        "from audit.records.examples import read_table\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "assert read_table(pathlib.Path(sys.argv[1])).problem is None\n"
        "assert len(os.listdir('/proc/self/task')) == before\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
