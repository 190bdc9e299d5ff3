"""Section 9 of the report: the certified-accuracy curve, its numbers and what they mean."""

from __future__ import annotations

from dataclasses import replace

from report_page import page
from sample_result import sample

from audit.result import CertifiedCurve, CertifiedPoint, from_json, to_json

CURVE = CertifiedCurve(
    sigma=0.25,
    looked=100,
    drawn=1000,
    alpha=0.001,
    samples=40,
    abstained=0.125,
    average_radius=0.2125,
    right_in_noise=0.8,
    right_clean=0.975,
    points=tuple(
        CertifiedPoint(radius=step / 20, accuracy=0.8 - step / 20, low=0.7 - step / 20, high=0.9 - step / 20) for step in range(13)
    ),
)


def test_the_certified_curve_is_drawn_with_its_numbers(tmp_path):
    result = sample(models=2)
    result = replace(result, models=(replace(result.models[0], certified=CURVE), *result.models[1:]))
    assert from_json(to_json(result)) == result
    text, parsed = page(tmp_path, result)
    assert not parsed.faults
    section = text[text.index('id="certification"') :].partition("</section>")[0]
    assert section.count("<svg") == 1 and section.count('scope="row"') == 7
    words = " ".join(parsed.text.replace("\u00a0", " ").split())
    assert "abstains on 12.5 % of the images; the average certified radius is 0.212" in words
    assert "right on 80.0 % of the noisy copies and on 97.5 % of these images without noise" in words
    assert "40.0 % at 0.4" in section.replace("\u00a0", " ") and "30.0 to 50.0" in section
    assert "Not performed" in page(tmp_path, sample(models=1))[1].text
