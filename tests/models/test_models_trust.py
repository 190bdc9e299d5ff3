from __future__ import annotations

import copy
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from small_models import rewritten

from audit.errors import ModelError, UntrustedError
from audit.models import mlmodel
from audit.models.mlmodel import Route
from audit.models.pt2_archive import code_in
from audit.models.trust import digests, inside, is_pickle, overall_digest, require_trust

EVIL = "__import__('pathlib').Path({!r}).write_text('ran')"


def nodes(graph: dict[str, Any]) -> list[dict[str, Any]]:
    return graph["graph_module"]["graph"]["nodes"]


def guard(expression: str) -> Callable[[dict[str, Any]], None]:
    return lambda graph: graph.update(guards_code=[expression])


def size(expression: str) -> Callable[[dict[str, Any]], None]:
    def change(graph: dict[str, Any]) -> None:
        for value in graph["graph_module"]["graph"]["tensor_values"].values():
            for one in value["sizes"]:
                if "as_expr" in one:
                    one["as_expr"]["expr_str"] = expression

    return change


def target(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda graph: nodes(graph)[0].update(target=name)


def nested(graph: dict[str, Any]) -> None:
    inner = copy.deepcopy(graph["graph_module"]["graph"])
    inner["nodes"][0]["target"] = "torch.hub.os.system"
    nodes(graph)[0]["inputs"].append({"name": "", "arg": {"as_graph": {"name": "inner", "graph": inner}}, "kind": 1})


def spec(text: str) -> Callable[[dict[str, Any]], None]:
    return lambda graph: graph["graph_module"]["module_call_graph"][0]["signature"].update(in_spec=text)


def test_what_torch_writes_is_harmless(plain_pt2: Path) -> None:
    assert code_in(plain_pt2) == ()


@pytest.mark.parametrize(
    "expression",
    [
        "L['x'].size()[0] <= 1024",
        "Eq(Mod(s77, 8), 0)",
        "not (L['x'].size()[2] == 8 and L['x'].stride()[1] >= 1)",
        "math.isnan(L['flat_args'][0])",
    ],
)
def test_honest_guards_pass(plain_pt2: Path, tmp_path: Path, expression: str) -> None:
    assert code_in(rewritten(plain_pt2, tmp_path / "model.pt2", guard(expression))) == ()


@pytest.mark.parametrize(
    "expression",
    [
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(768), Symbol('s77', integer=True))",
        "2*s77 + 1",
        "Float('0.5', precision=53)",
    ],
)
def test_honest_sizes_pass(plain_pt2: Path, tmp_path: Path, expression: str) -> None:
    assert code_in(rewritten(plain_pt2, tmp_path / "model.pt2", size(expression))) == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (guard(EVIL.format("x")), "a guard is the Python expression \"__import__('pathlib')"),
        (guard("L['x'].__class__"), "a guard is the Python expression"),
        (guard("math.factorial(9)"), "a guard is the Python expression"),
        (guard("[x for x in (1, 2)]"), "a guard is the Python expression"),
        (guard("(lambda: 1)()"), "a guard is the Python expression"),
        (guard("1, ''); import os; ("), "a guard is the Python expression"),
        (guard("L['x'].size()[0] == 1\nimport os"), "a guard is the Python expression"),
        (size(EVIL.format("x")), "a size in its graph is the Python expression"),
        (size("sympify('1')"), "a size in its graph is the Python expression"),
        (size("Integer('__import__')"), "a size in its graph is the Python expression"),
        (target("torch.hub.os.system"), "its graph calls torch.hub.os.system"),
        (target("torch.ops.load_library"), "its graph calls torch.ops.load_library"),
        (target("torch.ops.aten.from_file.default"), "its graph calls torch.ops.aten.from_file"),
        (target("torch.ops.higher_order.flat_apply"), "its graph calls torch.ops.higher_order.flat_apply"),
        (target("_operator.methodcaller"), "its graph calls _operator.methodcaller"),
        (target("#extension:op"), "its graph calls #extension:op"),
        (nested, "its graph calls torch.hub.os.system"),
        (
            spec('[1, {"type": "collections.defaultdict", "context": "[]", "children_spec": []}]'),
            "containers of other Python classes",
        ),
        (
            spec(
                '[1, {"type": "builtins.dict", "context": "[{\\"__enum__\\": true, \\"fqn\\": \\"os:x\\"}]", "children_spec": []}]'
            ),
            "containers of other Python classes",
        ),
    ],
)
def test_what_would_run_is_named(plain_pt2: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str) -> None:
    (reason,) = code_in(rewritten(plain_pt2, tmp_path / "model.pt2", change))
    assert says in reason


