import math

import numpy as np
import pytest
import torch
from plain_classifier import linear, smooth

from audit.fisher.exact import gram, rows_at_once
from audit.fisher.spectrum import log_softmax, spectrum


def images(count=4, shape=(1, 6, 6), seed=1):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(jacobian, logits, temperature):
    """F by its definition: the covariance over labels of grad_x log p."""
    p = torch.softmax(logits / temperature, dim=1)
    scores = (jacobian - torch.einsum("nk,nkd->nd", p, jacobian)[:, None]) / temperature
    return torch.einsum("nk,nki,nkj->nij", p, scores, scores)


def spectrum_of(classifier, x, temperature=1.0):
    logits, jacobian = classifier.jacobian(x)
    return spectrum(gram(jacobian), logits.numpy(), temperature)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_equals_the_label_covariance(temperature):
    classifier, x = smooth(), images()
    logits, jacobian = classifier.jacobian(x)
    f = dense(jacobian, logits, temperature).numpy()
    largest, trace, rank = spectrum_of(classifier, x, temperature)
    eigenvalues = np.linalg.eigvalsh(f)
    np.testing.assert_allclose(largest, eigenvalues[:, -1], rtol=1e-9)
    np.testing.assert_allclose(trace, np.trace(f, axis1=1, axis2=2), rtol=1e-9)
    np.testing.assert_allclose(rank, trace / largest)
    assert (eigenvalues > -1e-12).all() and (eigenvalues[:, : -(classifier.classes - 1)] < 1e-9).all()


def test_equals_j_transposed_s_j():
    classifier, x = smooth(), images()
    logits, jacobian = classifier.jacobian(x)
    p = torch.softmax(logits, dim=1)
    s = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    f = jacobian.transpose(1, 2) @ s @ jacobian
    np.testing.assert_allclose(f.numpy(), dense(jacobian, logits, 1.0).numpy(), atol=1e-9)


def test_binary_linear_model():
    w = torch.randn(36, dtype=torch.float64)
    classifier, x = linear(torch.stack([w, torch.zeros_like(w)])), images()
    p = torch.sigmoid(x.flatten(1) @ w)
    np.testing.assert_allclose(spectrum_of(classifier, x)[0], (p * (1 - p) * w.square().sum()).numpy(), rtol=1e-9)


def test_linear_softmax():
    weights = torch.randn(4, 36, dtype=torch.float64) / 3
    x = images()
    p = torch.softmax(x.flatten(1) @ weights.T, dim=1)
    s = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.linalg.eigvalsh(weights.T @ s @ weights)[:, -1]
    np.testing.assert_allclose(spectrum_of(linear(weights), x)[0], expected.numpy(), rtol=1e-9)


def test_invariances():
    x = images()
    base = spectrum_of(smooth(), x)
    shifted = smooth()
    inner = shifted.network
    shifted.network = lambda v: inner(v) + 7
    scaled = smooth(scale=5.0)
    np.testing.assert_allclose(spectrum_of(shifted, x), base, rtol=1e-9)
    np.testing.assert_allclose(spectrum_of(scaled, x, temperature=5.0), base, rtol=1e-9)
    stretched = smooth()
    stretched.network = lambda v: inner(v / 3)
    np.testing.assert_allclose(spectrum_of(stretched, 3 * x)[0], base[0] / 9, rtol=1e-9)


def test_quadratic_form_is_twice_the_divergence():
    classifier, x = smooth(), images(1)
    logits, jacobian = classifier.jacobian(x)
    f = dense(jacobian, logits, 1.0)[0]
    values, vectors = torch.linalg.eigh(f)
    ratios = []
    for epsilon in (1e-1, 1e-2, 1e-3):
        e = (epsilon * vectors[:, -1]).view(x.shape)
        log_p, log_q = classifier.logits(x).log_softmax(1), classifier.logits(x + e).log_softmax(1)
        ratios.append(float((log_p.exp() * (log_p - log_q)).sum() / (0.5 * values[-1] * epsilon**2)))
    assert abs(ratios[2] - 1) < 1e-2 < abs(ratios[0] - 1) + 1e-2
    assert abs(ratios[2] - 1) < abs(ratios[1] - 1)


def test_saturated_examples_do_not_cancel():
    """Two classes with p of the loser down to 1e-200: lambda = p (1 - p) |w|^2 to full precision."""
    w = np.array([3.0, 4.0])
    jacobian = torch.tensor(np.stack([w + 1e3, np.full(2, 1e3)])[None])
    for gap in (1.0, 40.0, 100.0, 460.0):
        largest, _, rank = spectrum(gram(jacobian), np.array([[gap, 0.0]]), 1.0)
        assert largest[0] == pytest.approx(25 * math.exp(-gap) / (1 + math.exp(-gap)) ** 2, rel=1e-7, abs=0)
        assert rank[0] == pytest.approx(1, rel=1e-6)


def test_finite_for_enormous_logits():
    classifier, x = smooth(scale=1000.0), images()
    for temperature in (0.01, 1.0, 100.0):
        values = np.array(spectrum_of(classifier, x, temperature))
        assert np.isfinite(values).all() and (values >= 0).all()


def test_two_classes_have_rank_one():
    classifier, x = smooth(classes=2), images()
    np.testing.assert_allclose(spectrum_of(classifier, x)[2], 1.0, rtol=1e-9)


def test_gram_does_not_depend_on_the_other_rows_or_the_column_blocks():
    jacobian = torch.randn(3, 4, 70000)
    whole = gram(jacobian)
    assert (gram(jacobian[1:2]) == whole[1:2]).all()
    np.testing.assert_allclose(whole, (jacobian.double() @ jacobian.double().transpose(1, 2)).numpy(), rtol=1e-12, atol=1e-9)


def test_rows_at_once_bounds_memory():
    assert rows_at_once(10, 784) == 32 and rows_at_once(1000, 150528) == 1
    assert rows_at_once(1000, 3072) * 1000 * 3072 <= 2**26


def test_log_softmax_against_torch():
    z = np.random.default_rng(0).normal(size=(5, 7)) * 300
    np.testing.assert_allclose(log_softmax(z, 2.5), torch.from_numpy(z / 2.5).log_softmax(1).numpy(), rtol=1e-12, atol=1e-12)
