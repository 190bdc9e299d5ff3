from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from small_models import Small, Softmaxed, images

from audit.errors import InputError, MissingCapability, ModelError
from audit.models import Classifier, ModelRef, load, resolve_outputs
from audit.models.torch_module import wrap
from audit.models.trust import overall_digest
from audit.vocabulary import Capability

SHAPE = (3, 8, 8)


def open_file(path: Path, **options: object) -> Classifier:
    return load(ModelRef.parse(str(path)), image_shape=SHAPE, device="cpu", **options)  # type: ignore[arg-type]


def export(module: torch.nn.Module, path: Path, *, rows: int | None) -> Path:
    dynamic = ({0: torch.export.Dim("batch")},) if rows is None else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), (images(rows or 2),), path, dynamo=True, dynamic_shapes=dynamic, verbose=False)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    export(Small(), folder / "dynamic.onnx", rows=None)
    export(Small(), folder / "fixed.onnx", rows=4)
    export(Softmaxed(Small()), folder / "softmax.onnx", rows=None)
    return folder


def graph(
    path: Path, *, dtype: int = TensorProto.FLOAT, shape: tuple[object, ...] = ("n", 3, 8, 8), outputs: int = 1, ir: int = 10
) -> Path:
    """flatten(cast(x)) @ W, written out node by node."""
    classes, pixels = 4, 192
    weight = np.random.default_rng(0).normal(size=(pixels, classes)).astype(np.float32)
    names = [f"scores{i}" for i in range(outputs)]
    nodes = [
        helper.make_node("Cast", ["image"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["float"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "weight"], [names[-1]]),
    ]
    if outputs == 2:
        nodes.append(helper.make_node("ArgMax", [names[-1]], [names[0]], axis=1, keepdims=0))
    infos = [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, ["n", classes])]
    if outputs == 2:
        infos.insert(0, helper.make_tensor_value_info(names[0], TensorProto.INT64, ["n"]))
    made = helper.make_graph(
        nodes,
        "by hand",
        [helper.make_tensor_value_info("image", dtype, shape)],
        infos,
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir)
    onnx.save(model, path)
    return path


def by_hand(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1) @ np.random.default_rng(0).normal(size=(192, 4)).astype(np.float32)


def test_an_exported_network_agrees_with_torch(folder: Path) -> None:
    x = images(50)
    classifier = open_file(folder / "dynamic.onnx")
    reference = wrap(Small(), image_shape=SHAPE, device="cpu")
    torch.testing.assert_close(classifier.logits(x), reference.logits(x), rtol=1e-5, atol=1e-5)
    assert (classifier.forward_passes, classifier.backward_passes, classifier.classes) == (50, 0, 5)
    identity = classifier.identity
    assert identity.runtime == f"ONNX Runtime {onnxruntime.__version__}, CPUExecutionProvider"
    assert (identity.name, identity.flavour, identity.device, identity.version) == ("dynamic", "onnx file", "cpu", None)
    assert identity.label == "dynamic"
    assert identity.input_shape == SHAPE and not identity.trusted and identity.cautions == ()


def test_rows_are_bit_identical_under_permutation_and_batch_size(folder: Path) -> None:
    x = images(40)
    classifier = open_file(folder / "dynamic.onnx", block_rows=16)
    whole = classifier.logits(x)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(classifier.logits(x[order]), whole[order])
    assert torch.equal(classifier.logits(x[3:8]), whole[3:8])


def test_a_fixed_batch_is_run_block_by_block(folder: Path) -> None:
    x = images(9)
    torch.testing.assert_close(
        open_file(folder / "fixed.onnx").logits(x), wrap(Small(), image_shape=SHAPE, device="cpu").logits(x), rtol=1e-5, atol=1e-5
    )


def test_the_digest_covers_external_data(tmp_path: Path) -> None:
    path = graph(tmp_path / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.weights", size_threshold=0)
    files = open_file(path).identity.files
    assert files == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("net.onnx", "net.weights")}
    pairs = "".join(f"{name}\0{files[name]}\n" for name in ("net.onnx", "net.weights"))
    assert overall_digest(files) == open_file(path).identity.digest == hashlib.sha256(pairs.encode()).hexdigest()
    (tmp_path / "net.weights").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"'net\.weights' is named by the model, but is missing"):
        open_file(path)


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path = graph(tmp_path / "inner" / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.weights", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    (tmp_path / "inner" / "net.weights").rename(tmp_path / "net.weights")
    model.graph.initializer[0].external_data[0].value = "../net.weights"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="lies outside the model's folder"):
        open_file(path)


