import pickle
from dataclasses import replace

import numpy as np
import pytest
import small_run
import torch

from audit.collect import COLLECTORS
from audit.errors import ModelError
from audit.evidence import Evidence, EvidenceStore, Predictions, Temperature
from audit.fisher.exact import gram
from audit.fisher.margin import linearised_margins
from audit.fisher.spectrum import spectrum
from audit.models.torch_module import wrap
from audit.vocabulary import Threat


@pytest.fixture
def run():
    return small_run.small_run()


@pytest.fixture
def sample():
    return small_run.sample()


@pytest.fixture
def settings(run):
    return run.settings


def test_reference_attack_spends_its_budget_on_clean_correct_rows_only(run, sample):
    store = run.everything(sample)
    found, clean = store[run.key(Evidence.REFERENCE_ATTACK)], store[run.key(Evidence.PREDICTIONS)]
    assert found.attack == "PGD-6 margin" and (found.clean_correct == clean.correct).all() and (~clean.correct).any()
    assert (found.forward_passes == np.where(clean.correct, 9, 0)).all()
    assert (found.backward_passes == np.where(clean.correct, 6, 0)).all()
    wrong = ~clean.correct
    assert (found.adversarial_logits[wrong] == clean.logits[wrong]).all()
    assert (found.ssim[wrong] == 1).all() and (found.l2[wrong] == 0).all() and (found.psd[wrong] == 0).all()
    assert found.success.any() and (found.linf <= 0.03).all() and not found.outside.any()
    assert (found.linf[clean.correct] > 0.029).all() and (found.ssim[clean.correct] < 1).all()
    np.testing.assert_allclose(found.norm_l2, np.linalg.norm(sample.images.reshape(23, -1).astype(float), axis=1))


def test_at_epsilon_zero_nothing_changes(run, sample):
    run = replace(run, threat=Threat.parse("linf:0"))
    store = run.everything(sample)
    clean, found = store[run.key(Evidence.PREDICTIONS)], store[run.key(Evidence.REFERENCE_ATTACK)]
    assert not found.success.any() and (found.l0 == 0).all()
    for kind in (Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX):
        assert (store[run.key(kind)].robust == clean.correct).all()
    curve = store[run.key(Evidence.ACCURACY_EPSILON)]
    assert curve.epsilons == (0.0,) and (curve.robust[:, 0] == clean.correct).all()


def test_curve_is_monotone_and_meets_the_worst_case(run, sample):
    store = run.everything(sample)
    curve, worst = store[run.key(Evidence.ACCURACY_EPSILON)], store[run.key(Evidence.WORST_CASE_WHITE_BOX)]
    assert (np.diff(curve.robust.astype(int), axis=1) <= 0).all()
    assert (curve.robust[:, curve.epsilons.index(0.03)] == worst.robust).all()
    assert (curve.robust[:, 0] == worst.clean_correct).all() and curve.arm == "white-box"
    assert curve.robust[:, -1].sum() < curve.robust[:, 1].sum()


def test_fisher_rows_are_the_first_of_the_sample(run, sample, settings):
    store = run.everything(sample, size=5)
    white, estimate = store[run.key(Evidence.FISHER_SPECTRUM)], store[run.key(Evidence.FISHER_ESTIMATE)]
    assert white.positions.tolist() == estimate.positions.tolist() == list(range(7))
    assert white.gram.shape == (7, 4, 4) and estimate.directions == 12 and estimate.dimension == 64
    assert set(estimate.status) == {"measured"} and (estimate.queries == 2 * 12 + 3 * 16).all()
    clean = store[run.key(Evidence.PREDICTIONS)]
    assert (white.logits == clean.logits[:7]).all()
    assert (white.margin_linf[~clean.correct[:7]] == 0).all() and (white.margin_linf[clean.correct[:7]] > 0).all()


def test_query_only_with_all_directions_equals_white_box(run, sample, settings):
    every = replace(run, settings=replace(settings, profile=replace(settings.profile, fisher_directions=64)))
    store = every.everything(sample)
    white, estimate = store[run.key(Evidence.FISHER_SPECTRUM)], store[run.key(Evidence.FISHER_ESTIMATE)]
    temperature = store[run.key(Evidence.TEMPERATURE)].value
    assert (estimate.standard_error == 0).all()
    for t, largest, trace in (
        (temperature, estimate.lambda_max, estimate.trace),
        (1.0, estimate.lambda_max_raw, estimate.trace_raw),
    ):
        exact = spectrum(white.gram, white.logits, t)
        raw = "_raw" if t == 1.0 else ""
        for name, of_gram in (("lambda_max", exact[0]), ("trace", exact[1])):
            np.testing.assert_array_equal(getattr(white, name + raw), of_gram)
            assert (getattr(white, {"lambda_max": "residual", "trace": "trace_error"}[name] + raw) == 0).all()
        np.testing.assert_allclose(largest, exact[0], rtol=0.03)
        np.testing.assert_allclose(trace, exact[1], rtol=0.03)


