"""The query-only estimator against its theory and the maximum of random Rayleigh quotients; the speed of the white-box methods.

Directional derivatives are taken from the exact Jacobian, so that what is measured is the sampling of directions; `tests/fisher`
measures the finite differences. Equal queries: 2 m + 1 for m directions. Networks are trained here, on scikit-learn's digits
enlarged to 28 x 28 and, tinted, to 3 x 32 x 32 pixels; those of 1000 classes on digits cut into 100 shares of brightness each.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from audit.fisher.directions import Directions, draw, orthonormal_directions
from audit.fisher.exact import gram
from audit.fisher.lanczos import TRACE_PROBES, lanczos
from audit.fisher.sampling import relative_standard_error, sampled_spectrum
from audit.fisher.spectrum import spectrum
from audit.models.torch_module import wrap

DIRECTIONS = (64, 128, 256, 512, 1024)
EXAMPLES, DRAWS = 8, 24
# Of 1000 classes, whose eigenvalues take longer.
FEW_EXAMPLES, FEW_DRAWS = 4, 8
CASES = {"K=10 d=784": (10, (1, 28, 28)), "K=10 d=3072": (10, (3, 32, 32)), "K=1000 d=3072": (1000, (3, 32, 32))}
# Orthogonal directions against the formula; stratified against orthogonal, from STRATIFIED_FROM directions on; the maximum's error.
MOST_OF_THEORY, MOST_OF_ORTHOGONAL, STRATIFIED_FROM, LEAST_TOO_SMALL = 1.25, 1.1, 512, 0.98
LEAST_SPEED_UP_EXACT, LEAST_SPEED_UP_LANCZOS = 4, 50


@cache
def trained(classes: int, shape: tuple[int, int, int]) -> tuple[nn.Module, torch.Tensor]:
    """A small CNN and the images it was trained on."""
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.from_numpy(digits.images / 16).float()[:, None]
    images = nn.functional.interpolate(images, size=shape[1:], mode="bilinear")
    source = torch.Generator().manual_seed(0)
    images = (images * (0.4 + 0.6 * torch.rand(len(images), shape[0], 1, 1, generator=source))).clamp(0, 1)
    labels = torch.from_numpy(digits.target)
    if classes > 10:
        share = images.mean(dim=(1, 2, 3)).argsort().argsort() * (classes // 10) // len(images)
        labels = labels * (classes // 10) + share
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            *(nn.Conv2d(shape[0], 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(32 * (shape[1] // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, classes)),
        )
        optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
        for _ in range(6 if classes == 10 else 12):
            for rows in torch.randperm(len(images)).split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()
                optimiser.step()
    return network.eval(), images


def embedded(classes: int, shape: tuple[int, int, int]) -> list[np.ndarray]:
    """The Jacobians (K, d) of 2 sqrt(p), float64, of examples that are not saturated."""
    network, images = trained(classes, shape)
    classifier = wrap(network, image_shape=shape, device="cpu")
    found = []
    for image in images[::7]:
        logits, jacobian = classifier.jacobian(image[None])
        p = logits[0].double().softmax(0)
        if float(p.max()) > 0.999:
            continue
        slopes = jacobian[0].double()
        found.append((p.sqrt()[:, None] * (slopes - p @ slopes)).numpy())
        if len(found) == EXAMPLES:
            break
    return found


@pytest.mark.parametrize("case", list(CASES))
def test_error_at_equal_queries(case: str) -> None:
    classes, shape = CASES[case]
    jacobians = embedded(classes, shape)[: EXAMPLES if classes == 10 else FEW_EXAMPLES]
    draws = DRAWS if classes == 10 else FEW_DRAWS
    dimension = int(np.prod(shape))
    truths = [np.linalg.eigvalsh(each @ each.T)[-1] if classes < dimension else 0.0 for each in jacobians]
    names = ("maximum of quotients", "orthogonal", "stratified")
    errors: dict[str, dict[int, list[float]]] = {name: {m: [] for m in DIRECTIONS} for name in names}
    for seed in range(draws):
        source = torch.Generator().manual_seed(seed)
        most = orthonormal_directions(dimension, max(DIRECTIONS), source).numpy().astype(np.float64)
        normal = torch.randn(max(DIRECTIONS), dimension, generator=source, dtype=torch.float64).numpy()
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        projected = [most @ each.T for each in jacobians]
        quotients = [((normal @ each.T) ** 2).sum(axis=1) for each in jacobians]
        for m in DIRECTIONS:
            halves = draw(Directions.STRATIFIED, shape, m, source)
            rows = halves.rows.numpy().astype(np.float64)
            for each, truth, part, quotient in zip(jacobians, truths, projected, quotients, strict=True):
                errors["orthogonal"][m].append(sampled_spectrum(part[: min(m, dimension)], dimension).lambda_max / truth - 1)
                errors["maximum of quotients"][m].append(quotient[:m].max() / truth - 1)
                errors["stratified"][m].append(sampled_spectrum(rows @ each.T, dimension, halves.sampled).lambda_max / truth - 1)
    print(f"\n{case}: RMSE of the estimate of lambda, {len(jacobians)} examples x {draws} draws")
    rmse = {name: {m: float(np.sqrt(np.mean(np.square(values)))) for m, values in by.items()} for name, by in errors.items()}
    theory = {m: relative_standard_error(dimension, m) for m in DIRECTIONS}
    for name, by in (*rmse.items(), ("theory (orthogonal)", theory)):
        print(f"  {name:22s} " + "  ".join(f"m={m}: {value:.4f}" for m, value in by.items()))
    for m in DIRECTIONS:
        assert rmse["orthogonal"][m] <= MOST_OF_THEORY * theory[m] + 1e-6, m
        assert -np.median(errors["maximum of quotients"][m]) >= LEAST_TOO_SMALL, m
        if m >= STRATIFIED_FROM:
            assert rmse["stratified"][m] <= MOST_OF_ORTHOGONAL * rmse["orthogonal"][m] + 1e-6, m


def one_by_one(network: nn.Module, image: torch.Tensor) -> np.ndarray:
    """The slow obvious way: a forward and a backward pass for each class, one image at a time; (K, K) J J^T."""
    rows = []
    for k in range(network(image[None]).shape[1]):
        x = image[None].clone().requires_grad_(True)
        rows.append(torch.autograd.grad(network(x)[0, k], x)[0].flatten())
    jacobian = torch.stack(rows).double()
    return (jacobian @ jacobian.T).numpy()


@pytest.mark.parametrize("case", ["K=10 d=784", "K=10 d=3072", "K=1000 d=3072"])
def test_speed(case: str) -> None:
    classes, shape = CASES[case]
    network, images = trained(classes, shape)
    classifier = wrap(network, image_shape=shape, device="cpu")
    count = 256 if classes == 10 else 64
    x, few = images[:count], 8 if classes == 10 else 2
    logits = classifier.logits(x).double().numpy()

    def fast() -> np.ndarray:
        if classes == 10:
            return np.concatenate([spectrum(gram(classifier.jacobian(part)[1]), z, 1.0)[0] for part, z in _parts(x, logits)])
        probes = torch.ones(32, TRACE_PROBES, *shape)
        return np.concatenate([lanczos(classifier, part, z, (1.0,), probes)[0].lambda_max for part, z in _parts(x, logits)])

    def slow() -> np.ndarray:
        pairs = zip(x[:few], logits[:few], strict=True)
        return np.concatenate([spectrum(one_by_one(network, image)[None], z[None], 1.0)[0] for image, z in pairs])

    fast()  # compiles what torch compiles on first use
    (ours, quick), (theirs, long) = _timed(fast), _timed(slow)
    each, baseline = quick / count, long / few
    print(f"\n{case}: {1e3 * each:.2f} ms an example, {1e3 * baseline:.1f} ms one by one: {baseline / each:.0f}x")
    np.testing.assert_allclose(ours[:few], theirs, rtol=5e-3)
    assert baseline / each >= (LEAST_SPEED_UP_EXACT if classes == 10 else LEAST_SPEED_UP_LANCZOS)


def _parts(images: torch.Tensor, logits: np.ndarray):
    return [(images[start : start + 32], logits[start : start + 32]) for start in range(0, len(images), 32)]


def _timed(call):
    best, found = float("inf"), None
    for _ in range(3):
        begin = time.perf_counter()
        found = call()
        best = min(best, time.perf_counter() - begin)
    return found, best
