"""The most sensitive images in the report: pictures in cards, or a table of those that have none."""

from __future__ import annotations

from dataclasses import replace

from report_page import page
from sample_result import sample

from audit import result as r
from audit.sinks.report_advice import worries_of


def example(number: int, *, images: bool = True, status: str = "exact") -> r.SensitiveExample:
    # The pictures are those of the sample's failures: the report takes what it finds under the name.
    return r.SensitiveExample(
        example_id=f"test-{number}",
        label="zero",
        predicted="eight" if number else "zero",
        confidence=0.25 if number else None,
        lambda_max=1.5e8 / (number + 1),
        effective_rank=2.25,
        status=status,
        clean_image=f"failures/0_{number}_clean.png" if images else None,
        direction_image=f"failures/0_{number}_adversarial.png" if images else None,
    )


def having(examples, **options) -> r.AuditResult:
    result = sample(models=1, **options)
    return replace(result, models=(replace(result.models[0], sensitive_examples=tuple(examples)),))


def test_each_has_its_image_and_its_direction(tmp_path):
    result = having(example(number) for number in range(3))
    _, parsed = page(tmp_path, result)
    images = [attributes for tag, attributes in parsed.tags if tag == "img"]
    assert len(images) == 2 * 3 + 3 * len(result.models[0].failures)
    assert "zero , answered right λ 1.50 × 10 8 (exact)" in parsed.text
    assert "taken for eight 0.25" in parsed.text and "(exact), effective rank 2.25. Image test-1" in parsed.text
    assert "it is turned so that its largest entry is light" in parsed.text and "Without images" not in parsed.text


def test_a_model_that_only_raw_outputs_flatter_is_named():
    one, other = sample(models=2).models

    def with_values(model, fitted, raw):
        return replace(
            model,
            metrics=tuple(
                replace(
                    model.metrics[0],
                    key=key,
                    outcome=r.Measured(
                        value=value, samples=9, interval=r.Interval(low=value * 0.9, high=value * 1.1, method="by hand")
                    ),
                )
                for key, value in (("fisher_spectral_norm/median", fitted), ("fisher_spectral_norm_raw/median", raw))
            ),
        )

    subjects = [(with_values(one, 2.0, 0.1), "version 1"), (with_values(other, 1.0, 0.2), "version 2")]
    found = [worry for worry in worries_of(subjects, sample(models=2)) if worry.title == "Raw sensitivity misleads"]
    assert len(found) == 1 and "version 1" in found[0].text and "less sensitive than version 2" in found[0].text
    agreeing = [(with_values(one, 2.0, 0.3), "version 1"), subjects[1]]
    assert not [worry for worry in worries_of(agreeing, sample(models=2)) if worry.title == "Raw sensitivity misleads"]


def test_estimates_come_as_a_table(tmp_path):
    _, parsed = page(tmp_path, having([example(0, images=False, status="estimated")]))
    assert "Without images: the answers to queries have no direction" in parsed.text
    assert "test-0 zero zero no scores" in parsed.text and "2.25 estimated from queries" in parsed.text


def test_images_left_out_are_said_to_be(tmp_path):
    _, parsed = page(tmp_path, having([example(0, images=False)], images=False))
    assert not [tag for tag, _ in parsed.tags if tag == "img"]
    assert parsed.text.count("left out of all outputs on request") == 3
