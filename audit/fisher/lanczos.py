"""White-box Fisher with many classes: Lanczos on v -> J^T S J v, without ever holding a Jacobian.

The recurrence is batched over examples and keeps its basis orthogonal by projecting twice; it starts at the gradient of the two
highest logits' difference. It stops where the residual is small against the eigenvalue, or at breakdown: beyond that it would
return numbers that mean nothing. The trace is that on the basis plus Hutchinson's estimate on its complement (Hutch++, Meyer et
al. 2021, arXiv 2010.09649).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from audit.evidence import Floats, Ints
from audit.fisher.operator import Information, Operator, check_adjoint, leading_difference
from audit.models import Classifier

MOST_ITERATIONS = 16
# Fewer could rest on an eigenvector that is not the top one, where the largest eigenvalues are close.
_LEAST_ITERATIONS = 5
RELATIVE_RESIDUAL = 1e-3
TRACE_PROBES = 8
# float32 derivatives: a new direction below this share of the eigenvalue is rounding.
_BREAKDOWN = 1e-6
# Float64 values of the bases held at a time.
_BASIS_VALUES = 2**25


@dataclass(frozen=True, kw_only=True)
class LanczosSpectrum:
    """Of each example (n,): the largest Ritz value, never above lambda_max; some eigenvalue lies within `residual` of it.

    `trace_error` is the standard error of `trace`; `direction` (n, d) the unit top direction, float32 on the CPU.
    """

    lambda_max: Floats
    residual: Floats
    trace: Floats
    trace_error: Floats
    iterations: Ints
    direction: torch.Tensor


def rows_at_once(dimension: int) -> int:
    """How many examples' bases fit into memory, at least 1 and at most 32."""
    return max(1, min(32, _BASIS_VALUES // (MOST_ITERATIONS * dimension)))


def lanczos(
    classifier: Classifier, images: torch.Tensor, logits: Floats, temperatures: Sequence[float], probes: torch.Tensor
) -> list[LanczosSpectrum]:
    """Top eigenvalue and trace of F at each temperature.

    Args:
        classifier: has gradients, and answers the same twice.
        images: (n, c, h, w) on its device, at most `rows_at_once` of them.
        logits: (n, K) at the images, float64.
        temperatures: T > 0 of softmax(z / T).
        probes: (n, P, c, h, w) independent values of mean 0 and variance 1, P >= 2.

    Raises:
        ModelError: derivatives are not finite, or the forward and reverse ones contradict each other.
    """
    operator = Operator(classifier, images)
    z = torch.from_numpy(np.asarray(logits, dtype=np.float64)).to(images.device)
    start = operator.pull(leading_difference(z))
    start = torch.where(start.norm(dim=1, keepdim=True) > 0, start, probes[:, 0].flatten(1).double())
    flat = probes.flatten(2)
    pushed = [operator.push(flat[:, j]) for j in range(flat.shape[1])]
    return [_spectrum(operator, Information(z, t), start, flat, pushed) for t in temperatures]


def _spectrum(
    operator: Operator, information: Information, start: torch.Tensor, probes: torch.Tensor, pushed: list[torch.Tensor]
) -> LanczosSpectrum:
    count, classes = pushed[0].shape
    basis, images_of_basis = [start / start.norm(dim=1, keepdim=True)], []
    alphas, betas = np.zeros((count, MOST_ITERATIONS)), np.zeros((count, MOST_ITERATIONS))
    value, residual, iterations = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64)
    weights, size = np.zeros((count, MOST_ITERATIONS)), torch.zeros(count, dtype=torch.float64, device=start.device)
    for k in range(MOST_ITERATIONS):
        u = operator.push(basis[k])
        images_of_basis.append(u)
        product, form = information(u)
        w = operator.pull(product)
        size = torch.maximum(size, form)
        check_adjoint(form, (w * basis[k]).sum(dim=1), size)
        # Twice is enough (Kahan, in Parlett 1980, section 6.9).
        for _ in range(2):
            for q in basis:
                w = w - (w * q).sum(dim=1, keepdim=True) * q
        beta = w.norm(dim=1)
        alphas[:, k], betas[:, k] = form.cpu().numpy(), beta.cpu().numpy()
        for i in np.flatnonzero(iterations == 0):
            ritz, vector = _top_of(alphas[i, : k + 1], betas[i, :k])
            left = float(betas[i, k] * abs(vector[-1]))
            broke = betas[i, k] <= _BREAKDOWN * ritz
            small = k + 1 >= min(_LEAST_ITERATIONS, classes - 1) and left <= RELATIVE_RESIDUAL * ritz
            if broke or small or k + 1 == min(MOST_ITERATIONS, max(classes - 1, 1)):
                value[i], residual[i], iterations[i] = ritz, left, k + 1
                weights[i, : k + 1] = vector
        if (iterations > 0).all():
            break
        basis.append(torch.where(beta[:, None] > 0, w / beta[:, None].clamp(min=torch.finfo(torch.float64).tiny), 0.0))
    used = torch.from_numpy(np.arange(len(images_of_basis)) < iterations[:, None]).to(start.device)
    ritz_weights = torch.from_numpy(weights).to(start.device)
    direction = sum(ritz_weights[:, k, None] * basis[k] for k in range(len(images_of_basis)))
    rest = _rest_of_trace(information, basis, images_of_basis, used, probes, pushed)
    # Exact sums, so that no row depends on how long its neighbours took.
    on_basis = np.array([math.fsum(row[:last]) for row, last in zip(alphas, iterations, strict=True)])
    assert isinstance(direction, torch.Tensor), "there is at least one iteration"
    return LanczosSpectrum(
        lambda_max=value,
        residual=residual,
        trace=np.maximum(on_basis + rest.mean(axis=0), value),
        trace_error=rest.std(axis=0, ddof=1) / np.sqrt(len(rest)),
        iterations=iterations,
        direction=direction.float().cpu(),
    )


def _rest_of_trace(
    information: Information,
    basis: list[torch.Tensor],
    images_of_basis: list[torch.Tensor],
    used: torch.Tensor,
    probes: torch.Tensor,
    pushed: list[torch.Tensor],
) -> Floats:
    """(P, n): w^T F w of each probe's part outside the basis, whose J w follows from what is known by linearity."""
    forms = []
    for j, u in enumerate(pushed):
        outside = u
        for k, image in enumerate(images_of_basis):
            share = (probes[:, j].double() * basis[k]).sum(dim=1) * used[:, k]
            outside = outside - share[:, None] * image
        forms.append(information(outside)[1].cpu().numpy())
    return np.stack(forms)


def _top_of(alphas: Floats, betas: Floats) -> tuple[float, Floats]:
    """Largest eigenvalue of the tridiagonal matrix, and its unit eigenvector."""
    values, vectors = np.linalg.eigh(np.diag(alphas) + np.diag(betas, 1) + np.diag(betas, -1))
    return max(float(values[-1]), 0.0), vectors[:, -1]