def test_the_most_sensitive_images_come_with_their_top_direction(run, sample, settings):
    store = run.everything(sample)
    white = store[run.key(Evidence.FISHER_SPECTRUM)]
    assert [shown.position for shown in white.shown] == np.argsort(-white.lambda_max)[:6].tolist()
    top = white.shown[0]
    image = torch.from_numpy(top.clean)[None]
    assert (top.clean == sample.images[top.position]).all() and np.linalg.norm(top.direction) == pytest.approx(1, rel=1e-5)
    # The slope of the probabilities' square roots along it, squared, is the eigenvalue.
    step = 1e-3 * torch.from_numpy(top.direction)[None]
    roots = [(run.classifier.logits(image + s * step).double() / white.temperature).softmax(1).sqrt() for s in (1, -1)]
    found = float(((roots[0] - roots[1]) / 1e-3).square().sum())
    assert found == pytest.approx(white.lambda_max[top.position], rel=0.05)
    bare = replace(run, settings=replace(settings, keep_images=False))
    needed = {run.key(kind): store[run.key(kind)] for kind in (Evidence.PREDICTIONS, Evidence.TEMPERATURE)}
    assert bare.collect(Evidence.FISHER_SPECTRUM, sample, [slice(0, 23)], EvidenceStore(needed)).shown == ()


def test_many_classes_are_iterated_to_the_same_numbers(sample, settings):
    with torch.random.fork_rng():
        torch.manual_seed(4)
        network = torch.nn.Sequential(
            torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(384, 40)
        )
    classifier = wrap(network, image_shape=(1, 8, 8), device="cpu", block_rows=8)
    many = small_run.Run(classifier, settings, small_run.small_run().threat)
    logits, jacobian = classifier.jacobian(torch.from_numpy(sample.images))
    chunk = replace(sample, labels=np.where(np.arange(23) % 6 == 0, 3, logits.argmax(1).numpy()))
    clean = Predictions(positions=chunk.positions, ids=chunk.ids, labels=chunk.labels, logits=logits.double().numpy())
    fit = Temperature(value=0.5, loss_before=1.0, loss_after=0.9, at_limit=False)
    needed = EvidenceStore({many.key(Evidence.PREDICTIONS): clean, many.key(Evidence.TEMPERATURE): fit})
    found, whole = (
        many.collect(Evidence.FISHER_SPECTRUM, chunk, cuts, needed) for cuts in ([slice(0, 5), slice(5, 23)], [slice(0, 23)])
    )
    assert found.gram.shape == (7, 0, 0) and [len(each.shown) for each in (found, whole)] == [6, 6]
    for temperature, raw in ((0.5, ""), (1.0, "_raw")):
        largest, trace, _ = spectrum(gram(jacobian[:7]), clean.logits[:7], temperature)
        np.testing.assert_allclose(getattr(found, f"lambda_max{raw}"), largest, rtol=1e-3)
        np.testing.assert_allclose(getattr(found, f"trace{raw}"), trace, rtol=0.5)
        assert (getattr(found, f"residual{raw}") <= 1e-3 * largest).all() and (getattr(found, f"trace_error{raw}") > 0).all()
    margins = linearised_margins(clean.logits[:7], jacobian[:7], chunk.labels[:7])
    np.testing.assert_allclose(found.margin_linf, margins.linf, rtol=1e-4)
    np.testing.assert_allclose(found.margin_l1, margins.l1, rtol=1e-4)
    assert (whole.lambda_max == found.lambda_max).all() and (whole.trace == found.trace).all()


def test_chunks_beyond_the_fisher_samples_are_empty_with_the_right_shapes(run, sample):
    store = run.everything(sample)
    needed = {run.key(kind): store[run.key(kind)] for kind in (Evidence.PREDICTIONS, Evidence.TEMPERATURE)}
    late = run.collect(Evidence.FISHER_SPECTRUM, sample, [slice(10, 15)], EvidenceStore(needed))
    assert late.shown == () and late.residual.shape == late.margin_l1.shape == (0,)
    assert late.gram.shape == (0, 4, 4) and late.logits.shape == (0, 4) and late.zero_gradient.dtype == np.bool_
    late = run.collect(Evidence.FISHER_ESTIMATE, sample, [slice(10, 15)], EvidenceStore(needed))
    assert late.lambda_max.shape == (0,) and late.status.dtype.kind == "U" and late.queries.dtype == np.int64


def test_no_images_are_kept_when_told_so(run, sample, settings):
    kept = run.everything(sample)[run.key(Evidence.WORST_CASE_WHITE_BOX)]
    bare = replace(run, settings=replace(settings, keep_images=False)).everything(sample)[run.key(Evidence.WORST_CASE_WHITE_BOX)]
    assert kept.shown and bare.shown == () and (kept.broken_by == bare.broken_by).all()
    few = replace(run, settings=replace(settings, shown_failures=2)).everything(sample)[run.key(Evidence.WORST_CASE_WHITE_BOX)]
    assert [failure.position for failure in few.shown] == [failure.position for failure in kept.shown][:2]


def test_another_seed_is_another_search(run, sample, settings):
    first = run.everything(sample)[run.key(Evidence.REFERENCE_ATTACK)]
    second = replace(run, settings=replace(settings, seed=1)).everything(sample)[run.key(Evidence.REFERENCE_ATTACK)]
    assert (first.adversarial_logits != second.adversarial_logits).any()


def test_collectors_are_picklable():
    for collector in COLLECTORS.values():
        assert pickle.loads(pickle.dumps(collector)) == collector


def test_outputs_that_are_not_finite_are_refused(settings, sample):
    class Broken(torch.nn.Module):
        def forward(self, x):
            return torch.where((x[:, 0, 0, 0] > 0.5)[:, None], torch.nan, x.flatten(1)[:, :4])

    classifier = wrap(Broken(), image_shape=(1, 8, 8), device="cpu")
    with pytest.raises(ModelError, match="NaN"):
        COLLECTORS[Evidence.PREDICTIONS].collect(classifier, sample, settings, EvidenceStore(), None)
