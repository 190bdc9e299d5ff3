"""Derivatives along directions: against the Jacobian, for networks with and without forward-mode derivatives."""

from __future__ import annotations

import pytest
import torch
from small_models import Small, Softmaxed, images
from torch import nn

from audit.errors import MissingCapability
from audit.models import derivatives, resolve_outputs
from audit.models.composed import black_box
from audit.models.torch_module import wrap

SHAPE = (3, 8, 8)


class Attention(nn.Module):
    """A transformer block, whose fast path and fused attention know no derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x.flatten(2).transpose(1, 2).reshape(len(x), 24, 8)).mean(dim=1))


class Sine(torch.autograd.Function):
    """An operation with a gradient of its own and no forward derivative."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = Small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Sine.apply(self.small(x))  # type: ignore[no-untyped-call]


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = Small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return self.small(x)


@pytest.mark.parametrize("network", [Small, Attention, Custom, InPlace])
def test_a_directional_derivative_is_the_jacobian_times_the_direction(network: type[nn.Module]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        classifier = wrap(network(), image_shape=SHAPE, device="cpu", block_rows=4)
    x, v = images(6), images(6, seed=9) - 0.5
    before = classifier.forward_passes, classifier.backward_passes
    logits, slopes = classifier.jvp(x, v)
    assert (classifier.forward_passes, classifier.backward_passes) == (before[0] + 6, before[1] + 6)
    expected, jacobian = classifier.jacobian(x)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slopes, (jacobian * v.flatten(1)[:, None]).sum(dim=2), rtol=1e-3, atol=1e-5)
    assert not slopes.requires_grad
    assert torch.equal(classifier.jvp(x[2:3], v[2:3])[1], slopes[2:3])


def test_both_ways_give_the_same() -> None:
    module, x, v = Small().eval(), images(3), images(3, seed=9)
    one, other = derivatives._forward_mode(module, x, v), derivatives._twice_reverse(module, x, v)
    for ours, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_probabilities_are_differentiated_as_log_p() -> None:
    classifier = resolve_outputs(wrap(Softmaxed(Small()), image_shape=SHAPE, device="cpu"), images(8))
    x, v = images(3), images(3, seed=9)
    logits, jacobian = classifier.jacobian(x)
    found = classifier.jvp(x, v)
    torch.testing.assert_close(found[0], logits)
    torch.testing.assert_close(found[1], (jacobian * v.flatten(1)[:, None]).sum(dim=2), rtol=1e-3, atol=1e-5)


def test_no_images_and_no_gradients() -> None:
    classifier = wrap(Small(), image_shape=SHAPE, device="cpu")
    assert [each.shape for each in classifier.jvp(images(0), images(0))] == [(0, 5), (0, 5)]
    with pytest.raises(MissingCapability, match="asked"):
        black_box(classifier, "asked for").jvp(images(1), images(1))