def test_archives_with_foreign_or_double_entries(plain_pt2: Path, tmp_path: Path) -> None:
    changed = rewritten(plain_pt2, tmp_path / "a.pt2", lambda _: None, {"model/data/aotinductor/model/x.so": b""})
    assert "aotinductor" in code_in(changed)[0]
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = rewritten(plain_pt2, tmp_path / "b.pt2", lambda _: None, {"model/models/model.json": b"{}"})
    assert "twice" in code_in(twice)[0]


def test_files_that_are_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"<html>")
    with pytest.raises(ModelError, match="is not a pt2 archive"):
        code_in(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/models/model.json", "{")
    with pytest.raises(ModelError, match="is not readable"):
        code_in(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/version", "1")
    with pytest.raises(ModelError, match="holds no exported program"):
        code_in(path)


def test_digests_are_of_content_and_independent_of_order(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"one")
    (tmp_path / "a").write_bytes(b"")
    found = digests(tmp_path)
    assert list(found) == ["a", "b/x"]
    assert found["a"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (
        overall_digest(found)
        == overall_digest(dict(reversed(found.items())))
        != overall_digest({"a": found["b/x"], "b/x": found["a"]})
    )


def test_links_and_names_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "model" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="is a link to a place outside"):
        digests(tmp_path / "model")
    (tmp_path / "model" / "link").unlink()
    (tmp_path / "model" / "folder").symlink_to(tmp_path)
    with pytest.raises(ModelError, match="folder is a link to a place outside"):
        digests(tmp_path / "model")
    with pytest.raises(ModelError, match="lies outside the model's folder"):
        inside(tmp_path / "model", "../secret", "the file")
    with pytest.raises(ModelError, match="is missing"):
        inside(tmp_path / "model", "nothing", "the file")


def test_trust_decides_only_where_something_would_run() -> None:
    assert require_trust("net", [], trust=False) is False
    assert require_trust("net", [], trust=True) is False
    assert require_trust("net", ["the pickle model.pth"], trust=True) is True
    with pytest.raises(
        UntrustedError, match=r"net: loading it would run code .*: the pickle model\.pth; if you trust its author, pass --trust"
    ):
        require_trust("net", ["the pickle model.pth"], trust=False)
    assert is_pickle("data/MODEL.PTH") and not is_pickle("model.onnx") and not is_pickle("model.pt2")


def written(folder: Path, content: object, *files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "MLmodel").write_text(yaml.safe_dump(content))
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


PYFUNC = {"loader_module": "mlflow.pytorch", "data": "data"}


def test_onnx_is_preferred_and_the_code_beside_it_is_not_run(tmp_path: Path) -> None:
    flavours = {
        "onnx": {"data": "model.onnx", "code": "code"},
        "pytorch": {"model_data": "data"},
        "python_function": {**PYFUNC, "code": "code"},
    }
    read = mlmodel.read(written(tmp_path / "m", {"flavors": flavours}, "model.onnx", "data/model.pth", "code/colorsys.py"), "net")
    assert (read.route, read.file.name, read.runs) == (Route.ONNX, "model.onnx", ())
    assert "code/ (code_paths" in read.carries[0]


@pytest.mark.parametrize(
    ("flavours", "top", "says"),
    [
        ({"pytorch": {"model_data": "data", "code": "code"}}, {}, "the Python files in code/"),
        (
            {"pytorch": {"model_data": "data"}, "python_function": {**PYFUNC, "loader_module": "my_loader"}},
            {},
            "the loader module my_loader",
        ),
        ({"pytorch": {"model_data": "data"}, "python_function": {**PYFUNC, "model_code_path": "m.py"}}, {}, "the script m.py"),
        ({"pytorch": {"model_data": "data"}}, {"model_code_path": "m.py"}, "the script m.py"),
        (
            {"pytorch": {"model_data": "data"}, "python_function": {**PYFUNC, "python_model": "python_model.pkl"}},
            {},
            "the pickle python_model.pkl",
        ),
    ],
)
def test_code_that_travels_with_a_torch_model_is_named(
    tmp_path: Path, plain_pt2: Path, flavours: dict[str, Any], top: dict[str, Any], says: str
) -> None:
    folder = written(tmp_path / "m", {"flavors": flavours, **top}, "data/x")
    (folder / "data" / "model.pt2").write_bytes(plain_pt2.read_bytes())
    read = mlmodel.read(folder, "net")
    assert read.route is Route.PT2
    assert any(says in reason for reason in read.runs)


def test_a_pickle_beside_a_pt2_is_what_mlflow_would_read(tmp_path: Path, plain_pt2: Path) -> None:
    folder = written(tmp_path / "m", {"flavors": {"pytorch": {"model_data": "data"}}}, "data/model.pth")
    (folder / "data" / "model.pt2").write_bytes(plain_pt2.read_bytes())
    read = mlmodel.read(folder, "net")
    assert (read.route, read.runs) == (Route.PICKLE, ("the pickle model.pth",))
    for name, more in (("mlflow.pytorch.pickle_module\n", ()), ("evil", ("the module evil, to read it with",))):
        (folder / "data" / "pickle_module_info.txt").write_text(name)
        assert mlmodel.read(folder, "net").runs == ("the pickle model.pth", *more)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"flavors": {"sklearn": {}, "crate": {}}}, "has only the flavours crate, sklearn"),
        ({"flavors": {}}, "names no flavour"),
        ("just text", "names no flavour"),
        ({"flavors": {"pytorch": {"model_data": "../.."}}}, "lies outside the model's folder"),
        ({"flavors": {"onnx": {"data": "/etc/hostname"}}}, "lies outside the model's folder"),
        ({"flavors": {"pytorch": {"model_data": "data"}}}, "neither model.pt2 nor model.pth"),
    ],
)
def test_model_files_that_lead_nowhere(tmp_path: Path, content: object, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        mlmodel.read(written(tmp_path / "m", content, "data/other"), "net")


def test_any_python_function_runs_code(tmp_path: Path) -> None:
    flavours = {"sklearn": {"code": "code"}, "python_function": {"loader_module": "evil"}}
    read = mlmodel.read(written(tmp_path / "m", {"flavors": flavours}, "code/x.py"), "net")
    assert read.route is Route.PYFUNC and len(read.runs) == 3
    assert "the Python files in code/" in read.runs[1] and "the loader module evil" in read.runs[0]
    plain = mlmodel.read(written(tmp_path / "n", {"flavors": {"python_function": {}}}, "x"), "net")
    assert plain.runs == ("what mlflow.pyfunc loads for the flavour python_function",)


def test_no_or_unreadable_mlmodel(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no MLmodel file"):
        mlmodel.read(tmp_path, "net")
    (tmp_path / "MLmodel").write_text("a: [")
    with pytest.raises(ModelError, match="cannot be read"):
        mlmodel.read(tmp_path, "net")
    (tmp_path / "MLmodel").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(ModelError, match="cannot be read"):
        mlmodel.read(tmp_path, "net")


def test_a_convolutional_zoo_passes_unharmed(tmp_path: Path) -> None:
    import torchvision

    network = torchvision.models.mobilenet_v3_small(weights=None).eval()
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(network, (torch.rand(2, 3, 64, 64),), dynamic_shapes=({0: torch.export.Dim.AUTO},)), path)
    assert code_in(path) == ()
