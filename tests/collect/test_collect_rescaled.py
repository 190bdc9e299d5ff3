"""The trap: multiplying the logits changes no decision and moves the raw eigenvalue several hundredfold, but not the headline."""

from dataclasses import replace

import numpy as np
import pytest
import small_run
import torch
from evidence_by_hand import LINF

from audit.collect import fit_clean_temperature
from audit.errors import Undefined
from audit.evidence import Evidence, EvidenceStore
from audit.metrics import fisher, kl_radius
from audit.metrics.findings import RunFacts
from audit.metrics.honesty import CHECKS, check_record
from audit.models.torch_module import wrap


class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.network, self.factor = small_run.network(), factor

    def forward(self, x):
        return self.factor * self.network(x)


@pytest.fixture(scope="module")
def measured():
    found = {}
    for factor in (0.1, 1.0, 10.0):
        classifier = wrap(Scaled(factor), image_shape=(1, 8, 8), device="cpu", block_rows=8)
        run = replace(small_run.small_run(), classifier=classifier)
        run = replace(run, settings=replace(run.settings, profile=replace(run.settings.profile, fisher_samples=23)))
        sample = small_run.sample()
        store = EvidenceStore()
        for kind in (Evidence.PREDICTIONS, Evidence.TEMPERATURE, Evidence.FISHER_SPECTRUM, Evidence.FISHER_ESTIMATE):
            value = (
                fit_clean_temperature(store, None)
                if kind is Evidence.TEMPERATURE
                else run.collect(kind, sample, [slice(0, 23)], store)
            )
            store = store.with_item(run.key(kind), value)
        found[factor] = {key.kind.value: value for key, value in store.items()}, store
    return found


def of(evidence, function, **options):
    names = {name: evidence[name] for name in ("fisher_spectrum", "fisher_estimate", "temperature", "predictions")}
    return function(**{name: names[name] for name in function.parameters if name in names}, **options).value


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_the_headline_keeps_three_digits(measured, factor):
    base, scaled = measured[1.0][0], measured[factor][0]
    assert (base["predictions"].predicted == scaled["predictions"].predicted).all()
    assert scaled["temperature"].value == pytest.approx(factor * base["temperature"].value, rel=1e-4)
    for function, options in (
        (fisher.fisher_spectral_norm, {"variant": "median"}),
        (fisher.fisher_spectral_norm, {"variant": "p95"}),
        (fisher.fisher_trace, {}),
        (fisher.fisher_effective_rank, {}),
        (kl_radius.kl_radius, {}),
        (kl_radius.kl_radius_linf, {}),
    ):
        assert of(scaled, function, **options) == pytest.approx(of(base, function, **options), rel=5e-4), function.id
    queried = of(scaled, fisher.fisher_spectral_norm_estimate, variant="median")
    assert queried == pytest.approx(of(base, fisher.fisher_spectral_norm_estimate, variant="median"), rel=1e-2)
    np.testing.assert_allclose(scaled["fisher_spectrum"].margin_linf, base["fisher_spectrum"].margin_linf, rtol=1e-3)


def test_the_raw_value_moves_as_it_should_not(measured):
    raw = {}
    for factor, (evidence, _) in measured.items():
        try:
            raw[factor] = of(evidence, fisher.fisher_spectral_norm_raw, variant="median")
        except Undefined:
            raw[factor] = 0.0
    assert max(raw.values()) > 5 * min(raw.values())


def test_the_warning_is_raised_where_the_outputs_lie(measured):
    facts = RunFacts(
        threats=(LINF,), repeat_difference=0.0, outputs="logits (detected)", outputs_clear=True, device_asked="auto", device="cpu"
    )
    text, run = CHECKS[14]
    assert text.number == 15
    for factor in (0.1, 10.0):
        assert check_record(text, run(measured[factor][1], facts)).status == "warn", factor
