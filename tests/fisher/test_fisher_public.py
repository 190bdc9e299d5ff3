"""`audit.fisher_spectrum` and `audit.estimate_fisher_spectrum`: they agree, and what cannot be measured is an error or a status."""

import numpy as np
import pytest
import torch
from torch import nn

import audit
from audit.errors import InputError, ModelError
from audit.fisher.given import entropy_matched_temperature
from audit.fisher.spectrum import log_softmax


def network(classes=5, scale=2.0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(36, 24), nn.Tanh(), nn.Linear(24, classes))
    for parameter in layers[3].parameters():
        parameter.data.mul_(scale)
    return layers.eval()


def images(count=6):
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(1))


def predictor(model):
    def predict(x):
        with torch.no_grad():
            return model.double()(torch.from_numpy(x).double()).softmax(1)

    return predict


LABELS = np.array([0, 1, 2, 3, 4, 0])


@pytest.mark.parametrize("method", ["exact", "lanczos", "power"])
def test_the_methods_agree(method):
    model = network()
    asked = [parameter.requires_grad for parameter in model.parameters()]
    reference = audit.fisher_spectrum(model, images(), temperature=0.7)
    assert reference.method == "exact" and set(reference.status) == {"measured"}
    found = audit.fisher_spectrum(model, images().numpy(), temperature=0.7, method=method)
    np.testing.assert_allclose(found.lambda_max, reference.lambda_max, rtol=2e-3)
    low, high = found.interval
    assert (low <= reference.lambda_max * (1 + 1e-5)).all() and (reference.lambda_max <= high * (1 + 1e-5)).all()
    cosine = (found.direction * reference.direction).reshape(6, -1).sum(axis=1)
    assert found.direction.shape == (6, 1, 6, 6) and (np.abs(cosine) > 0.99).all()
    assert [parameter.requires_grad for parameter in model.parameters()] == asked
    np.testing.assert_allclose(reference.kl_radius(0.1) ** 2 * reference.lambda_max, 0.2)


def test_hutchinson_finds_the_trace_alone():
    exact, found = (audit.fisher_spectrum(network(), images(), temperature=1, method=each) for each in ("exact", "hutchinson"))
    assert np.isnan(found.lambda_max).all() and (np.abs(found.trace - exact.trace) <= 5 * found.trace_error).all()
    assert set(found.status) == {"measured"}


def test_many_classes_are_iterated():
    found = audit.fisher_spectrum(network(classes=40), images(), temperature=1)
    exact = audit.fisher_spectrum(network(classes=40), images(), temperature=1, method="exact")
    assert found.method == "lanczos" and (found.trace_error > 0).all()
    np.testing.assert_allclose(found.lambda_max, exact.lambda_max, rtol=1e-3)
    again = audit.fisher_spectrum(network(classes=40), images(), temperature=1)
    assert (again.trace == found.trace).all()


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_queries_agree_with_the_white_box(temperature):
    white = audit.fisher_spectrum(network(), images(), temperature=temperature)
    black = audit.estimate_fisher_spectrum(predictor(network()), images().double(), temperature=temperature)
    assert black.kind == "coordinate" and black.directions == 36 and white.temperature == pytest.approx(black.temperature, rel=1e-3)
    np.testing.assert_allclose(black.lambda_max, white.lambda_max, rtol=3e-3)
    np.testing.assert_allclose(black.trace, white.trace, rtol=3e-3)
    np.testing.assert_allclose(black.effective_rank, white.effective_rank, rtol=5e-3)
    few = audit.estimate_fisher_spectrum(predictor(network()), images(), temperature=temperature, directions=16, kind="orthogonal")
    assert (few.interval[0] < white.lambda_max).sum() >= 4 and (few.lower_bound <= white.lambda_max * 1.01).all()


def test_a_budget_of_queries_is_kept_for_the_whole():
    asked = 0
    inner = predictor(network())

    def counted(x):
        nonlocal asked
        asked += len(x)
        return inner(x)

    audit.estimate_fisher_spectrum(counted, images(), temperature=1, max_queries=600)
    assert 500 < asked <= 600


def test_a_temperature_comes_from_labels_or_from_the_entropy():
    model, x = network(), images()
    fitted = audit.fisher_spectrum(model, x, labels=LABELS)
    matched = audit.fisher_spectrum(model, x)
    logits = model(x).detach().double().numpy()
    log_p = log_softmax(logits, matched.temperature)
    assert -(np.exp(log_p) * log_p).sum(axis=1).mean() == pytest.approx(0.1 * np.log(5), rel=1e-3)
    assert fitted.temperature != matched.temperature
    # Ten times the logits: the same headline at ten times the temperature.
    assert entropy_matched_temperature(10 * logits) == pytest.approx(10 * matched.temperature, rel=1e-3)
    loud = audit.fisher_spectrum(network(scale=20.0), x)
    np.testing.assert_allclose(loud.kl_radius(), audit.fisher_spectrum(network(), x).kl_radius(), rtol=0.02)


def test_saturated_images_have_a_status_and_never_zero():
    white = audit.fisher_spectrum(network(scale=1e5), images(), temperature=1)
    loud = network(scale=1e5)

    def logits(x):
        return loud(torch.from_numpy(x))

    black = audit.estimate_fisher_spectrum(logits, images(), temperature=1)
    for found in (white, black):
        assert (found.status == "saturated").any() and not (found.lambda_max == 0).any() and not (found.trace == 0).any()
        assert np.isnan(found.lambda_max[found.status == "saturated"]).all()