@pytest.mark.parametrize(
    ("dtype", "name", "numpy_type"), [(TensorProto.FLOAT16, "float16", np.float16), (TensorProto.DOUBLE, "float64", np.float64)]
)
def test_the_graphs_own_dtype_is_used(tmp_path: Path, dtype: int, name: str, numpy_type: type) -> None:
    x = images(5)
    classifier = open_file(graph(tmp_path / "net.onnx", dtype=dtype))
    assert classifier.identity.input_spec["dtype"] == name
    np.testing.assert_allclose(
        classifier.logits(x).numpy(), by_hand(x.numpy().astype(numpy_type).astype(np.float32)), rtol=1e-4, atol=1e-4
    )


def test_uint8_graphs_get_whole_bytes(tmp_path: Path) -> None:
    x = images(5)
    classifier = open_file(graph(tmp_path / "net.onnx", dtype=TensorProto.UINT8))
    np.testing.assert_allclose(classifier.logits(x).numpy(), by_hand(np.round(x.numpy() * 255)), rtol=1e-4, atol=1e-2)


def test_a_stated_dtype_must_be_the_graphs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="says dtype float64, but the graph takes float32"):
        open_file(graph(tmp_path / "net.onnx"), spec="dtype=float64")


def test_channels_last_needs_to_be_said_and_works(tmp_path: Path) -> None:
    x = images(5)
    path = graph(tmp_path / "net.onnx", shape=("n", 8, 8, 3))
    with pytest.raises(ModelError, match="takes images of 8x8x3, but the data, as NCHW, are 3x8x8; state layout=NHWC"):
        open_file(path)
    expected = by_hand(x.numpy().transpose(0, 2, 3, 1))
    np.testing.assert_allclose(open_file(path, spec="layout=NHWC").logits(x).numpy(), expected, rtol=1e-4, atol=1e-4)
    (tmp_path / "net.input.toml").write_text('layout = "NHWC"\nrange = [0, 2]\n')
    np.testing.assert_allclose(open_file(path).logits(x).numpy(), expected * 2, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(open_file(path, spec="range=0-1").logits(x).numpy(), expected, rtol=1e-4, atol=1e-4)
    (tmp_path / "mine.toml").write_text('layout = "NHWC"\n')
    np.testing.assert_allclose(open_file(path, spec=str(tmp_path / "mine.toml")).logits(x).numpy(), expected, rtol=1e-4, atol=1e-4)
    assert load(ModelRef.parse(str(path)), device="cpu").identity.input_shape == SHAPE


def test_both_shapes_are_named_when_the_data_do_not_fit(folder: Path) -> None:
    with pytest.raises(ModelError, match="takes images of 3x8x8, but the data, as NCHW, are 1x28x28"):
        load(ModelRef.parse(str(folder / "dynamic.onnx")), image_shape=(1, 28, 28), device="cpu")
    with pytest.raises(ModelError, match="was loaded for images of 3x8x8, but was given 1x8x8"):
        open_file(folder / "dynamic.onnx").logits(images(2, channels=1))


def test_the_float_matrix_among_several_outputs_is_taken(tmp_path: Path) -> None:
    classifier = open_file(graph(tmp_path / "net.onnx", outputs=2))
    np.testing.assert_allclose(classifier.logits(images(3)).numpy(), by_hand(images(3).numpy()), rtol=1e-4, atol=1e-4)
    assert classifier.identity.cautions == ("The graph has 2 outputs; 'scores1' was used.",)


def test_it_says_what_it_lacks(folder: Path) -> None:
    classifier = open_file(folder / "dynamic.onnx")
    assert classifier.lacks[Capability.GRADIENTS].startswith("ONNX Runtime has no backward pass")
    assert Capability.ACTIVATIONS in classifier.lacks
    for call in (lambda: classifier.loss_gradient(images(1), lambda z, _: z[:, 0]), lambda: classifier.jacobian(images(1))):
        with pytest.raises(MissingCapability, match="no backward pass"):
            call()


def test_probabilities_are_detected(folder: Path) -> None:
    x = images(6)
    classifier = resolve_outputs(open_file(folder / "softmax.onnx"), x)
    assert classifier.identity.outputs == "probabilities (detected)"
    expected = wrap(Small(), image_shape=SHAPE, device="cpu").logits(x).log_softmax(1)
    torch.testing.assert_close(classifier.logits(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_gpu_that_is_not_used_is_an_error_and_never_a_silent_cpu_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"--device cuda cannot be honoured: ONNX Runtime runs this model on CPUExecutionProvider"):
        load(ModelRef.parse(str(folder / "dynamic.onnx")), image_shape=SHAPE, device="cuda")
    assert capfd.readouterr().err == ""


def test_one_session_thread_setting_follows_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = onnxruntime.InferenceSession

    def session(path: str, options: onnxruntime.SessionOptions, providers: list[str]) -> object:
        seen.append(options.intra_op_num_threads)
        return real(path, options, providers=providers)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    open_file(folder / "dynamic.onnx")
    assert seen == [torch.get_num_threads()]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"\n<!DOCTYPE html><html>Sign in</html>", "is a web page, not an ONNX graph"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
        (b"\x80\x04\x95junk", "is a zip archive or a pickle"),
        (b"PK\x03\x04junk", "is a zip archive or a pickle"),
        (b"just some words that are no protobuf at all", "is not an ONNX graph, or is damaged"),
    ],
)
def test_a_file_that_is_not_what_it_says(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=says) as error:
        open_file(path)
    assert "\n" not in str(error.value)


