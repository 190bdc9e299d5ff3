from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from audit.errors import InputError
from audit.models.ref import ModelRef, RefKind


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ("models:/digits/3", RefKind.VERSION, {"name": "digits", "version": 3}),
        ("  models:/digits/3 ", RefKind.VERSION, {"name": "digits", "version": 3}),
        ("models:/my model.v2/12", RefKind.VERSION, {"name": "my model.v2", "version": 12}),
        ("models:/digits@champion", RefKind.ALIAS, {"name": "digits", "alias": "champion"}),
        ("models:/digits/latest", RefKind.LATEST, {"name": "digits"}),
        ("models:/m-0123abc", RefKind.LOGGED, {"model_id": "m-0123abc"}),
        ("runs:/0123abc/model", RefKind.RUN, {"run_id": "0123abc", "path": "model"}),
        ("runs:/0123abc/a/b", RefKind.RUN, {"run_id": "0123abc", "path": "a/b"}),
        ("some dir/net.ONNX", RefKind.ONNX_FILE, {"path": "some dir/net.ONNX"}),
    ],
)
def test_accepted_forms(text: str, kind: RefKind, fields: dict[str, object]) -> None:
    ref = ModelRef.parse(text)
    assert ref.kind is kind
    every = ("name", "version", "alias", "model_id", "run_id", "path")
    assert {name: getattr(ref, name) for name in every if getattr(ref, name) is not None} == fields
    assert ref.is_registry == (kind is not RefKind.ONNX_FILE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://host/invocations", "endpoints are not supported yet"),
        ("package.module:callable", "callables are not supported yet"),
        ("net.pt", "is a .pt file"),
        ("folder/net.pkl", "is a .pkl file"),
        ("models:/digits", "is not a registered version"),
        ("models:/digits/three", "is not a registered version"),
        ("model:/digits/3", "is not a model reference"),
        ("runs:/0123abc", "does not name a run and a path"),
        ("runs:/0123abc/../../etc", "does not name a run and a path"),
        ("", "is empty"),
        ("https://host/net.onnx", "endpoints are not supported yet"),
        ("models:/net.onnx", "is not a registered version"),
    ],
)
def test_everything_else_is_refused_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        ModelRef.parse(text)
    message = str(error.value)
    assert says in message
    assert "models:/name@alias" in message and "path/file.onnx" in message
    assert "\n" not in message


def test_a_password_in_a_refused_reference_is_not_repeated() -> None:
    with pytest.raises(InputError) as error:
        ModelRef.parse("https://ann:hunter2@host/invocations")
    assert "hunter2" not in str(error.value)


def test_a_registry_reference_is_no_file() -> None:
    with pytest.raises(InputError, match="is not a file"):
        _ = ModelRef.parse("models:/digits/3").file
    assert ModelRef.parse("a/b.onnx").file == Path("a/b.onnx")


def test_importing_the_room_imports_neither_torch_nor_mlflow() -> None:
    code = (
        "import sys, audit.models, audit.models.ref, audit.models.input_spec;"
        "print([m for m in ('torch', 'mlflow', 'onnx', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