def flat(x):
    return np.full((len(x), 3), 1 / 3)


def test_constant_outputs_have_a_status():
    still = nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).eval()
    still[1].weight.data.zero_()
    assert set(audit.fisher_spectrum(still, images(), temperature=1).status) <= {"flat", "saturated"}
    assert set(audit.estimate_fisher_spectrum(flat, images(), temperature=1).status) == {"not_smooth"}


def labels_only(x):
    return np.zeros(len(x), dtype=np.int64)


def one_hot(x):
    return np.eye(3)[(x.sum(axis=(1, 2, 3)) > 18).astype(int)]


def sigmoids(x):
    return np.full((len(x), 3), 0.9) * x[:, 0, 0, :1]


def not_finite(x):
    return np.full((len(x), 3), np.nan)


def one_class(x):
    return np.ones((len(x), 1))


def too_much(x):
    return np.full((len(x), 3), 0.7)


noise = np.random.default_rng(0)


def random(x):
    return noise.normal(size=(len(x), 3))


@pytest.mark.parametrize(
    ("predict", "options", "error", "words"),
    [
        (labels_only, {}, InputError, "label-only access"),
        (one_hot, {}, InputError, "label-only access"),
        (sigmoids, {}, ModelError, "do not sum to 1"),
        (too_much, {"outputs": "probabilities"}, ModelError, "no probabilities"),
        (not_finite, {}, ModelError, "not finite"),
        (one_class, {}, ModelError, "K >= 2"),
        (random, {}, ModelError, "at random"),
        (flat, {"max_queries": 40}, InputError, "at least two"),
        (flat, {"directions": 1}, InputError, "at least two"),
        (flat, {"max_queries": 300, "directions": 36}, InputError, "fewer than asked for"),
        (flat, {"kind": "diagonal"}, InputError, "is not known"),
        (flat, {"outputs": "labels"}, InputError, "is not known"),
        (flat, {"temperature": 0.0}, InputError, "not a positive number"),
        (flat, {"temperature": None}, InputError, "state temperature=1"),
        (flat, {"temperature": None, "labels": [0, 1]}, InputError, "one per image"),
    ],
)
def test_what_cannot_be_asked_is_an_error(predict, options, error, words):
    with pytest.raises(error, match=words):
        audit.estimate_fisher_spectrum(predict, images(), **{"temperature": 1, **options})


def test_a_function_that_raises_is_an_error():
    def broken(x):
        raise KeyError("no such host")

    with pytest.raises(ModelError, match="predict raises KeyError"):
        audit.estimate_fisher_spectrum(broken, images(), temperature=1)


class Noisy(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3] + torch.rand(len(x), 3)


@pytest.mark.parametrize(
    ("model", "inputs", "options", "error", "words"),
    [
        (network().train(), images(), {}, InputError, "training mode"),
        (Noisy().eval(), images(), {}, ModelError, "at random"),
        (network(), images() * 255, {}, InputError, r"give images in \[0, 1\]"),
        (network(), images() * float("nan"), {}, InputError, "not finite"),
        (network(), images().flatten(1), {}, InputError, "give images"),
        (network(), images()[:0], {}, InputError, "at least one"),
        (network(), images(), {"method": "svd"}, InputError, "is not known"),
        (network(), images(), {"labels": LABELS * 9}, InputError, "from 0 to 4"),
        (network(), images(), {"labels": LABELS * 1.0}, InputError, "class numbers"),
    ],
    ids=["training", "random", "range", "nan", "flat", "none", "method", "labels", "float labels"],
)
def test_what_cannot_be_derived_is_an_error(model, inputs, options, error, words):
    with pytest.raises(error, match=words):
        audit.fisher_spectrum(model, inputs, **options)


def test_one_output_is_a_single_logit_of_two_classes():
    """p (1 - p) |w|², as of the classes (0, z)."""
    single = nn.Sequential(nn.Flatten(), nn.Linear(36, 1)).eval()
    single[1].weight.data.mul_(10)
    found = audit.fisher_spectrum(single, images(), temperature=1)
    p = torch.sigmoid(single(images())).detach().double().numpy()[:, 0]
    size = float(single[1].weight.detach().double().square().sum())
    np.testing.assert_allclose(found.lambda_max, p * (1 - p) * size, rtol=1e-4)


def test_the_architecture_bound_comes_with_its_looseness():
    found = audit.fisher_spectrum(network(), images(), temperature=0.7)
    assert (np.log10(found.lambda_max) <= found.log10_bound).all() and "loose by a factor" in found.bound
    unknown = audit.fisher_spectrum(nn.Sequential(network(), nn.Mish()).eval(), images(), temperature=1)
    assert np.isnan(unknown.log10_bound).all() and "module 1 " in unknown.bound and "Mish" in unknown.bound
    shares = audit.fisher_spectrum(nn.Sequential(network(), nn.Softmax(1)).eval(), images(), temperature=1)
    assert np.isnan(shares.log10_bound).all() and "probabilities" in shares.bound
    np.testing.assert_allclose(shares.lambda_max, audit.fisher_spectrum(network(), images(), temperature=1).lambda_max, rtol=1e-3)