def test_truncated_missing_and_newer_files(tmp_path: Path) -> None:
    path = graph(tmp_path / "net.onnx")
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(ModelError, match="damaged"):
        open_file(path)
    with pytest.raises(ModelError, match=r"there is no model file .*missing\.onnx; check the path"):
        open_file(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="cannot be read"):
        (tmp_path / "folder.onnx").mkdir()
        open_file(tmp_path / "folder.onnx")
    with pytest.raises(ModelError, match=r"its IR version is 99 and \d+ is the newest it reads; update onnxruntime"):
        open_file(graph(tmp_path / "new.onnx", ir=99))


def test_operators_that_the_runtime_does_not_have(tmp_path: Path) -> None:
    path = graph(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.opset_import[0].version = 99
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"it uses opset 99, and support goes till opset \d+; update"):
        open_file(path)
    model.opset_import[0].version = 17
    model.graph.node[0].op_type = "Whatever"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="it uses operator Whatever of opset 17"):
        open_file(path)
    model.graph.node[0].domain = "mine"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="it uses operators of domain 'mine'"):
        open_file(path)


@pytest.mark.parametrize(
    ("dtype", "shape", "says"),
    [
        (TensorProto.INT64, ("n", 3, 8, 8), r"takes tensor\(int64\)"),
        (TensorProto.FLOAT, ("n", 192), "takes images of 192, but the data, as NCHW, are 3x8x8; state layout=FLAT"),
        (TensorProto.FLOAT, ("n", 1, 1, 3, 8, 8), "takes an input of shape [?]x1x1x3x8x8; an audit needs batches of images"),
    ],
)
def test_graphs_that_take_no_images(tmp_path: Path, dtype: int, shape: tuple[object, ...], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        open_file(graph(tmp_path / "net.onnx", dtype=dtype, shape=shape))


def test_a_graph_that_leaves_the_rank_open_takes_any_layout(tmp_path: Path) -> None:
    path = graph(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    x = images(5)
    for layout in ("NCHW", "FLAT"):
        np.testing.assert_allclose(
            open_file(path, spec=f"layout={layout}").logits(x).numpy(), by_hand(x.numpy()), rtol=1e-4, atol=1e-4
        )
    with pytest.raises(ModelError, match="does not declare the size of its images"):
        load(ModelRef.parse(str(path)), device="cpu")


def test_a_flat_graph_gets_flat_images_of_the_right_order(tmp_path: Path) -> None:
    path, x = graph(tmp_path / "net.onnx", shape=("n", 192)), images(5)
    rows = open_file(path, spec="layout=FLAT").logits(x).numpy()
    np.testing.assert_allclose(rows, by_hand(x.numpy()), rtol=1e-4, atol=1e-4)
    columns = open_file(path, spec="layout=FLAT_COLUMN").logits(x).numpy()
    np.testing.assert_allclose(columns, by_hand(x.numpy().swapaxes(2, 3)), rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="as NCHW, are 1x8x8; state colour=repeat"):
        load(ModelRef.parse(str(graph(tmp_path / "colour.onnx"))), image_shape=(1, 8, 8), device="cpu")


def test_a_graph_without_image_size_needs_the_data(tmp_path: Path) -> None:
    path = graph(tmp_path / "net.onnx", shape=("n", 3, "h", "w"))
    assert open_file(path).classes == 4
    with pytest.raises(ModelError, match="does not declare the size of its images"):
        load(ModelRef.parse(str(path)), device="cpu")
    with pytest.raises(ModelError, match=r"net: refuses images of 3x9x9"):
        load(ModelRef.parse(str(path)), image_shape=(3, 9, 9), device="cpu")


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({"classes": "a,b,c,d"}, ("a", "b", "c", "d")),
        ({"names": "{0: 'a', 1: 'b', 2: 'c', 3: 'd'}"}, ("a", "b", "c", "d")),
        ({"labels": "a,b", "id2label": '{"0": "a", "1": "b", "2": "c", "3": "d"}'}, ("a", "b", "c", "d")),
        ({"names": "image classifier"}, ()),
        ({"names": "{0: b'a'}", "classes": "[" * 5000}, ()),
        ({}, ()),
    ],
)
def test_class_names_in_the_metadata(tmp_path: Path, metadata: dict[str, str], names: tuple[str, ...]) -> None:
    model = onnx.load(graph(tmp_path / "model.onnx"))
    helper.set_model_props(model, metadata)
    onnx.save(model, tmp_path / "model.onnx")
    assert open_file(tmp_path / "model.onnx").identity.class_names == names
