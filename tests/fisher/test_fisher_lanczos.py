"""Lanczos against the exact spectrum, where it must stop, and what it must refuse."""

import math

import numpy as np
import pytest
import torch
from plain_classifier import PlainClassifier, linear, smooth

from audit.errors import ModelError
from audit.fisher.exact import gram, top_directions
from audit.fisher.iteration import hutchinson_trace, power_iteration
from audit.fisher.lanczos import RELATIVE_RESIDUAL, lanczos, rows_at_once
from audit.fisher.spectrum import spectrum


def images(count=4, shape=(1, 6, 6), seed=1):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def probes(count=4, shape=(1, 6, 6), draws=8):
    return torch.randint(0, 2, (count, draws, *shape), generator=torch.Generator().manual_seed(2)).double() * 2 - 1


def exact(classifier, x, temperature):
    logits, jacobian = classifier.jacobian(x)
    return spectrum(gram(jacobian), logits.double().numpy(), temperature), jacobian, logits.double().numpy()


@pytest.mark.parametrize("classes", [3, 10, 60])
def test_equals_the_exact_spectrum_within_its_residual(classes):
    classifier, x = smooth(classes=classes), images()
    logits = classifier.logits(x).numpy()
    found = lanczos(classifier, x, logits, (2.0, 1.0), probes(draws=200))
    for spectra, temperature in zip(found, (2.0, 1.0), strict=True):
        (largest, trace, _), jacobian, _ = exact(classifier, x, temperature)
        assert (np.abs(spectra.lambda_max - largest) <= spectra.residual + 1e-9 * largest).all()
        assert (spectra.residual <= RELATIVE_RESIDUAL * largest).all()
        np.testing.assert_allclose(spectra.lambda_max, largest, rtol=1e-4)
        assert (np.abs(spectra.trace - trace) <= 4 * spectra.trace_error + 1e-6 * trace).all()
        reference = top_directions(jacobian, gram(jacobian), logits, temperature)
        assert ((spectra.direction * reference).sum(dim=1).abs() > 0.999).all()
        np.testing.assert_allclose(spectra.direction.norm(dim=1), 1, rtol=1e-5)


def test_two_classes_break_down_after_one_step():
    classifier, x = smooth(classes=2), images()
    (found,) = lanczos(classifier, x, classifier.logits(x).numpy(), (1.0,), probes())
    (largest, trace, _), _, _ = exact(classifier, x, 1.0)
    assert (found.iterations == 1).all()
    np.testing.assert_allclose(found.lambda_max, largest, rtol=1e-9)
    np.testing.assert_allclose(found.trace, trace, rtol=1e-9)


def test_a_linear_model_of_rank_two_stops_at_its_rank():
    """Beyond breakdown the recurrence would return numbers that mean nothing."""
    source = torch.Generator().manual_seed(3)
    left = torch.randn(50, 2, generator=source, dtype=torch.float64)
    weights = left @ torch.randn(2, 36, generator=source, dtype=torch.float64)
    classifier, x = linear(weights * 0.1), images()
    (found,) = lanczos(classifier, x, classifier.logits(x).numpy(), (1.0,), probes())
    (largest, trace, _), _, _ = exact(classifier, x, 1.0)
    assert (found.iterations <= 3).all()
    np.testing.assert_allclose(found.lambda_max, largest, rtol=1e-8)
    np.testing.assert_allclose(found.trace, trace, rtol=1e-6)


@pytest.mark.parametrize("scale", [30.0, 1000.0])
def test_saturated_examples_do_not_cancel_in_float32(scale):
    double, x = smooth(classes=40, scale=scale), images()
    single = smooth(classes=40, scale=scale, dtype=torch.float32)
    (found,) = lanczos(single, x.float(), double.logits(x).numpy(), (1.0,), probes().float())
    (largest, _, _), _, _ = exact(double, x, 1.0)
    assert np.isfinite(found.lambda_max).all() and (found.lambda_max >= 0).all()
    seen = largest > 1e-250
    np.testing.assert_allclose(found.lambda_max[seen], largest[seen], rtol=2e-2)


def test_rows_do_not_depend_on_their_neighbours():
    classifier, x = smooth(classes=40), images()
    logits = classifier.logits(x).numpy()
    (whole,) = lanczos(classifier, x, logits, (1.0,), probes())
    (alone,) = lanczos(classifier, x[2:3], logits[2:3], (1.0,), probes()[2:3])
    np.testing.assert_allclose(alone.lambda_max, whole.lambda_max[2:3], rtol=1e-10)
    assert alone.iterations[0] == whole.iterations[2]


def test_outputs_that_do_not_move_have_a_zero_spectrum():
    flat = PlainClassifier(lambda x: x.flatten(1)[:, :3] * 0.0, 3)
    x = images()
    (found,) = lanczos(flat, x, flat.logits(x).numpy(), (1.0,), probes())
    assert (found.lambda_max == 0).all() and (found.trace == 0).all() and np.isfinite(found.residual).all()


def test_contradicting_derivatives_are_refused():
    classifier, x = smooth(classes=40), images()
    honest = classifier.jvp
    classifier.jvp = lambda images, directions: (honest(images, directions)[0], 2 * honest(images, directions)[1])
    with pytest.raises(ModelError, match="contradict each other"):
        lanczos(classifier, x, classifier.logits(x).numpy(), (1.0,), probes())


def test_the_bases_fit_into_memory():
    assert rows_at_once(784) == 32 and 1 <= rows_at_once(150528) < 32
    assert math.prod((rows_at_once(150528), 16, 150528)) <= 2**25


def test_power_iteration_gets_there_too_and_later():
    classifier, x = smooth(classes=10), images()
    logits = classifier.logits(x).numpy()
    (largest, trace, _), _, _ = exact(classifier, x, 1.0)
    found = power_iteration(classifier, x, logits, 1.0, most=200)
    (quick,) = lanczos(classifier, x, logits, (1.0,), probes())
    np.testing.assert_allclose(found.lambda_max, largest, rtol=1e-3)
    assert (np.abs(found.lambda_max - largest) <= found.residual + 1e-9 * largest).all()
    assert found.iterations.sum() > quick.iterations.sum() and (found.lambda_max <= largest * (1 + 1e-9)).all()
    mean, error = hutchinson_trace(classifier, x, logits, 1.0, probes(draws=400))
    assert (np.abs(mean - trace) <= 4 * error).all() and (error < 0.2 * trace).all()
