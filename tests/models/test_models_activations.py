"""Inner layers: what is read equals what hooks, written out by hand, see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from exported import exported
from onnx import helper
from onnx_graphs import graph, normal, opened
from small_models import Small, Softmaxed, Store, images, open_model
from torch import nn

from audit.errors import MissingCapability, ModelError
from audit.models import Classifier, resolve_outputs
from audit.models.composed import black_box
from audit.models.neurons import NO_LAYERS, Neurons
from audit.models.torch_module import Serialisation, wrap
from audit.vocabulary import Capability

SHAPE = (3, 8, 8)


class InPlace(nn.Module):
    """A rectifier that writes over the normalisation's output, and is used twice."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 6, 3)
            self.norm = nn.BatchNorm2d(6)
            self.act = nn.ReLU(inplace=True)
            self.head = nn.Linear(6 * 36, 5)
            self.norm.running_mean.normal_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.head(self.act(self.norm(self.conv(x))).flatten(1))) - 1


class Tokens(nn.Module):
    """Convolution, tokens with attention, channels last and back: one of each kind of layout."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.patches = nn.Conv2d(3, 8, 2, stride=2)
            self.last = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8))
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.last(self.patches(x).movedim(1, -1))
        tokens = x.flatten(1, 2)
        return self.head((tokens + self.attention(tokens, tokens, tokens)[0]).mean(1))


def classifier(network: nn.Module, **options: object) -> Classifier:
    return wrap(network, image_shape=SHAPE, device="cpu", **options)  # type: ignore[arg-type]


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=tolerance)


def test_layers_of_a_module_are_what_its_steps_give() -> None:
    x, net = images(20), Small().eval()
    found = classifier(Small(), block_rows=8).activations(x)
    first = net.features[0](x)
    second = net.features[1](first)
    last = net.features(x)
    assert list(found) == ["features.0", "features.1", "features.2", "features.3", "head"]
    close(found["features.0"], first.mean((2, 3)))
    close(found["features.1"], second.mean((2, 3)))
    close(found["features.3"], last.mean((2, 3)))
    close(found["head"], net.head(last.flatten(1)))
    assert all(each.dtype == torch.float32 and not each.requires_grad for each in found.values())


def test_a_layer_that_is_written_over_or_used_again_keeps_its_values() -> None:
    x, net = images(5), InPlace().eval()
    found = classifier(InPlace()).activations(x)
    normed = net.norm(net.conv(x))
    assert list(found) == ["conv", "norm", "act", "head", "act:2"]
    close(found["norm"], normed.mean((2, 3)))
    rectified = normed.relu()
    close(found["act"], rectified.mean((2, 3)))
    close(found["head"], net.head(rectified.flatten(1)))
    close(found["act:2"], net.head(rectified.flatten(1)).relu())


def test_features_are_found_in_every_layout() -> None:
    x, net = images(6), Tokens().eval()
    found = classifier(Tokens(), block_rows=4).activations(x)
    assert list(found) == ["patches", "last.0", "last.1", "last.2", "last.3", "attention", "head"]
    channels_last = net.patches(x).movedim(1, -1)
    close(found["patches"], channels_last.mean((1, 2)))
    close(found["last.0"], net.last[:1](channels_last).mean((1, 2)))
    close(found["last.2"], net.last[:3](channels_last).mean((1, 2)))
    tokens = net.last(channels_last).flatten(1, 2)
    close(found["attention"], net.attention(tokens, tokens, tokens)[0].mean(1), 1e-5)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    x, model = images(40), classifier(InPlace(), block_rows=16)
    whole = model.activations(x)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for name, values in model.activations(x[order]).items():
        assert torch.equal(values, whole[name][order])
    for name, values in model.activations(x[3:8]).items():
        assert torch.equal(values, whole[name][3:8])
    assert model.forward_passes == 40 + 40 + 5
    assert {name: values.shape for name, values in model.activations(x[:0]).items()}["norm"] == (0, 6)


def test_no_hook_stays_behind() -> None:
    net = Small()
    model = classifier(net)
    model.activations(images(3))
    assert not any(module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("kind", ["attention with its tokens first", "windows"])
def test_a_layer_whose_rows_are_no_images_is_left_out(kind: str) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.odd = Small(), nn.Linear(3, 3) if kind == "windows" else nn.MultiheadAttention(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # 64 tokens, and 64 rows to a block: by its size alone, the first axis may be either.
            tokens = x.flatten(2).permute(2, 0, 1)
            seen = self.odd(tokens) if kind == "windows" else self.odd(tokens, tokens, tokens)[0]
            return self.inner(x) + 0 * seen.mean((0, 2))[:, None]

    found = classifier(Odd(), block_rows=64).activations(images(3))
    assert "odd" not in found and "inner.head" in found


def test_a_module_without_layers_says_why() -> None:
    model = classifier(torch.jit.trace(Small().eval(), images(2)))
    assert model.lacks[Capability.ACTIVATIONS] == NO_LAYERS
    with pytest.raises(MissingCapability, match="shows one row per image"):
        model.activations(images(2))


def test_a_layer_that_some_images_skip_is_an_error() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.more = Small(), nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.inner(x)
            return scores if x.mean() > 0.9 else self.more(scores)

    model = classifier(Skips())
    model.activations(images(2))
    with pytest.raises(ModelError, match="its layer more does not run on every image"):
        model.activations(torch.ones(2, *SHAPE))


def test_values_that_are_not_finite_are_an_error() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.bad = Small(), nn.Sigmoid()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            bright = x.mean((1, 2, 3))[:, None] > 0.9
            self.bad(torch.where(bright, float("nan"), 0.5))
            return self.inner(x)

    model, bright = classifier(Hidden()), torch.ones(3, *SHAPE)
    bright[0] = 0.5
    assert model.activations(bright[:1])["bad"].shape == (1, 1) and model.logits(bright).isfinite().all()
    with pytest.raises(ModelError, match="layer bad: 2 of 3 outputs are NaN or infinite"):
        model.activations(bright)


def test_an_exported_program_shows_the_operators_of_its_graph() -> None:
    x, net = images(9), InPlace().eval()
    program = torch.export.export(net, (images(4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    model = classifier(program.module(), serialisation=Serialisation.PT2, block_rows=4)
    found, twin = model.activations(x), classifier(InPlace(), block_rows=4).activations(x)
    assert list(found) == ["conv2d", "batch_norm", "relu_", "linear", "relu__1"]
    for ours, theirs in zip(found.values(), twin.values(), strict=True):
        close(ours, theirs)
    decomposed = classifier(program.run_decompositions().module(), serialisation=Serialisation.PT2, block_rows=4).activations(x)
    for ours, theirs in zip(decomposed.values(), twin.values(), strict=True):
        close(ours, theirs)


def test_a_product_of_two_activations_is_no_layer() -> None:
    net = Tokens().eval()
    program = torch.export.export(net, (images(4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    found = classifier(program.module(), serialisation=Serialisation.PT2, block_rows=4).activations(images(3))
    assert not [name for name in found if name.startswith(("bmm", "softmax", "scaled"))]
    twin = classifier(Tokens(), block_rows=4).activations(images(3))
    close(found["gelu"], twin["last.2"])
    close(found["layer_norm"], twin["last.0"])


def test_a_program_from_mlflow_has_layers(store: Store) -> None:
    found = open_model(store, "models:/small/1", spec="range=0-1").activations(images(3))
    twin = classifier(Small()).activations(images(3))
    for ours, theirs in zip(found.values(), twin.values(), strict=True):
        close(ours, theirs)


def layers(path: Path) -> dict[str, torch.Tensor]:
    return dict(resolve_outputs(opened(path), images(32)).activations(images(20, seed=3)))


@pytest.mark.parametrize("dynamo", [False, True])
def test_a_converted_graph_shows_the_layers_of_its_twin(tmp_path: Path, dynamo: bool) -> None:
    class Rectified(Small):
        def __init__(self) -> None:
            super().__init__()
            self.features[1], self.features[3] = nn.ReLU(), nn.Tanh()

    found = layers(exported(Rectified(), images(2), tmp_path / "net.onnx", dynamo=dynamo))
    twin = classifier(Rectified()).activations(images(20, seed=3))
    assert len(found) == len(twin) == 5
    for ours, theirs in zip(found.values(), twin.values(), strict=True):
        close(ours, theirs, 1e-5)


def test_probabilities_do_not_hide_the_layers(tmp_path: Path) -> None:
    found = layers(exported(Softmaxed(Small()), images(2), tmp_path / "net.onnx", dynamo=False))
    twin = classifier(Small()).activations(images(20, seed=3))
    close(list(found.values())[-1], twin["head"], 1e-5)


def test_a_bias_that_is_added_belongs_to_its_product(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["hidden"]),
        helper.make_node("Sigmoid", ["hidden"], ["gate"]),
        helper.make_node("MatMul", ["gate", "v"], ["y"]),
    ]
    weights = {"w": normal(192, 6), "b": np.arange(6, dtype=np.float32), "v": normal(6, 4)}
    onnx.save(graph(nodes, ["n", *SHAPE], weights), tmp_path / "net.onnx")
    found = layers(tmp_path / "net.onnx")
    hidden = images(20, seed=3).flatten(1) @ torch.from_numpy(weights["w"]) + torch.arange(6)
    assert list(found) == ["hidden", "gate", "y"]
    close(found["hidden"], hidden, 1e-4)
    close(found["gate"], hidden.sigmoid(), 1e-4)


def test_a_graph_without_gradients_has_layers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Round", ["x"], ["bits"]),
        helper.make_node("Flatten", ["bits"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    onnx.save(graph(nodes, ["n", *SHAPE], {"w": normal(192, 4)}), tmp_path / "net.onnx")
    found = resolve_outputs(opened(tmp_path / "net.onnx"), images(32))
    assert set(found.lacks) == {Capability.GRADIENTS}
    close(found.activations(images(3))["y"], images(3).round().flatten(1) @ torch.from_numpy(normal(192, 4)), 1e-4)


def test_where_there_are_none_the_reason_is_raised(tmp_path: Path, store: Store) -> None:
    path = exported(Small(), images(2), tmp_path / "net.onnx", dynamo=False)
    unlooked = opened(path)
    because = "ONNX Runtime shows no inner layers, and the graph, converted to torch, has not been compared with it yet"
    assert unlooked.lacks[Capability.ACTIVATIONS] == because
    for model in (unlooked, black_box(classifier(Small()), "it was asked for")):
        with pytest.raises(MissingCapability, match=model.lacks[Capability.ACTIVATIONS]):
            model.activations(images(1))


def test_an_output_is_reduced_by_its_own_axes() -> None:
    found = Neurons(2)
    found.add("sequence", torch.arange(12.0).reshape(2, 2, 3), None)
    found.add("signal", torch.arange(12.0).reshape(2, 2, 3), 1)
    found.add("whole numbers", torch.zeros(2, 3, dtype=torch.int64), None)
    found.add("other rows", torch.zeros(3, 3), None)
    found.add("nothing", None, None)
    assert found.found["sequence"].tolist() == [[1.5, 2.5, 3.5], [7.5, 8.5, 9.5]]
    assert found.found["signal"].tolist() == [[1.0, 4.0], [7.0, 10.0]]
    assert list(found.found) == ["sequence", "signal"]
