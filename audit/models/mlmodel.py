"""The `MLmodel` file of an MLflow model, read as data, and the safest way to load what it describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

import yaml

from audit.errors import ModelError
from audit.models.pt2_archive import code_in
from audit.models.trust import inside, is_pickle
from audit.text import printable

MLMODEL = "MLmodel"
PYFUNC = "python_function"
# A description is a few kilobytes, plus the signature of its inputs.
MOST_BYTES = 1 << 22
MOST_NODES = 100_000
# Modules that are part of MLflow or usual with it; another name is imported, and so run, by whoever loads the model.
KNOWN_PICKLERS = frozenset({"mlflow.pytorch.pickle_module", "pickle", "cloudpickle", "dill"})
KNOWN_LOADERS = frozenset({"mlflow.pytorch", "mlflow.onnx"})


class Route(StrEnum):
    """How a model is loaded; the value is the flavour as a reader sees it."""

    ONNX = "onnx"
    PT2 = "pytorch (pt2)"
    PICKLE = "pytorch (pickle)"
    PYFUNC = "python_function"


@dataclass(frozen=True, kw_only=True)
class Port:
    """One input or output of a model; a size is a number, the name of a free one, or None. A shape of None is any shape."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, kw_only=True)
class MLmodel:
    """What the file says. `file` is what would be read; `runs` is the code that would be executed; `carries` stays unexecuted.

    `signature` holds the tensors that were declared when the model was logged, as "inputs" and "outputs".
    """

    route: Route
    file: Path
    runs: tuple[str, ...]
    carries: tuple[str, ...]
    model_id: str | None
    run_id: str | None
    requirements: tuple[str, ...]
    signature: Mapping[str, tuple[Port, ...]]


def read(folder: Path, who: str) -> MLmodel:
    """Read `MLmodel` in `folder` and choose: ONNX before pt2 before pickle before python_function.

    Raises:
        ModelError: no such file, not a model file, no usable flavour, or files it names are missing or outside the folder.
    """
    path = folder / MLMODEL
    try:
        content = _parsed(path, who)
    except FileNotFoundError:
        raise ModelError(
            f"{who}: has no MLmodel file, so it is not an MLflow model; name the folder that log_model wrote"
        ) from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError, yaml.YAMLError):
        raise ModelError(f"{who}: its MLmodel file cannot be read; log the model again") from None
    top = _mapping(content)
    flavours = {name: _mapping(value) for name, value in _mapping(top.get("flavors")).items()}
    code = _code(top, flavours)
    route, file = _route(folder, flavours, who)
    runs: tuple[str, ...] = ()
    if route is not Route.ONNX:
        runs = (*code, *_stored(route, file))
    if route is Route.PYFUNC:
        others = ", ".join(printable(name, 40) for name in sorted(flavours) if name != PYFUNC)
        runs = (*runs, f"what mlflow.pyfunc loads for the flavour {others or PYFUNC}")
    return MLmodel(
        route=route,
        file=file,
        runs=runs,
        carries=code if route is Route.ONNX else (),
        model_id=_text(top.get("model_id")),
        run_id=_text(top.get("run_id")),
        requirements=_requirements(folder),
        signature={side: _ports(_mapping(top.get("signature")).get(side)) for side in ("inputs", "outputs")},
    )


