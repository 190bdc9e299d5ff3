from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from small_models import LiveDropout, NotANumber, Returns, Small, Softmaxed, images
from torch import nn

from audit.errors import InputError, MissingCapability, ModelError
from audit.models import resolve_outputs
from audit.models.input_spec import from_options
from audit.models.torch_module import TorchClassifier, wrap
from audit.vocabulary import Capability

SHAPE = (3, 8, 8)


def small(**options: object) -> TorchClassifier:
    return wrap(Small(), image_shape=SHAPE, device="cpu", **options)  # type: ignore[arg-type]


def cross_entropy(labels: torch.Tensor):  # type: ignore[no-untyped-def]
    return lambda scores, rows: nn.functional.cross_entropy(scores, labels[rows], reduction="none")


@pytest.mark.parametrize("count", [1, 7, 8, 9, 20])
def test_logits_are_the_modules_own(count: int) -> None:
    x = images(count)
    with torch.no_grad():
        expected = Small().eval()(x)
    classifier = small(block_rows=8)
    torch.testing.assert_close(classifier.logits(x), expected, rtol=1e-5, atol=1e-6)
    assert classifier.forward_passes == count and classifier.backward_passes == 0
    assert (
        classifier.classes == 5
        and classifier.identity.runtime == f"torch {torch.__version__}"
        and classifier.identity.device == "cpu"
    )


def test_a_row_is_bit_identical_under_permutation_batch_size_and_partial_fill() -> None:
    x, labels = images(50), torch.arange(50) % 5
    classifier = small(block_rows=16)
    whole = classifier.logits(x)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    assert torch.equal(classifier.logits(x[order]), whole[order])
    for start, stop in [(0, 1), (7, 12), (13, 50)]:
        assert torch.equal(classifier.logits(x[start:stop]), whole[start:stop])
    gradient = classifier.loss_gradient(x, cross_entropy(labels))[2]
    assert torch.equal(classifier.loss_gradient(x[order], cross_entropy(labels[order]))[2], gradient[order])
    assert torch.equal(classifier.loss_gradient(x[5:8], cross_entropy(labels[5:8]))[2], gradient[5:8])
    jacobian = classifier.jacobian(x)[1]
    assert torch.equal(classifier.jacobian(x[order][:11])[1], jacobian[order][:11])


