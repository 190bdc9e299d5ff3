from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from audit.errors import InputError
from audit.models import resolve
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
        ("http://127.0.0.1:5001/invocations", RefKind.SCORING_SERVER, {"url": "http://127.0.0.1:5001/invocations"}),
        ("https://host/a/b/invocations/", RefKind.SCORING_SERVER, {"url": "https://host/a/b/invocations"}),
        ("https://host:8080/v2/models/net", RefKind.V2_SERVER, {"url": "https://host:8080/v2/models/net", "name": "net"}),
        ("https://host/x/v2/models/net/infer", RefKind.V2_SERVER, {"url": "https://host/x/v2/models/net", "name": "net"}),
        (
            "https://host/v2/models/net/versions/2/infer",
            RefKind.V2_SERVER,
            {"url": "https://host/v2/models/net/versions/2", "name": "net"},
        ),
        ("package.module:function", RefKind.CALLABLE, {"module": "package.module", "function": "function"}),
    ],
)
def test_accepted_forms(text: str, kind: RefKind, fields: dict[str, object]) -> None:
    ref = ModelRef.parse(text)
    assert ref.kind is kind
    every = ("name", "version", "alias", "model_id", "run_id", "path", "url", "module", "function")
    assert {name: getattr(ref, name) for name in every if getattr(ref, name) is not None} == fields
    assert ref.is_registry == text.strip().startswith(("models:/", "runs:/"))
    assert ref.is_endpoint == text.startswith("http")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://ann:hunter2@host/invocations", "carries credentials"),
        ("https://ann@host/v2/models/net", "carries credentials"),
        ("https://host/invocations?token=hunter2", "carries more than an address"),
        ("https://host/v2/models/net#1", "carries more than an address"),
        ("https://host/v2/models", "is an address of no known kind"),
        ("ftp://host/invocations", "is not a model reference"),
        ("package.module:a function", "is not a model reference"),
        ("models:digits", "is not a model reference"),
        ("net.pt", "is a .pt file"),
        ("folder/net.pkl", "is a .pkl file"),
        ("models:/digits", "is not a registered version"),
        ("models:/digits/three", "is not a registered version"),
        ("model:/digits/3", "is not a model reference"),
        ("runs:/0123abc", "does not name a run and a path"),
        ("runs:/0123abc/../../etc", "does not name a run and a path"),
        ("", "is empty"),
        ("https://host/net.onnx", "is an address of no known kind"),
        ("models:/net.onnx", "is not a registered version"),
    ],
)
def test_everything_else_is_refused_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        ModelRef.parse(text)
    message = str(error.value)
    assert says in message
    assert "models:/name@alias" in message and "path/file.onnx" in message
    assert "\n" not in message and "hunter2" not in message


def test_a_registry_reference_is_no_file() -> None:
    with pytest.raises(InputError, match="is not a file"):
        _ = ModelRef.parse("models:/digits/3").file
    assert ModelRef.parse("a/b.onnx").file == Path("a/b.onnx")


def test_importing_the_room_imports_neither_torch_nor_mlflow() -> None:
    code = (
        "import sys, audit.models, audit.models.ref, audit.models.input_spec;"
        "print([m for m in ('torch', 'mlflow', 'onnx', 'onnxruntime', 'requests') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("text", ["https://host/invocations", "http://host/v2/models/m", "package.module:function"])
def test_what_has_no_files_has_no_digest(text):
    with pytest.raises(InputError, match="has no files"):
        resolve(ModelRef.parse(text))
