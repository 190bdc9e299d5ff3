"""An ONNX file as a white box: when its conversion is believed, what then comes from where, and what is said when it is not."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from exported import exported
from onnx import TensorProto, helper
from onnx_graphs import graph, normal, opened
from small_models import Small, Softmaxed, images

from audit.errors import MissingCapability
from audit.models import BLACK_BOX_ASKED, onnx_gradients, resolve_outputs
from audit.models.onnx_file import OnnxClassifier
from audit.models.onnx_torch import convert
from audit.models.torch_module import wrap
from audit.vocabulary import Capability

SHAPE = (3, 8, 8)


class Steep(torch.nn.Module):
    """A small network whose softmax is saturated."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = Small(), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * self.inner(x)


class ByHand(Steep):
    """Probabilities without a softmax operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        e = super().forward(x).exp()
        return e / e.sum(1, keepdim=True)


def saved(path: Path, nodes: list[onnx.NodeProto], **options: object) -> Path:
    """A linear model of 192 pixels and 4 classes behind `nodes`, which lead from x to `seen`."""
    weights = {"w": normal(192, 4), "half": np.array(0.5, np.float32), "bytes": np.array(255, np.float32)}
    linear = [helper.make_node("Flatten", ["seen"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    onnx.save(graph([*nodes, *linear], ["n", *SHAPE], weights, **options), path)
    return path


def settled(path: Path, **options: object):
    return resolve_outputs(opened(path, **options), images(32))


def cross_entropy(labels: torch.Tensor):
    return lambda logits, rows: torch.nn.functional.cross_entropy(logits, labels[rows], reduction="none")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(Small(), images(2), tmp_path_factory.mktemp("onnx") / "small.onnx", dynamo=False)


def test_gradients_are_those_of_the_module_that_was_exported(small: Path):
    x = images(20, seed=3)
    found, expected = settled(small), wrap(Small(), image_shape=SHAPE, device="cpu")
    assert found.lacks == {}
    loss = cross_entropy(torch.arange(20) % 5)
    for ours, theirs in zip(found.loss_gradient(x, loss), expected.loss_gradient(x, loss), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    for ours, theirs in zip(found.jacobian(x[:3]), expected.jacobian(x[:3]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_scores_are_those_of_onnx_runtime_and_the_identity_says_where_gradients_come_from(small: Path):
    x = images(20, seed=3)
    plain, found = opened(small), settled(small)
    assert torch.equal(found.logits(x), plain.logits(x))
    assert found.identity.runtime == plain.identity.runtime and found.identity.cautions == ()
    words, _, rest = found.identity.gradients.partition(" by up to ")
    assert words == "from the graph, converted to torch; it differs from ONNX Runtime"
    assert 0 <= float(rest.split()[0]) < 1e-5 and rest.endswith("of the range of its scores on 32 images")
    assert "has not been compared" in plain.lacks[Capability.GRADIENTS] and plain.identity.gradients == ""


def test_passes_of_both_are_counted(small: Path):
    found = settled(small)
    forward = found.forward_passes
    found.logits(images(3))
    found.loss_gradient(images(4), cross_entropy(torch.zeros(4, dtype=torch.int64)))
    found.jacobian(images(2))
    assert (found.forward_passes - forward, found.backward_passes) == (3 + 4 + 2, 4 + 2 * 5)


def test_rows_are_bit_identical_under_permutation_and_partial_fill(small: Path):
    found, x, labels = settled(small, block_rows=16), images(40), torch.arange(40) % 5
    whole = found.loss_gradient(x, cross_entropy(labels))[2]
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.loss_gradient(x[order], cross_entropy(labels[order]))[2], whole[order])
    assert torch.equal(found.loss_gradient(x[3:8], cross_entropy(labels[3:8]))[2], whole[3:8])


def test_gradients_see_the_same_input_specification(small: Path):
    options = "range=0-255,mean=100/110/120,std=50/60/70,channels=BGR"
    x, labels = images(5), torch.arange(5)
    found = settled(small, spec=options)
    low = torch.tensor([100.0, 110, 120]).view(3, 1, 1)
    high = torch.tensor([50.0, 60, 70]).view(3, 1, 1)
    leaf = x.clone().requires_grad_(True)
    loss = torch.nn.functional.cross_entropy(Small()((leaf.flip(1) * 255 - low) / high), labels, reduction="sum")
    (expected,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(found.loss_gradient(x, cross_entropy(labels))[2], expected, rtol=1e-3, atol=1e-5)


def test_a_saturated_softmax_at_the_end_does_not_hide_gradients(tmp_path: Path):
    module = Steep(10_000)
    found = settled(exported(Softmaxed(module), images(2), tmp_path / "steep.onnx", dynamo=False))
    assert found.identity.outputs == "probabilities (detected)"
    x = images(8)
    top = found.logits(x).argmax(dim=1)
    # The runtime answers with certainty, so the logarithm of its answer has a gradient of zero.
    assert float(found.logits(x).exp().amax(dim=1).min()) == 1
    leaf = x.clone().requires_grad_(True)
    gaps = module(leaf)
    expected = torch.autograd.grad((gaps.topk(2, dim=1).values[:, 1] - gaps.amax(dim=1)).sum(), leaf)[0]
    margin = lambda z, rows: z.topk(2, dim=1).values[:, 1] - z.gather(1, top[rows, None])[:, 0]  # noqa: E731
    torch.testing.assert_close(found.loss_gradient(x, margin)[2], expected, rtol=1e-3, atol=1e-3)
    assert float(expected.abs().max()) > 1


def test_probabilities_that_no_softmax_made_work_as_in_torch(tmp_path: Path):
    x = images(6)
    found = settled(exported(ByHand(3.0), images(2), tmp_path / "net.onnx", dynamo=False))
    expected = resolve_outputs(wrap(Softmaxed(Steep(3.0)), image_shape=SHAPE, device="cpu"), x)
    assert found.identity.outputs == "probabilities (detected)"
    torch.testing.assert_close(found.jacobian(x)[1], expected.jacobian(x)[1], rtol=1e-3, atol=1e-4)


def test_a_conversion_that_computes_something_else_is_not_believed(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Other(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * 1.01)

    other = convert(onnx.load(exported(Other(), images(2), tmp_path / "other.onnx", dynamo=False)))
    monkeypatch.setattr(onnx_gradients, "convert", lambda *_, **__: other)
    found = settled(small)
    reason = found.lacks[Capability.GRADIENTS]
    assert reason.startswith("ONNX Runtime has no backward pass, and the graph, converted to torch, differs from it by up to 0.0")
    assert reason.endswith("of the range of its scores on 32 images (at most 0.0001 is accepted)")
    assert found.identity.gradients == ""
    with pytest.raises(MissingCapability, match="differs from it"):
        found.jacobian(images(1))
    assert torch.equal(found.logits(images(3)), opened(small).logits(images(3)))


def test_a_conversion_that_fails_leaves_a_black_box(small: Path, monkeypatch: pytest.MonkeyPatch):
    wrong = convert(graph([helper.make_node("MatMul", ["x", "w"], ["y"])], ["n", 5], {"w": normal(5, 3)}))
    monkeypatch.setattr(onnx_gradients, "convert", lambda *_, **__: wrong)
    assert "converted to torch, fails: mat1 and mat2 shapes cannot be multiplied" in settled(small).lacks[Capability.GRADIENTS]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (helper.make_node("LpPool", ["x"], ["seen"], kernel_shape=[1, 1]), "operator LpPool has no conversion"),
        (
            helper.make_node("QuickGelu", ["x"], ["seen"], domain="com.microsoft"),
            "operator QuickGelu (domain com.microsoft) has no conversion",
        ),
    ],
)
def test_an_operator_without_conversion_leaves_a_black_box_and_is_named(tmp_path: Path, node: onnx.NodeProto, says: str):
    path = saved(tmp_path / "net.onnx", [node])
    if node.domain:
        model = onnx.load(path)
        model.opset_import.append(helper.make_opsetid(node.domain, 1))
        onnx.save(model, path)
    found = settled(path)
    reason = f"ONNX Runtime has no backward pass, and the graph cannot be converted to torch: {says}"
    assert found.lacks[Capability.GRADIENTS] == reason
    with pytest.raises(MissingCapability, match="has no conversion"):
        found.loss_gradient(images(1), cross_entropy(torch.zeros(1, dtype=torch.int64)))
    assert found.logits(images(2)).shape == (2, 4)


ROUNDED = [
    helper.make_node("Mul", ["x", "bytes"], ["scaled"]),
    helper.make_node("Round", ["scaled"], ["whole"]),
    helper.make_node("Div", ["whole", "bytes"], ["rounded"]),
]


def test_rounding_on_every_path_leaves_a_black_box_and_is_named(tmp_path: Path):
    found = settled(saved(tmp_path / "net.onnx", [*ROUNDED, helper.make_node("Identity", ["rounded"], ["seen"])]))
    reason = found.lacks[Capability.GRADIENTS]
    assert reason.endswith("every path from image to output passes an operator without a useful gradient: Round")
    assert found.identity.gradients_lost_in == ("Round",)


def test_rounding_beside_a_smooth_path_is_a_caution(tmp_path: Path):
    found = settled(saved(tmp_path / "net.onnx", [*ROUNDED, helper.make_node("Add", ["rounded", "x"], ["seen"])]))
    assert Capability.GRADIENTS not in found.lacks
    assert found.identity.gradients_lost_in == ("Round",)
    (caution,) = found.identity.cautions
    assert "operators without a useful gradient (Round)" in caution
    jacobian = found.jacobian(images(2))[1]
    torch.testing.assert_close(jacobian, torch.from_numpy(normal(192, 4).T).expand(2, 4, 192), rtol=1e-5, atol=1e-5)


def test_what_a_quantised_graph_hides_is_counted(tmp_path: Path):
    steps = {"scale": np.array(1 / 255, np.float32), "zero": np.array(0, np.uint8), "w": normal(192, 4)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Flatten", ["d"], ["flat"]),
        helper.make_node("QuantizeLinear", ["flat", "scale", "zero"], ["q2"]),
        helper.make_node("DequantizeLinear", ["q2", "scale", "zero"], ["d2"]),
        helper.make_node("MatMul", ["d2", "w"], ["y"]),
    ]
    path = tmp_path / "net.onnx"
    onnx.save(graph(nodes, ["n", *SHAPE], steps), path)
    # Behind the first, nothing is left for the second to end.
    assert settled(path).identity.gradients_lost_in == ("QuantizeLinear",)
    model = convert(onnx.load(path))
    expected = torch.from_numpy(opened(path).logits(images(5)).numpy())
    torch.testing.assert_close(model(images(5)), expected, rtol=1e-4, atol=1e-4)


def test_a_rectifier_written_with_a_comparison_hides_nothing(tmp_path: Path):
    nodes = [
        helper.make_node("Greater", ["x", "half"], ["over"]),
        helper.make_node("Where", ["over", "x", "half"], ["seen"]),
    ]
    found = settled(saved(tmp_path / "net.onnx", nodes))
    assert found.identity.gradients_lost_in == () and Capability.GRADIENTS not in found.lacks
    step = [
        helper.make_node("Greater", ["x", "half"], ["over"]),
        helper.make_node("Cast", ["over"], ["seen"], to=TensorProto.FLOAT),
    ]
    assert settled(saved(tmp_path / "step.onnx", step)).identity.gradients_lost_in == ("Greater",)


def test_a_graph_of_bytes_has_no_gradients(tmp_path: Path):
    nodes = [helper.make_node("Cast", ["x"], ["seen"], to=TensorProto.FLOAT)]
    found = settled(saved(tmp_path / "net.onnx", nodes, dtype=TensorProto.UINT8))
    assert "takes 8-bit integers" in found.lacks[Capability.GRADIENTS]


def test_half_precision_is_held_to_its_own_tolerance(tmp_path: Path):
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y16"]),
        helper.make_node("Cast", ["y16"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = normal(192, 4).astype(np.float16)
    onnx.save(graph(nodes, ["n", *SHAPE], {"w": weights}, dtype=TensorProto.FLOAT16), tmp_path / "net.onnx")
    found = settled(tmp_path / "net.onnx")
    assert Capability.GRADIENTS not in found.lacks
    expected = torch.from_numpy(weights.astype(np.float32).T).expand(2, 4, 192)
    torch.testing.assert_close(found.jacobian(images(2))[1], expected, rtol=1e-3, atol=1e-3)


def test_weights_in_another_file_are_read(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "model" / "net.onnx"
    path.parent.mkdir()
    onnx.save(onnx.load(small), path, save_as_external_data=True, location="net.weights", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    assert Capability.GRADIENTS not in settled(Path("model/net.onnx")).lacks


def test_a_black_box_is_asked_for(small: Path, monkeypatch: pytest.MonkeyPatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be converted")

    monkeypatch.setattr(onnx_gradients, "convert", never)
    found = settled(small, black_box=True)
    assert found.lacks == {Capability.GRADIENTS: BLACK_BOX_ASKED, Capability.ACTIVATIONS: BLACK_BOX_ASKED}
    with pytest.raises(MissingCapability, match="--black-box"):
        found.jacobian(images(1))
    assert torch.equal(found.logits(images(3)), opened(small).logits(images(3)))


def test_a_classifier_without_a_module_stays_as_it_is(small: Path):
    loaded = opened(small)
    assert isinstance(loaded, OnnxClassifier)
    bare = OnnxClassifier(loaded._graph, identity=replace(loaded.identity), spec=loaded.spec, block_rows=32, free_rows=32)
    assert resolve_outputs(bare, images(8)).lacks[Capability.GRADIENTS].endswith("the graph was not converted to torch")


class OneUnit(torch.nn.Module):
    """The probability of the second class, or its logit."""

    def __init__(self, *, sigmoid: bool) -> None:
        super().__init__()
        self.inner, self.sigmoid = Small(classes=1), sigmoid

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logit = self.inner(x)
        return logit.sigmoid() if self.sigmoid else logit


@pytest.mark.parametrize("sigmoid", [True, False])
def test_one_unit_has_gradients_of_both_classes(tmp_path: Path, sigmoid: bool):
    module = OneUnit(sigmoid=sigmoid)
    found = settled(exported(module, images(2), tmp_path / "one.onnx", dynamo=False))
    assert Capability.GRADIENTS not in found.lacks, found.lacks
    x, labels = images(6, seed=4), torch.tensor([0, 1, 0, 1, 1, 0])
    leaf = x.clone().requires_grad_(True)
    logit = module.inner(leaf)[:, 0]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, labels.float(), reduction="sum")
    (expected,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(found.loss_gradient(x, cross_entropy(labels))[2], expected, rtol=1e-3, atol=1e-6)


def test_a_graph_freed_from_its_batch_gives_gradients_in_whole_blocks(tmp_path: Path):
    path = tmp_path / "fixed.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Small().eval(), (images(1),), path, dynamo=False, input_names=["x"])
    found = settled(path, block_rows=16)
    assert "rewritten from batches of 1" in found.identity.runtime
    assert Capability.GRADIENTS not in found.lacks, found.lacks
    sizes: set[int] = set()

    def loss(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        sizes.add(len(rows))
        return cross_entropy(torch.arange(20) % 5)(logits, rows)

    x = images(20, seed=3)
    theirs = wrap(Small(), image_shape=SHAPE, device="cpu").loss_gradient(x, cross_entropy(torch.arange(20) % 5))[2]
    torch.testing.assert_close(found.loss_gradient(x, loss)[2], theirs, rtol=1e-4, atol=1e-6)
    assert sizes == {16}