@pytest.mark.parametrize("block_rows", [4, 32])
@pytest.mark.parametrize(("features", "classes"), [(34, 2), (35, 5), (64, 10)])
def test_the_place_in_a_block_moves_a_score_by_rounding_at_most(features: int, classes: int, block_rows: int) -> None:
    """Matrix kernels may add up some rows of a very small product in another order: `audit.models.blocks` says where."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(features, classes))
    classifier = wrap(network, image_shape=(1, 1, features), device="cpu", block_rows=block_rows)
    image = torch.rand(1, 1, 1, features)
    scores = classifier.logits(image.expand(block_rows, -1, -1, -1)).double()
    assert (scores - scores[0]).abs().max() <= 1e-6


def test_the_loss_gradient_is_the_slope_of_the_loss() -> None:
    x, labels = images(5), torch.tensor([0, 1, 2, 3, 4])
    module = Small().double().eval()
    scores, loss, gradient = small(block_rows=4).loss_gradient(x, cross_entropy(labels))
    assert scores.shape == (5, 5) and loss.shape == (5,) and gradient.shape == x.shape
    assert not gradient.requires_grad and not loss.requires_grad
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step = 1e-5
    with torch.no_grad():
        ahead, behind = (
            nn.functional.cross_entropy(module(x.double() + s * direction), labels, reduction="none") for s in (step, -step)
        )
    slope = (ahead - behind) / (2 * step)
    torch.testing.assert_close((gradient.double() * direction).sum((1, 2, 3)), slope, rtol=1e-3, atol=1e-4)


def test_the_jacobian_equals_jacrev_row_by_row() -> None:
    x = images(6)
    classifier = small(block_rows=4)
    _, jacobian = classifier.jacobian(x)
    module = Small().eval()
    expected = torch.stack([torch.func.jacrev(lambda row: module(row[None])[0])(row).flatten(1) for row in x]).detach()
    torch.testing.assert_close(jacobian, expected, rtol=1e-4, atol=1e-6)
    assert classifier.forward_passes == 6 and classifier.backward_passes == 30


def test_the_jacobian_is_right_for_more_than_32_classes() -> None:
    x = images(3)
    _, jacobian = wrap(Small(classes=40), image_shape=SHAPE, device="cpu", block_rows=4).jacobian(x)
    module = Small(classes=40).eval()
    expected = torch.func.jacrev(lambda row: module(row[None])[0])(x[1]).flatten(1).detach()
    torch.testing.assert_close(jacobian[1], expected, rtol=1e-4, atol=1e-6)


def test_padding_rows_carry_the_index_of_a_valid_row_and_are_not_counted() -> None:
    seen: list[torch.Tensor] = []

    def loss(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        seen.append(rows)
        return scores[:, 0]

    classifier = small(block_rows=8)
    classifier.loss_gradient(images(10), loss)
    assert [rows.tolist() for rows in seen] == [list(range(8)), [8, 9, 9, 9, 9, 9, 9, 9]]
    assert classifier.forward_passes == 10 and classifier.backward_passes == 10


def test_no_images_give_no_rows() -> None:
    classifier = small()
    none = images(0)
    assert classifier.logits(none).shape == (0, 5)
    scores, loss, gradient = classifier.loss_gradient(none, cross_entropy(torch.zeros(0, dtype=torch.long)))
    assert (scores.shape, loss.shape, gradient.shape) == ((0, 5), (0,), (0, 3, 8, 8))
    assert [t.shape for t in classifier.jacobian(none)] == [(0, 5), (0, 5, 192)]


def test_the_model_is_in_eval_mode_and_gathers_no_gradients() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm2d(3), Small()).train()
    classifier = wrap(module, image_shape=SHAPE, device="cpu")
    x = images(4)
    assert torch.equal(classifier.logits(x), classifier.logits(x))
    classifier.loss_gradient(x, cross_entropy(torch.zeros(4, dtype=torch.long)))
    assert all(p.grad is None and not p.requires_grad for p in module.parameters())
    assert classifier.identity.cautions == ()


def test_normalisation_lives_inside() -> None:
    spec = from_options(["range=0-255,mean=100/110/120,std=50/60/70"]).complete()
    x = images(4)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ([100.0, 110, 120], [50.0, 60, 70]))
    classifier = wrap(Small(), image_shape=SHAPE, spec=spec, device="cpu")
    with torch.no_grad():
        torch.testing.assert_close(classifier.logits(x), Small().eval()((x * 255 - mean) / std), rtol=1e-4, atol=1e-5)
    plain = small().jacobian((x * 255 - mean) / std)[1].view(4, 5, 3, 8, 8)
    torch.testing.assert_close(classifier.jacobian(x)[1].view(4, 5, 3, 8, 8), plain * (255 / std[:, None]), rtol=1e-3, atol=1e-4)


def test_live_dropout_is_named() -> None:
    (caution,) = wrap(LiveDropout(), image_shape=SHAPE, device="cpu").identity.cautions
    assert "Two calls on the same images differ" in caution


def test_live_batch_statistics_are_named() -> None:
    live = nn.BatchNorm2d(3, track_running_stats=False)
    (caution,) = wrap(nn.Sequential(live, Small()), image_shape=SHAPE, device="cpu").identity.cautions
    assert "change with the other images of its batch" in caution


def test_non_finite_outputs_are_counted() -> None:
    classifier = wrap(NotANumber(), image_shape=SHAPE, device="cpu")
    x = images(6)
    x[[1, 4]] = 0.95
    with pytest.raises(ModelError, match="10 of 30 outputs are NaN or infinite, for 2 of 6 images"):
        classifier.logits(x)
    assert torch.isfinite(classifier.logits(x[[0, 2]])).all()


class Named(NamedTuple):
    logits: torch.Tensor
    auxiliary: torch.Tensor


@pytest.mark.parametrize(
    ("shape", "caution"),
    [
        (lambda z: {"logits": z, "hidden": z * 2}, "its entry 'logits' was used"),
        (lambda z: {"scores": z}, "its entry 'scores' was used"),
        (lambda z: (z,), "returns a tuple; its entry '0' was used"),
        (lambda z: Named(z, z * 2), "returns a named tuple; its entry 'logits' was used"),
    ],
)
def test_the_obvious_tensor_of_several_outputs_is_taken_and_said(shape: object, caution: str) -> None:
    classifier = wrap(Returns(shape), image_shape=SHAPE, device="cpu")
    x = images(3)
    assert torch.equal(classifier.logits(x), small().logits(x))
    assert [text for text in classifier.identity.cautions if caution in text]


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (lambda z: (z, z * 2), "returns a tuple with the tensors '0', '1'; an audit needs one"),
        (lambda z: {"a": z, "b": z}, "returns a dictionary with the tensors 'a', 'b'"),
        (lambda z: z[:, :, None, None].expand(-1, -1, 2, 1), r"gives outputs of shape \(32, 5, 2, 1\) for 32 images"),
        (lambda z: {"a": 1}, "with the tensors none"),
        (lambda z: z.mean(0, keepdim=True), r"gives outputs of shape \(1, 5\)"),
        (lambda z: z.argmax(1), r"gives only class numbers \(torch.int64\)"),
        (lambda z: z.argmax(1, keepdim=True) > 0, r"gives only class numbers \(torch.bool\)"),
        (lambda z: "cat", "returns str"),
    ],
)
def test_outputs_that_are_no_class_scores_are_refused(shape: object, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        wrap(Returns(shape), image_shape=SHAPE, device="cpu")


def test_a_model_that_refuses_the_shape_is_quoted_with_the_shape() -> None:
    with pytest.raises(ModelError, match=r"Small: refuses images of 1x8x8 \(NCHW, float32\): .*check the data's shape"):
        wrap(Small(), image_shape=(1, 8, 8), device="cpu")


def test_images_of_another_shape_are_refused_with_both_shapes() -> None:
    with pytest.raises(ModelError, match="was loaded for images of 3x8x8, but was given 1x8x8"):
        small().logits(images(2, channels=1))


def test_a_model_of_integers_has_no_gradients() -> None:
    class Bytes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype == torch.uint8
            return self.inner(x.float() / 255)

    spec = from_options(["dtype=uint8"]).complete()
    classifier = wrap(Bytes(), image_shape=SHAPE, spec=spec, device="cpu")
    assert "8-bit integers" in classifier.lacks[Capability.GRADIENTS]
    torch.testing.assert_close(classifier.logits(images(3)), small().logits((images(3) * 255).round() / 255), rtol=1e-5, atol=1e-6)
    with pytest.raises(MissingCapability, match="8-bit integers"):
        classifier.jacobian(images(1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"--device cuda cannot be honoured: .*--device cpu"):
        wrap(Small(), image_shape=SHAPE, device="cuda")
    assert wrap(Small(), image_shape=SHAPE, device="auto").device.type == "cpu"
    with pytest.raises(InputError, match="there is no device 'tpu'"):
        wrap(Small(), image_shape=SHAPE, device="tpu")


def test_convolutions_run_in_full_precision_and_the_users_choice_comes_back() -> None:
    seen = []

    class Looks(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic))
            return super().forward(x)

    before = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic)
    classifier = wrap(Looks(), image_shape=SHAPE, device="cpu")
    seen.clear()
    classifier.logits(images(2))
    classifier.loss_gradient(images(2), lambda z, _: z[:, 0])
    classifier.jacobian(images(2))
    assert seen == [(False, True)] * 3
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic) == before == (True, False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_agrees_with_the_cpu() -> None:
    x, labels = images(9), torch.arange(9) % 5
    gpu = wrap(Small(), image_shape=SHAPE, device="cuda", block_rows=4)
    assert gpu.identity.device.startswith("cuda:")
    torch.testing.assert_close(gpu.logits(x.cuda()).cpu(), small(block_rows=4).logits(x), rtol=1e-3, atol=1e-4)
    got = gpu.loss_gradient(x.cuda(), cross_entropy(labels.cuda()))[2].cpu()
    torch.testing.assert_close(got, small(block_rows=4).loss_gradient(x, cross_entropy(labels))[2], rtol=1e-3, atol=1e-4)


def test_probabilities_are_detected_and_become_log_p() -> None:
    x = images(9)
    loaded = wrap(Softmaxed(Small()), image_shape=SHAPE, device="cpu")
    assert loaded.identity.outputs == "not settled"
    classifier = resolve_outputs(loaded, x)
    assert classifier.identity.outputs == "probabilities (detected)"
    expected = small().logits(x).log_softmax(1)
    torch.testing.assert_close(classifier.logits(x), expected, rtol=1e-4, atol=1e-5)
    labels = torch.arange(9) % 5
    scores, loss, gradient = classifier.loss_gradient(x, cross_entropy(labels))
    plain = small().loss_gradient(x, cross_entropy(labels))
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss, plain[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, plain[2], rtol=1e-3, atol=1e-5)
    module = Small().eval()
    jacobian = torch.func.jacrev(lambda row: module(row[None])[0].log_softmax(0))(x[2]).flatten(1).detach()
    torch.testing.assert_close(classifier.jacobian(x)[1][2], jacobian, rtol=1e-3, atol=1e-5)
    assert classifier.backward_passes == 9 + 9 * 5


def test_logits_are_detected_and_left_alone() -> None:
    x = images(5)
    classifier = resolve_outputs(small(), x)
    assert classifier.identity.outputs == "logits (detected)"
    assert torch.equal(classifier.logits(x), small().logits(x))


def test_a_zero_probability_stays_finite_and_has_no_slope() -> None:
    class Certain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            p = x.mean((1, 2, 3))
            return torch.stack([p, 1 - p, p * 0], dim=1)

    classifier = resolve_outputs(wrap(Certain(), image_shape=SHAPE, device="cpu"), images(4))
    scores, jacobian = classifier.jacobian(images(4))
    assert torch.isfinite(scores).all() and torch.isfinite(jacobian).all()
    assert (jacobian[:, 2] == 0).all() and (jacobian[:, 0] > 0).all()


def test_what_the_user_states_wins_and_is_checked() -> None:
    x = images(5)
    stated = from_options(["outputs=logits"]).complete()
    classifier = resolve_outputs(wrap(Softmaxed(Small()), image_shape=SHAPE, spec=stated, device="cpu"), x)
    assert classifier.identity.outputs == "logits (stated)"
    assert "softmax is applied twice" in classifier.identity.cautions[0]
    wrong = from_options(["outputs=probabilities"]).complete()
    with pytest.raises(ModelError, match="outputs=probabilities was stated, but the outputs on 5 images are not"):
        resolve_outputs(wrap(Small(), image_shape=SHAPE, spec=wrong, device="cpu"), x)
    right = resolve_outputs(wrap(Softmaxed(Small()), image_shape=SHAPE, spec=wrong, device="cpu"), x)
    assert right.identity.outputs == "probabilities (stated)"


class CutOff(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.inner(x)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(0.5)
        return self.inner(x * 2)


def test_a_model_that_cuts_off_its_gradient_lacks_gradients() -> None:
    classifier = wrap(CutOff(), image_shape=SHAPE, device="cpu", block_rows=8)
    assert "no_grad" in classifier.lacks[Capability.GRADIENTS]
    with pytest.raises(MissingCapability, match="no_grad"):
        classifier.jacobian(images(2))
    assert Capability.GRADIENTS not in small().lacks


def test_a_model_that_changes_its_input_in_place_gives_the_same_numbers_and_no_caution() -> None:
    classifier = wrap(InPlace(), image_shape=SHAPE, device="cpu", block_rows=8)
    assert classifier.identity.cautions == ()
    x, before = images(5), images(5)
    loss = cross_entropy(torch.arange(5))
    for found, expected in zip(classifier.loss_gradient(x, loss), small(block_rows=8).loss_gradient(x, loss), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(classifier.jacobian(x)[1], small(block_rows=8).jacobian(x)[1], rtol=1e-4, atol=1e-6)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("text", "shape", "own"),
    [("layout=FLAT", (3, 8, 8), (192,)), ("size=8x8", (3, 5, 6), (3, 8, 8)), ("colour=repeat,layout=NCD", (1, 8, 8), (3, 64))],
)
def test_gradients_pass_through_layout_size_and_colour(text: str, shape: tuple[int, ...], own: tuple[int, ...]) -> None:
    """The loss of an image moved by epsilon in the data's own pixels is what its gradient there promises."""

    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert tuple(x.shape[1:]) == own
            return self.inner(x.reshape(len(x), 3, 8, 8))

    classifier = wrap(Asks(), image_shape=shape, spec=from_options([text]).complete(), device="cpu")
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(2))
    _, before, gradient = classifier.loss_gradient(x, cross_entropy(torch.tensor([0, 1])))
    assert gradient.shape == x.shape
    step = 1e-3 * gradient.sign()
    _, after, _ = classifier.loss_gradient(x + step, cross_entropy(torch.tensor([0, 1])))
    torch.testing.assert_close(after - before, (gradient * step).sum((1, 2, 3)), rtol=0.02, atol=1e-5)
