"""PyTorch models as people log them: in training mode, on a GPU, in half precision, with code of their own."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
import torch
from small_models import LiveDropout, Small, Store, hostile_copy, images, open_model, upload
from torch import nn

from audit.errors import ModelError, UntrustedError
from audit.models.live_layers import live_layers
from audit.models.pt2_archive import code_in
from audit.models.pt2_device import saved_on_gpu, to_cpu
from audit.models.torch_module import Serialisation, wrap

SHAPE = (3, 8, 8)


class Trained(nn.Module):
    """Everything that differs between training and evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.normal, self.drop, self.inner = nn.BatchNorm2d(3), nn.Dropout(0.5), Small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.drop(self.normal(x)))


def program(module: nn.Module, dtype: torch.dtype = torch.float32) -> torch.export.ExportedProgram:
    example = images(4).to(dtype)
    return torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def logged(store: Store, tmp_path: Path, exported: torch.export.ExportedProgram) -> str:
    """The program as the model of a run."""
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    torch.export.save(exported, folder / "data" / "model.pt2")
    return upload(store, run_id, folder)


# Training mode


def test_layers_left_in_training_mode_are_named(store: Store, tmp_path: Path) -> None:
    identity = open_model(store, logged(store, tmp_path, program(Trained().train()))).identity
    random, batch = identity.cautions
    assert "random at drop: dropout was live when it was exported" in random
    assert "statistics of the batch at normal" in batch
    assert all("Call model.eval() and log or export it again." in text for text in identity.cautions)


def test_layers_in_evaluation_mode_are_not() -> None:
    assert live_layers(program(Trained().eval()).module()) == ()
    assert live_layers(Trained().train()) == ()


@pytest.mark.parametrize("decomposed", [False, True])
def test_each_kind_of_live_layer_is_found(decomposed: bool) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x, x, x, need_weights=False)[0]

    def named(module: nn.Module, example: torch.Tensor) -> tuple[str, ...]:
        exported = torch.export.export(module, (example,))
        return live_layers((exported.run_decompositions({}) if decomposed else exported).module())

    assert "layer" in named(Attention().train(), torch.rand(2, 3, 8))[0]
    assert named(Attention().eval(), torch.rand(2, 3, 8)) == ()
    for layer in (nn.Dropout2d(0.5), nn.RReLU(), nn.AlphaDropout(0.2)):
        assert "dropout was live" in named(nn.Sequential(layer).train(), images(2))[0]
        assert named(nn.Sequential(layer).eval(), images(2)) == ()
    assert named(nn.Sequential(nn.Dropout(0.0)).train(), images(2)) == ()
    assert "statistics of the batch" in named(nn.Sequential(nn.BatchNorm2d(3)).train(), images(2))[0]


def test_what_is_named_is_not_said_twice() -> None:
    module = program(LiveDropout()).module()
    cautions = wrap(module, image_shape=SHAPE, serialisation=Serialisation.PT2, device="cpu").identity.cautions
    assert len(cautions) == 1 and "dropout was live" in cautions[0]


# Devices