def _parsed(path: Path, who: str) -> object:
    """The YAML of a file whose aliases do not multiply what it says."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ModelError(
            f"{who}: its MLmodel file has {size / 1e6:.3g} MB, more than a description of a model; log the model again"
        )
    text = path.read_text(encoding="utf-8")
    # Counted on the nodes: merging (<<) already copies while the values are made.
    if _expanded(yaml.compose(text, Loader=yaml.SafeLoader), {}) > MOST_NODES:
        raise ModelError(f"{who}: its MLmodel file unfolds to more than {MOST_NODES} values by its aliases; log the model again")
    return cast("object", yaml.safe_load(text))


def _expanded(node: yaml.Node | None, seen: dict[int, int]) -> int:
    """How many values a node stands for when every alias is written out; one that contains itself counts as too many."""
    if node is None or isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in seen:
        seen[id(node)] = MOST_NODES + 1
        items = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        seen[id(node)] = 1 + sum(_expanded(item, seen) for item in items)
    return seen[id(node)]


def _route(folder: Path, flavours: Mapping[str, Mapping[str, object]], who: str) -> tuple[Route, Path]:
    if "onnx" in flavours:
        return Route.ONNX, inside(folder, _text(flavours["onnx"].get("data")) or "model.onnx", f"{who}: the file")
    if "pytorch" in flavours:
        data = inside(folder, _text(flavours["pytorch"].get("model_data")) or "data", f"{who}: the folder")
        # MLflow reads model.pth where there is one, whatever else lies beside it.
        for route, name in ((Route.PICKLE, "model.pth"), (Route.PT2, "model.pt2")):
            if (data / name).is_file():
                return route, data / name
        raise ModelError(f"{who}: has a PyTorch flavour, but neither model.pt2 nor model.pth; log the model again")
    if PYFUNC in flavours:
        return Route.PYFUNC, folder / MLMODEL
    if not flavours:
        raise ModelError(f"{who}: its MLmodel file names no flavour; log the model again")
    has = ", ".join(printable(name, 40) for name in sorted(flavours))
    raise ModelError(
        f"{who}: has only the flavour{'s' * (len(flavours) > 1)} {has}, which cannot be audited yet; "
        "log the network with mlflow.pytorch.log_model or mlflow.onnx.log_model, or anything with mlflow.pyfunc.log_model"
    )


def _code(top: Mapping[str, object], flavours: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Code that travels with the model: folders put first on the import path, scripts, foreign loaders."""
    found = []
    for name, flavour in sorted(flavours.items()):
        if code := _text(flavour.get("code")):
            found.append(f"the Python files in {printable(code, 60)}/ (code_paths, put first on the import path)")
        if script := _text(flavour.get("model_code_path")):
            found.append(f"the script {printable(script, 60)} (model from code)")
        if (loader := _text(flavour.get("loader_module"))) and loader not in KNOWN_LOADERS:
            found.append(f"the loader module {printable(loader, 60)}")
        if pickled := _text(flavour.get("python_model")):
            found.append(f"the pickle {printable(pickled, 60)} of flavour {printable(name, 40)}")
    if script := _text(top.get("model_code_path")):
        found.append(f"the script {printable(script, 60)} (model from code)")
    return tuple(dict.fromkeys(found))


def _stored(route: Route, file: Path) -> tuple[str, ...]:
    if route is Route.PT2:
        return code_in(file)
    if not is_pickle(file.name):
        return ()
    # MLflow imports the module that is named there, whatever it is, to read the pickle with.
    reader = file.with_name("pickle_module_info.txt")
    name = reader.read_text(encoding="utf-8", errors="replace").strip() if reader.is_file() else ""
    foreign = (f"the module {printable(name, 60)}, to read it with",) if name and name not in KNOWN_PICKLERS else ()
    return (f"the pickle {file.name}", *foreign)


def _requirements(folder: Path) -> tuple[str, ...]:
    try:
        lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(printable(line, 80) for line in lines if line.strip() and not line.lstrip().startswith(("#", "-")))


def _ports(text: object) -> tuple[Port, ...]:
    """The tensors among the columns of one side of a signature, which MLflow writes as JSON inside the YAML."""
    try:
        columns = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return ()
    found = []
    for column in map(_mapping, columns if isinstance(columns, list) else ()):
        tensor = _mapping(column.get("tensor-spec"))
        shape, dtype = tensor.get("shape"), _text(tensor.get("dtype"))
        if dtype and isinstance(shape, list) and all(isinstance(size, int) for size in shape):
            name = printable(_text(column.get("name")) or "", 60)
            found.append(Port(name=name, dtype=printable(dtype, 20), shape=tuple(size if size > 0 else None for size in shape)))
    return tuple(found)


def _mapping(value: object) -> Mapping[str, object]:
    return {str(key): item for key, item in cast("Mapping[object, object]", value).items()} if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
