"""The policy's bound on a score is drawn on the score's bar."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sample_result import sample, write_folder

from audit.result import RuleOutcome
from audit.sinks import report


def judged_with(models: int, limit: float | None):
    found = sample(models=models)
    rule = RuleOutcome(
        requirement="Score adversarial", status="fail", required="≥ 50", measured="12", because="b",
        kind="bound", key="score/adversarial/linf_8-255", limit=limit,
    )  # fmt: skip
    verdict = replace(found.models[0].verdict, rules=(rule,))
    return replace(found, models=(replace(found.models[0], verdict=verdict), *found.models[1:]))


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize(("limit", "place"), [(50.0, "50.0"), (-3.0, "0.0"), (250.0, "100.0"), (None, None)])
def test_a_bound_stands_on_the_bar_of_its_score(tmp_path, models, limit, place):
    folder = write_folder(tmp_path / "r", judged_with(models, limit))
    text = report.render(folder, pdf=False).html.read_text(encoding="utf-8")
    assert text.count('<i class="limit"') == (0 if limit is None else 1)
    assert ("the policy's bound" in text) == (limit is not None)
    if place is not None:
        assert f'<i class="limit" style="left:{place}%"></i>' in text
