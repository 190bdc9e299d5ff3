"""The layers that an attack moves most, as the report shows them."""

from __future__ import annotations

from dataclasses import replace

from report_page import page
from sample_result import sample

from audit.result import LayerRow


def test_the_report_shows_the_layers_that_an_attack_moves_most(tmp_path):
    rows = tuple(
        LayerRow(
            name=f"<block>.{place}",
            neurons=8,
            dead=place % 3,
            sensitivity=None if place == 4 else place / 100,
            sensitivity_absolute=0.5,
            uncertainty=2.25,
            uncertainty_absolute=0.125,
        )
        for place in range(23)
    )
    result = sample(models=1)
    result = replace(result, models=(replace(result.models[0], layers=rows),))
    text, parsed = page(tmp_path, result)
    assert "Inside the network, layer by layer" in parsed.text and "3 more stand in result.json" in parsed.text
    assert "&lt;block&gt;.22" in text and "&lt;block&gt;.4<" not in text and not parsed.faults
    assert "layer by layer" not in page(tmp_path, sample(models=1))[1].text
