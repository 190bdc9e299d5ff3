"""Models with masked gradients are found out, each by the check that should, on page one; ordinary models raise none."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
import small_arms
import torch
from few_metrics import leave_out_costly_metrics
from masked_models import ColdSoftmax, RandomResizing, RoundedInputs, k_winners_cnn

from audit import data, pipeline, profiles
from audit.cli.demo_models import fit, train
from audit.models.composed import black_box
from audit.models.torch_module import wrap
from audit.pipeline import AuditRequest, run_audit
from audit.settings import Settings
from audit.sinks import report
from audit.sinks.mlflow_content import model_content
from audit.vocabulary import Norm, Threat

SMALL = replace(
    profiles.profile("quick"),
    linf=small_arms.pgd(margin=10),
    l2=small_arms.pgd(margin=10),
    score_based=small_arms.queries(4, 100),
    reference_steps=5,
    reference_queries=20,
    curve=(1.0,),
    curve_queries=20,
    fisher_samples=10,
    fisher_directions=4,
    corruption_samples=8,
    sequence_samples=3,
)
ESCALATION = {norm: (*small_arms.pgd(margin=20), *small_arms.queries(1, 120)[1:][: norm is Norm.LINF]) for norm in Norm}


@pytest.fixture(scope="module")
def digits():
    found = data.load("digits:train")
    return found.images(range(len(found.labels))), found.labels


@pytest.fixture(scope="module")
def standard(digits):
    return train(*digits, epochs=8, adversarial_threat=None, seed=0)


@pytest.fixture
def audited(tmp_path, monkeypatch):
    """Audits a network, and gives its result and the folder."""

    def run(network, *threats, samples=130, only_asked=False, every_metric=False, **options):
        def load(ref, **_):
            classifier = wrap(network, image_shape=(1, 8, 8), device="cpu")
            return black_box(classifier, "it can only be asked here") if only_asked else classifier

        monkeypatch.setattr(pipeline.models, "load", load)
        monkeypatch.setattr(profiles, "ESCALATION", ESCALATION)
        if not every_metric:
            leave_out_costly_metrics(monkeypatch)
        settings = Settings(profile=SMALL, threats=tuple(map(Threat.parse, threats)), samples=samples)
        request = AuditRequest(models=("models:/digits/1",), data="digits:test", settings=settings, out=tmp_path / "out", **options)
        return run_audit(request).result, tmp_path / "out"

    return run


def statuses(result) -> dict[int, str]:
    return {check.number: check.status for check in result.models[0].checks}


def raised(result) -> set[int]:
    return {number for number, status in statuses(result).items() if status == "warn"}


# So easy are the digits that most answers are above 0.999: check 15 tells that, and it is no mask.
CONFIDENT = {15}


def page_one(folder) -> str:
    report.render(folder, pdf=False)
    text = (folder / "report.html").read_text(encoding="utf-8")
    (front,) = re.findall(r'<header class="front">.*?</header>', text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", front)).split())


# Per masked model the checks that must be raised at linf:0.05.
MASKED = {
    "rounded": (RoundedInputs, {3, 7, 9}),
    "cold": (ColdSoftmax, {3, 7, 9, 15}),
    "random": (RandomResizing, {10}),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_masked_model_is_found_out_and_named_on_page_one(audited, standard, name):
    mask, expected = MASKED[name]
    result, folder = audited(mask(standard).eval(), "linf:0.05")
    found = raised(result)
    assert expected <= found
    front = page_one(folder)
    for number in found:
        assert re.search(rf"[Cc]heck {number}\b", front), (number, front)
    model = result.models[0]
    tags = model_content(result, 0).tags
    assert tags["audit.checks"] == f"raised: {', '.join(map(str, sorted(found)))}"
    assert {tag for tag in tags if tag.startswith("audit.check.")} == {f"audit.check.{number}" for number in found}
    white = [cascade for cascade in model.cascades if cascade.arm == "white-box"]
    if name == "random":
        assert not white and all(statuses(result)[number] == "not_run" for number in range(2, 9))
        assert "at random" in model.skipped["probe/linf_0.05"]
    else:
        assert "gradients are zero" in white[0].escalated and white[0].stages[-1].attack == "Square-120"
        assert "Gradients were not believed" in front


def test_k_winners_are_found_out_by_queries(audited, digits):
    network = fit(k_winners_cnn(), *digits, epochs=8, adversarial_threat=None, seed=0)
    result, folder = audited(network, "linf:0.05", samples=200)
    assert 7 in raised(result) and 9 not in raised(result)
    assert "check 7" in page_one(folder).lower()
    (reasons,) = [cascade.escalated for cascade in result.models[0].cascades if cascade.arm == "white-box"]
    assert "along the gradient changes the margin by" in reasons and "Square-200 breaks" in reasons


@pytest.mark.parametrize("training", ["standard", "adversarial"])
def test_ordinary_models_raise_none(audited, digits, standard, training):
    network = standard if training == "standard" else train(*digits, epochs=8, adversarial_threat=Threat.parse("linf:0.15"), seed=0)
    result, folder = audited(network, "linf:0.05", "linf:0.15", "l2:0.5")
    found = raised(result)
    assert found <= CONFIDENT and "not_run" not in statuses(result).values()
    assert set(re.findall(r"[Cc]hecks? (\d+)", page_one(folder))) == set(map(str, found))


def test_fewer_examples_leave_out_what_needs_a_hundred(audited, standard):
    result, _ = audited(standard, "linf:0.05", samples=60)
    found = statuses(result)
    assert found[5] == found[6] == "not_run" and found[2] == found[3] == found[4] == found[7] == found[9] == "pass"


def test_epsilon_zero_and_one_have_defined_outcomes(audited, standard):
    result, _ = audited(standard, "linf:0", samples=60, every_metric=True)
    assert all(statuses(result)[number] == "not_run" for number in (2, 3, 4, 5, 6)) and raised(result) <= CONFIDENT
    result, _ = audited(standard, "linf:1", samples=60, every_metric=True)
    assert statuses(result)[2] == statuses(result)[3] == "pass"


def test_a_model_that_can_only_be_asked_is_probed_by_asking(audited, standard):
    result, _ = audited(standard, "linf:0.05", samples=60, only_asked=True)
    found = {check.number: check for check in result.models[0].checks}
    assert found[2].status == found[3].status == "pass" and "Square-200" in found[2].found
    for number in (4, 5, 6):
        assert (found[number].status, found[number].found) == ("not_run", "it can only be asked here")
    assert raised(result) <= CONFIDENT


class Scaled(torch.nn.Module):
    def __init__(self, network, factor):
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x):
        return self.factor * self.network(x)


def test_larger_logits_change_no_headline_and_are_told(audited, standard):
    """The rescaling trap through a whole audit: outputs that lie are said, and lambda at the fitted temperature stays."""
    headline, raw, fitted = {}, {}, {}
    for factor in (0.1, 1.0, 10.0):
        result, folder = audited(Scaled(standard, factor).eval(), "linf:0.05", samples=60)
        model = result.models[0]
        headline[factor] = model.metric("fisher_spectral_norm/median").outcome.value
        raw[factor] = model.metric("fisher_spectral_norm_raw/median").outcome
        fitted[factor] = model.metric("fitted_temperature").outcome.value
        if factor != 1:
            assert 15 in raised(result) and re.search(r"[Cc]hecks? 15\b", page_one(folder))
    assert headline[0.1] == pytest.approx(headline[1.0], rel=5e-4) and headline[10.0] == pytest.approx(headline[1.0], rel=5e-4)
    assert fitted[10.0] == pytest.approx(100 * fitted[0.1], rel=1e-3)
    # The raw value of the same decisions: undefined where outputs are saturated, or far from the other's.
    small, large = raw[0.1], raw[10.0]
    assert large.kind == "undefined" or not 0.2 < large.value / small.value < 5


class Constant(torch.nn.Module):
    def forward(self, x):
        return torch.eye(10)[3].expand(len(x), 10) + 0 * x.flatten(1)[:, :1]


def test_a_constant_model_has_no_gradients_and_no_robustness(audited):
    result, _ = audited(Constant(), "linf:0.05", samples=60, every_metric=True, allow_chance=True)
    found = {check.number: check for check in result.models[0].checks}
    assert found[1].status == found[9].status == "warn" and "100.0%" in found[9].found
    # It is right on one class only.
    assert found[3].status == "not_run" and "one label" in found[3].found
    assert "gradients are zero" in result.models[0].cascades[0].escalated
