"""ONNX graphs as exporters and tools leave them: fixed batches, quantised weights, several outputs, maps, bombs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from small_models import LiveDropout, Small, images
from torch import nn

from audit.cli import cli
from audit.errors import InputError, ModelError
from audit.models import Classifier, ModelRef, load, onnx_session, resolve_outputs
from audit.models.torch_module import wrap

SHAPE = (3, 8, 8)
WEIGHT = np.random.default_rng(0).normal(size=(192, 3)).astype(np.float32) / 14
FLATTEN = helper.make_node("Flatten", ["image"], ["flat"], axis=1)
MATMUL = helper.make_node("MatMul", ["flat", "weight"], ["scores"])


def open_file(path: Path, **options: object) -> Classifier:
    return load(ModelRef.parse(str(path)), image_shape=SHAPE, device="cpu", **options)  # type: ignore[arg-type]


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    outputs: list[onnx.ValueInfoProto],
    *,
    rows: int | str = "n",
    stored: dict[str, np.ndarray] | None = None,
    inputs: tuple[onnx.ValueInfoProto, ...] = (),
) -> Path:
    """A graph over `image` (rows, 3, 8, 8), written node by node."""
    tensors = [numpy_helper.from_array(array, name) for name, array in {"weight": WEIGHT, **(stored or {})}.items()]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [rows, 3, 8, 8])
    graph = helper.make_graph(nodes, "by hand", [image, *inputs], outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def value(name: str, *sizes: int | str, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, sizes)


def by_hand(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1) @ torch.from_numpy(WEIGHT)


def exported(module: nn.Module, path: Path, rows: int, **options: object) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (images(rows),), path, verbose=False, external_data=False, **options)  # type: ignore[arg-type]
    return path


# Fixed batches


@pytest.mark.parametrize("rows", [1, 4])
def test_a_fixed_batch_is_freed_where_the_scores_stay_the_same(tmp_path: Path, rows: int) -> None:
    fixed = open_file(exported(Small().eval(), tmp_path / "net.onnx", rows))
    free = resolve_outputs(fixed, images(32))
    assert free.identity.runtime.endswith(f"CPUExecutionProvider, rewritten from batches of {rows}")
    assert free.identity.cautions == ()
    x = images(50, seed=7)
    expected = wrap(Small(), image_shape=SHAPE, device="cpu").logits(x)
    torch.testing.assert_close(free.logits(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fixed.logits(x), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(free.logits(x[3:9]), free.logits(x)[3:9])


def fixed_reshape(path: Path, sizes: list[int], *, allow_zero: int = 0) -> Path:
    nodes = [helper.make_node("Reshape", ["image", "sizes"], ["flat"], allowzero=allow_zero), MATMUL]
    return saved(path, nodes, [value("scores", 2, 3)], rows=2, stored={"sizes": np.array(sizes, dtype=np.int64)})


@pytest.mark.parametrize("sizes", [[2, 192], [2, -1], [-1, 192], [0, -1]])
def test_a_batch_written_into_a_reshape_is_freed(tmp_path: Path, sizes: list[int]) -> None:
    free = resolve_outputs(open_file(fixed_reshape(tmp_path / "net.onnx", sizes)), images(32))
    assert "rewritten from batches of 2" in free.identity.runtime
    torch.testing.assert_close(free.logits(images(9)), by_hand(images(9)), rtol=1e-5, atol=1e-5)


def test_a_graph_that_mixes_its_batch_stays_fixed_and_says_so(tmp_path: Path) -> None:
    """The mean over the batch is another one for another batch: only comparing shows that."""
    nodes = [
        FLATTEN,
        helper.make_node("MatMul", ["flat", "weight"], ["raw"]),
        helper.make_node("ReduceMean", ["raw"], ["mean"], axes=[0]),
        helper.make_node("Add", ["raw", "mean"], ["scores"]),
    ]
    classifier = resolve_outputs(open_file(saved(tmp_path / "net.onnx", nodes, [value("scores", 2, 3)], rows=2)), images(32))
    assert "rewritten" not in classifier.identity.runtime
    assert any("takes batches of 2 only" in text and "scores differ by" in text for text in classifier.identity.cautions)
    raw = by_hand(images(4)).reshape(2, 2, 3)
    torch.testing.assert_close(classifier.logits(images(4)), (raw + raw.mean(1, keepdim=True)).reshape(4, 3), rtol=1e-5, atol=1e-5)


def test_a_batch_whose_order_matters_stays_fixed_and_says_so(tmp_path: Path) -> None:
    """A single image has none before it, and these come in an order in which that changes nothing: only another order shows it."""
    nodes = [
        FLATTEN,
        helper.make_node("MatMul", ["flat", "weight"], ["raw"]),
        helper.make_node("ReduceMean", ["raw"], ["level"], axes=[1], keepdims=1),
        helper.make_node("Slice", ["level", "zero", "one"], ["head"]),
        helper.make_node("Slice", ["level", "zero", "minus"], ["tail"]),
        helper.make_node("Concat", ["head", "tail"], ["before"], axis=0),
        helper.make_node("Sub", ["before", "level"], ["fall"]),
        helper.make_node("Relu", ["fall"], ["extra"]),
        helper.make_node("Add", ["raw", "extra"], ["scores"]),
    ]
    stored = {name: np.array([k], dtype=np.int64) for name, k in (("zero", 0), ("one", 1), ("minus", -1))}
    path = saved(tmp_path / "net.onnx", nodes, [value("scores", 1, 3)], rows=1, stored=stored)
    rising = images(32)[by_hand(images(32)).mean(1).argsort()]
    classifier = resolve_outputs(open_file(path), rising)
    assert "rewritten" not in classifier.identity.runtime
    assert any("an image's scores change by" in text for text in classifier.identity.cautions)
    torch.testing.assert_close(classifier.logits(images(9)), by_hand(images(9)), rtol=1e-5, atol=1e-5)


def test_a_batch_that_cannot_be_freed_runs_block_by_block(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["image", "token"], ["wide"], axis=3),
        helper.make_node("Flatten", ["wide"], ["all"], axis=1),
    ]
    nodes.append(helper.make_node("MatMul", ["all", "wider"], ["scores"]))
    stored = {"token": np.zeros((2, 3, 8, 1), np.float32), "wider": np.ones((216, 3), np.float32)}
    path = saved(tmp_path / "net.onnx", nodes, [value("scores", 2, 3)], rows=2, stored=stored)
    classifier = resolve_outputs(open_file(path), images(5))
    assert any("its Concat '' has the batch built in" in text for text in classifier.identity.cautions)
    sums = images(5).sum((1, 2, 3))[:, None].expand(-1, 3)
    torch.testing.assert_close(classifier.logits(images(5)), sums, rtol=1e-5, atol=1e-4)


# Kinds of numbers and of storage


def test_a_whole_network_in_half_precision(tmp_path: Path) -> None:
    x = images(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Small().eval().half(), (images(2).half(),), tmp_path / "net.onnx", verbose=False, external_data=False)
    classifier = resolve_outputs(open_file(tmp_path / "net.onnx"), images(32))
    assert classifier.identity.input_spec["dtype"] == "float16"
    expected = wrap(Small(), image_shape=SHAPE, device="cpu").logits(x)
    torch.testing.assert_close(classifier.logits(x), expected, rtol=2e-2, atol=2e-3)


def test_a_whole_network_in_double_precision(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).double().eval()
    for module, name in ((network, "net.onnx"), (Small().double().eval(), "convolutions.onnx")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (images(2).double(),), tmp_path / name, verbose=False, external_data=False)
    classifier = open_file(tmp_path / "net.onnx")
    assert classifier.identity.input_spec["dtype"] == "float64"
    torch.testing.assert_close(classifier.logits(images(6)), network(images(6).double()).float(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match="has no Conv for the graph's kind of numbers; export the model in float32"):
        open_file(tmp_path / "convolutions.onnx")


@pytest.mark.parametrize("kind", ["QDQ", "QOperator"])
def test_quantised_networks(tmp_path: Path, kind: str) -> None:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.rows = iter([{name: images(1, seed=seed).numpy()} for seed in range(20)])

        def get_next(self) -> object:
            return next(self.rows, None)

    path = exported(Small().eval(), tmp_path / "net.onnx", 1, input_names=["image"])
    target = tmp_path / "quantised.onnx"
    quantization.quantize_static(path, target, Reader("image"), quant_format=quantization.QuantFormat[kind])
    assert any("Quantize" in node.op_type for node in onnx.load(target).graph.node)
    classifier = resolve_outputs(open_file(target), images(32))
    x = images(40, seed=5)
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    direct = np.concatenate([session.run(None, {"image": row[None].numpy()})[0] for row in x])
    # One rounding may fall the other way in another batch; the scale of the outputs is about 0.3.
    np.testing.assert_allclose(classifier.logits(x).numpy(), direct, atol=0.02)
    expected = wrap(Small(), image_shape=SHAPE, device="cpu").logits(x)
    torch.testing.assert_close(classifier.logits(x), expected, rtol=0, atol=0.1)


def test_external_data_are_found_from_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    path = saved(folder / "net.onnx", [FLATTEN, MATMUL], [value("scores", 2, 3)], rows=2)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.weights", size_threshold=0)
    for place, text in ((tmp_path, "models/net.onnx"), (tmp_path, str(path)), (folder, "net.onnx"), (folder, "../models/net.onnx")):
        monkeypatch.chdir(place)
        classifier = load(ModelRef.parse(text), image_shape=SHAPE, device="cpu")
        free = resolve_outputs(classifier, images(32))
        assert sorted(free.identity.files) == ["net.onnx", "net.weights"]
        assert "rewritten" in free.identity.runtime
        torch.testing.assert_close(free.logits(images(3)), by_hand(images(3)), rtol=1e-5, atol=1e-5)


def test_initialisers_listed_as_inputs_are_not_asked_for(tmp_path: Path) -> None:
    listed = (value("weight", 192, 3),)
    path = saved(tmp_path / "net.onnx", [FLATTEN, MATMUL], [value("scores", 1, 3)], rows=1, inputs=listed)
    free = resolve_outputs(open_file(path), images(32))
    assert "rewritten" in free.identity.runtime
    torch.testing.assert_close(free.logits(images(4)), by_hand(images(4)), rtol=1e-5, atol=1e-5)


# Outputs


def two_heads(path: Path) -> Path:
    nodes = [
        FLATTEN,
        MATMUL,
        helper.make_node("Neg", ["scores"], ["negated"]),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1),
    ]
    outputs = [value("label", "n", 1, dtype=TensorProto.INT64), value("scores", "n", 3), value("negated", "n", 3)]
    return saved(path, nodes, outputs)


def test_the_output_is_chosen_by_name(tmp_path: Path) -> None:
    path = two_heads(tmp_path / "net.onnx")
    default, named = open_file(path), open_file(path, output="negated")
    torch.testing.assert_close(named.logits(images(3)), -default.logits(images(3)))
    assert any("3 outputs; 'scores' was used" in text for text in default.identity.cautions)
    assert named.identity.cautions == ()
    # What was measured on one output must not be taken for the other.
    assert (default.identity.input_spec["output"], named.identity.input_spec["output"]) == ("scores", "negated")
    with pytest.raises(
        InputError, match=r"has no output 'negate'; did you mean 'negated'\? \(it has 'label', 'scores', 'negated'\)"
    ):
        open_file(path, output="negate")
    with pytest.raises(ModelError, match=r"gives only class numbers \('label'\).*one score per class.*--output"):
        open_file(path, output="label")


def test_class_numbers_alone_are_refused(tmp_path: Path) -> None:
    nodes = [FLATTEN, MATMUL, helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0)]
    with pytest.raises(ModelError, match=r"gives only class numbers \('label' \(tensor\(int64\)\)\)"):
        open_file(saved(tmp_path / "net.onnx", nodes, [value("label", "n", dtype=TensorProto.INT64)]))


@pytest.mark.parametrize("labels", [[0, 1, 2], [5, 3, 9], ["wolf", "ant", "owl"]])
def test_maps_of_labels_as_scikit_learn_exports_them(tmp_path: Path, labels: list[int] | list[str]) -> None:
    words = isinstance(labels[0], str)
    key = TensorProto.STRING if words else TensorProto.INT64
    attribute = {"classlabels_strings" if words else "classlabels_int64s": labels}
    nodes = [FLATTEN, MATMUL, helper.make_node("Softmax", ["scores"], ["p"], axis=1)]
    nodes += [
        helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", **attribute),  # type: ignore[arg-type]
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, None)))
    outputs = [value("label", "n", dtype=TensorProto.INT64), helper.make_value_info("maps", maps)]
    classifier = resolve_outputs(open_file(saved(tmp_path / "net.onnx", nodes, outputs)), images(6))
    assert classifier.identity.outputs == "probabilities (detected)"
    torch.testing.assert_close(classifier.logits(images(6)), by_hand(images(6)).log_softmax(1), rtol=1e-4, atol=1e-4)
    assert classifier.identity.class_names == (("wolf", "ant", "owl") if words else ())
    assert any("labels are 5, 3, 9; they were taken for classes 0 to 2" in text for text in classifier.identity.cautions) == (
        labels == [5, 3, 9]
    )


@pytest.mark.parametrize("trailing", [1, 2])
def test_trailing_sizes_of_one_are_dropped(tmp_path: Path, trailing: int) -> None:
    nodes = [FLATTEN, MATMUL, helper.make_node("Unsqueeze", ["scores", "axes"], ["map"])]
    stored = {"axes": np.arange(2, 2 + trailing, dtype=np.int64)}
    path = saved(tmp_path / "net.onnx", nodes, [value("map", "n", 3, *[1] * trailing)], stored=stored)
    torch.testing.assert_close(open_file(path).logits(images(3)), by_hand(images(3)), rtol=1e-5, atol=1e-5)


# Training mode


def test_dropout_left_on_is_named_by_its_node(tmp_path: Path) -> None:
    nodes = [FLATTEN, helper.make_node("Dropout", ["flat", "ratio", "train"], ["dropped"], name="drop/1")]
    nodes.append(helper.make_node("MatMul", ["dropped", "weight"], ["scores"]))
    for live in (True, False):
        stored = {"ratio": np.array(0.5, np.float32), "train": np.array(live)}
        cautions = open_file(saved(tmp_path / "net.onnx", nodes, [value("scores", "n", 3)], stored=stored)).identity.cautions
        assert bool(cautions) == live
        if live:
            assert len(cautions) == 1 and "random at drop/1: dropout was live" in cautions[0] and "model.eval()" in cautions[0]


def test_dropout_that_torch_exported_is_found_too(tmp_path: Path) -> None:
    path = exported(LiveDropout().train(), tmp_path / "net.onnx", 2, training=torch.onnx.TrainingMode.TRAINING, dynamo=False)
    assert any("dropout was live" in text for text in open_file(path).identity.cautions)


def test_batch_statistics_are_named(tmp_path: Path) -> None:
    node = helper.make_node(
        "BatchNormalization", ["image", "one", "zero", "zero", "one"], ["normal", "m", "v"], training_mode=1, name="bn3"
    )
    nodes = [node, helper.make_node("Flatten", ["normal"], ["flat"], axis=1), MATMUL]
    stored = {"one": np.ones(3, np.float32), "zero": np.zeros(3, np.float32)}
    (caution,) = open_file(saved(tmp_path / "net.onnx", nodes, [value("scores", "n", 3)], stored=stored)).identity.cautions
    assert "statistics of the batch at bn3" in caution


# Bombs


def claim(path: Path) -> Path:
    model = onnx.load(saved(path, [FLATTEN, MATMUL], [value("scores", "n", 3)]))
    model.graph.initializer[0].dims[1] = 10**10
    path.write_bytes(model.SerializeToString())
    return path


def claim_outside(path: Path) -> Path:
    saved(path, [FLATTEN, MATMUL], [value("scores", "n", 3)])
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[1] = 10**10
    path.write_bytes(model.SerializeToString())
    return path


def filler(path: Path) -> Path:
    nodes = [
        helper.make_node("ConstantOfShape", ["huge"], ["filled"]),
        helper.make_node("ReduceSum", ["filled"], ["one"], keepdims=0),
    ]
    nodes += [FLATTEN, helper.make_node("MatMul", ["flat", "weight"], ["raw"]), helper.make_node("Add", ["raw", "one"], ["scores"])]
    return saved(path, nodes, [value("scores", "n", 3)], stored={"huge": np.array([10**5, 10**5, 10], np.int64)})


def nested(path: Path) -> Path:
    """Field 7 of a model is its graph; a graph inside an attribute of a node inside a graph, two thousand times."""

    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    content = b""
    for _ in range(2000):
        content = field(1, field(5, field(6, content)))
    path.write_bytes(b"\x08\x0a" + field(7, content))
    return path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (claim, r"its tensor 'weight' claims 1.9e\+12 values, but the file has \d+ bytes"),
        (claim_outside, r"its tensor 'weight' claims 1.9e\+12 values, but the file has 2304 bytes"),
        (filler, r"computing 'filled' takes a tensor of 1e\+11 values, more than any network needs"),
        (nested, "is not an ONNX graph, or is damaged"),
    ],
)
def test_graphs_that_would_fill_the_memory(tmp_path: Path, make: Callable[[Path], Path], says: str) -> None:
    with pytest.raises(ModelError, match=says) as error:
        open_file(make(tmp_path / "net.onnx"))
    assert "\n" not in str(error.value)


def test_a_graph_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = [value("i", dtype=TensorProto.INT64), value("go", dtype=TensorProto.BOOL), value("before", "n", 192)]
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["before"], ["after"])]
    body = helper.make_graph(nodes, "body", state, [value("on", dtype=TensorProto.BOOL), value("after", "n", 192)])
    loop = helper.make_node("Loop", ["trips", "yes", "flat"], ["rolled"], body=body)
    stored = {"trips": np.array(2**62, np.int64), "yes": np.array(True)}
    multiply = helper.make_node("MatMul", ["rolled", "weight"], ["scores"])
    path = saved(tmp_path / "net.onnx", [FLATTEN, loop, multiply], [value("scores", "n", 3)], stored=stored)
    monkeypatch.setattr(onnx_session, "PATIENCE_S", 0.5)
    with pytest.raises(ModelError, match=r"net: the graph had not computed 32 images after 0\.5 seconds, so it was stopped"):
        open_file(path)
    stored["trips"] = np.array(3, np.int64)
    path = saved(tmp_path / "net.onnx", [FLATTEN, loop, multiply], [value("scores", "n", 3)], stored=stored)
    rolled = images(2).flatten(1).sin().sin().sin() @ torch.from_numpy(WEIGHT)
    torch.testing.assert_close(open_file(path).logits(images(2)), rolled, rtol=1e-5, atol=1e-5)


def test_the_output_is_an_option_of_the_command_line(tmp_path: Path) -> None:
    path = two_heads(tmp_path / "net.onnx")
    pixels = (images(12).permute(0, 2, 3, 1).numpy() * 255).astype(np.uint8)
    np.savez(tmp_path / "data.npz", images=pixels, labels=np.arange(12) % 3)

    def planned(name: str) -> tuple[int, str]:
        arguments = ["plan", str(path), "--data", str(tmp_path / "data.npz"), "--allow-chance", "--output", name]
        done = CliRunner().invoke(cli, arguments)
        return done.exit_code, done.output

    assert planned("negated")[0] == 0
    code, said = planned("scroes")
    assert code == 2 and "Error: net: has no output 'scroes'; did you mean 'scores'?" in said and "Traceback" not in said