def on_gpu(source: Path, target: Path) -> Path:
    """The archive as a machine with a GPU would have saved it, but for its sample inputs."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith(".json"):
                content = content.replace(b'"type": "cpu", "index": null', b'"type": "cuda", "index": 0')
            new.writestr(info.filename, content)
    return target


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_program_saved_on_a_gpu_runs_on_the_cpu(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    with monkeypatch.context() as patch:
        # So that the sample inputs are marked as a GPU's too.
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        torch.export.save(program(Small().eval()), tmp_path / "cpu.pt2")
    path = on_gpu(tmp_path / "cpu.pt2", folder / "data" / "model.pt2")
    assert saved_on_gpu(path) and code_in(path) == ()
    with pytest.raises(RuntimeError):
        torch.export.load(path)
    classifier = open_model(store, upload(store, run_id, folder))
    expected = wrap(Small(), image_shape=SHAPE, device="cpu").logits(images(5))
    torch.testing.assert_close(classifier.logits(images(5)), expected, rtol=1e-5, atol=1e-6)


def test_moving_changes_devices_and_nothing_else(plain_pt2: Path, tmp_path: Path) -> None:
    moved = on_gpu(plain_pt2, tmp_path / "moved.pt2")
    assert saved_on_gpu(moved) and not saved_on_gpu(plain_pt2)
    to_cpu(moved)
    with zipfile.ZipFile(plain_pt2) as before, zipfile.ZipFile(moved) as after:
        assert before.namelist() == after.namelist()
        for name in before.namelist():
            if name.endswith(".json"):
                assert json.loads(before.read(name)) == json.loads(after.read(name))
            elif "sample_inputs" not in name:
                assert before.read(name) == after.read(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_pickle_saved_on_a_gpu_runs_on_the_cpu(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pickle")
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        torch.save(Small().eval(), folder / "data" / "model.pth")
    with pytest.raises(RuntimeError, match="deserialize object on a CUDA device"):
        torch.load(folder / "data" / "model.pth", weights_only=False)
    classifier = open_model(store, upload(store, run_id, folder), trust=True)
    expected = wrap(Small(), image_shape=SHAPE, device="cpu").logits(images(5))
    torch.testing.assert_close(classifier.logits(images(5)), expected, rtol=1e-5, atol=1e-6)


# Precision


@pytest.mark.parametrize(("dtype", "close"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_half_precision_on_the_cpu(store: Store, tmp_path: Path, dtype: torch.dtype, close: float) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pickle")
    torch.save(Small().eval().to(dtype), folder / "data" / "model.pth")
    pickled = open_model(store, upload(store, run_id, folder), trust=True)
    shutil.rmtree(folder)
    exported = open_model(store, logged(store, tmp_path, program(Small().eval().to(dtype), dtype)))
    x = images(6)
    expected = wrap(Small(), image_shape=SHAPE, device="cpu").logits(x)
    for classifier in (pickled, exported):
        assert classifier.identity.input_spec["dtype"] == str(dtype).removeprefix("torch.")
        assert classifier.logits(x).dtype == torch.float32
        torch.testing.assert_close(classifier.logits(x), expected, rtol=0, atol=close)
        _, _, gradient = classifier.loss_gradient(x, lambda z, _: z[:, 0])
        assert gradient.dtype == torch.float32 and bool(gradient.any())


# Code


NETWORK = """
    import torch
    from audit_test_layers import Scale

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = Scale()

        def forward(self, x):
            {forward}
            return self.scale(x.flatten(1)[:, :5])
"""
LAYERS = """
    import torch

    class Scale(torch.nn.Module):
        def forward(self, x):
            return 3 * x
"""


def with_code(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forward: str = "") -> str:
    """A pickled network whose class is in the model's own code folder."""
    folder, store, run_id = hostile_copy(store, tmp_path, "pickle")
    code = folder / "code"
    code.mkdir()
    (code / "audit_test_network.py").write_text(textwrap.dedent(NETWORK.format(forward=forward)))
    (code / "audit_test_layers.py").write_text(textwrap.dedent(LAYERS))
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(code))
        import audit_test_network  # type: ignore[import-not-found]

        torch.save(audit_test_network.Net(), folder / "data" / "model.pth")
    for name in ("audit_test_network", "audit_test_layers"):
        del sys.modules[name]
    (folder / "MLmodel").write_text((folder / "MLmodel").read_text().replace("code: null", "code: code"))
    return upload(store, run_id, folder)


def test_code_paths_run_only_with_trust(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_code(store, tmp_path, monkeypatch)
    with pytest.raises(UntrustedError, match=r"the Python files in code/ .*; the pickle model\.pth"):
        open_model(store, text)
    assert "audit_test_layers" not in sys.modules
    classifier = open_model(store, text, trust=True)
    torch.testing.assert_close(classifier.logits(images(4)), 3 * images(4).flatten(1)[:, :5])
    assert classifier.identity.trusted
    (caution,) = classifier.identity.cautions
    assert f"allowed for files with sha256 {classifier.identity.digest}: the Python files in code/" in caution
    for name in ("audit_test_network", "audit_test_layers"):
        sys.modules.pop(name, None)


def test_a_module_that_only_running_it_needs_is_named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_code(store, tmp_path, monkeypatch, forward="import vanishing_ops")
    with pytest.raises(ModelError, match="running it needs the Python module 'vanishing_ops', which is not installed"):
        open_model(store, text, trust=True)
    for name in ("audit_test_network", "audit_test_layers"):
        sys.modules.pop(name, None)
