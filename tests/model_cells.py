"""One network as people have it: every cell of {what it takes} x {what it gives}, in every form a model comes in.

A cell wraps the network so that it expects its input. The input is undone here in torch, and made in NumPy by `Cell.seen`, neither
of which is what the project does with an input spec. Forms are built when they are first asked for; see `Workshop.built`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnx
import torch
from exported import exported
from mlflow import MlflowClient
from scripted_server import Asked, Reply
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import nn

from audit.cli.demo_models import current_store

MEAN, STD = 0.29, 0.35
RANGES = {"0-1": {}, "0-255": {"range": "0-255"}, "normalised": {"mean": str(MEAN), "std": str(STD)}}
LAYOUTS = ("NCHW", "NHWC")
OUTPUTS = ("logits", "probabilities", "labels")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a network takes and gives."""

    range: str
    layout: str
    outputs: str

    @property
    def name(self) -> str:
        return f"takes_{self.range.replace('-', '_')}_{self.layout}_gives_{self.outputs}"

    @property
    def spec(self) -> dict[str, str]:
        """What has to be stated of the input."""
        return {"layout": self.layout, **RANGES[self.range]}

    def seen(self, images: np.ndarray) -> np.ndarray:
        """Images (n, c, h, w) in [0, 1] as the network takes them."""
        scaled = {"0-1": images, "0-255": images * 255, "normalised": (images - MEAN) / STD}[self.range]
        return np.ascontiguousarray(np.moveaxis(scaled, 1, 3) if self.layout == "NHWC" else scaled, dtype=np.float32)


CELLS = tuple(Cell(range=r, layout=la, outputs=o) for r, la, o in product(RANGES, LAYOUTS, OUTPUTS))
# Every pair of a range with a layout, a range with outputs, and a layout with outputs, in 9 cells.
COVERING = tuple(
    Cell(range=r, layout=LAYOUTS[(i + j) % 2], outputs=o) for (i, r), (j, o) in product(enumerate(RANGES), enumerate(OUTPUTS))
)


class Wrapped(nn.Module):
    """`network`, (n, c, h, w) in [0, 1] to logits, as a network that takes and gives what the cell says."""

    def __init__(self, network: nn.Module, cell: Cell) -> None:
        super().__init__()
        self.network, self.cell = network, cell
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.cell.layout == "NHWC":
            x = x.permute(0, 3, 1, 2)
        if self.cell.range == "0-255":
            x = x / 255
        elif self.cell.range == "normalised":
            x = x * STD + MEAN
        scores = self.network(x)
        if self.cell.outputs == "labels":
            return scores.argmax(1)
        return scores.softmax(1) if self.cell.outputs == "probabilities" else scores

    def answer(self, rows: Any) -> np.ndarray:
        """The same for arrays and nested lists."""
        with torch.no_grad():
            return self(torch.tensor(np.asarray(rows), dtype=torch.float32)).numpy()


class Python(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A pyfunc model without a signature."""

    def __init__(self, network: Wrapped) -> None:
        self.network = network

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return self.network.answer(model_input)


class Labelling(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier without probabilities, over rows of `shape`."""

    def __init__(self, network: Wrapped | None = None, shape: tuple[int, ...] = ()) -> None:
        self.network, self.shape = network, shape

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self._answer(rows)

    def _answer(self, rows: np.ndarray) -> np.ndarray:
        return self.network.answer(rows.reshape(-1, *self.shape))


class Weighing(Labelling):
    """One with probabilities."""

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        return self._answer(rows)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self._answer(rows).argmax(1)


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model as a user names it, and what the user has to say with it."""

    reference: str
    input_spec: str | None
    trust: bool = False


# A module as a user may have it; its functions are called like the cells.
FUNCTIONS = """
import torch
from model_cells import CELLS, Wrapped

network = torch.load({weights!r}, weights_only=False)
for cell in CELLS:
    globals()[cell.name] = Wrapped(network, cell).answer
"""


@dataclass(kw_only=True)
class Workshop:
    """Where a network is put into its forms.

    `images` are a few (n, c, h, w) in [0, 1]; `folder` must be importable from; `server` is the address of one that answers with
    `respond`.
    """

    network: nn.Module
    images: np.ndarray
    folder: Path
    server: str = ""
    _built: dict[tuple[str, Cell], Built] = field(default_factory=dict)

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    def wrapped(self, cell: Cell) -> Wrapped:
        return Wrapped(self.network, cell)

    def built(self, form: str, cell: Cell) -> Built:
        """The cell in a form of `FORMS`, built once."""
        if (form, cell) not in self._built:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._built[form, cell] = FORMS[form](self, cell)
        return self._built[form, cell]

    def functions(self) -> str:
        """The name of a module with one function for every cell."""
        path = self.folder / "functions_of_cells.py"
        if not path.exists():
            torch.save(self.network, self.folder / "network.pt")
            path.write_text(FUNCTIONS.format(weights=str(self.folder / "network.pt")))
        return path.stem

    def respond(self, asked: Asked) -> Reply:
        """What a scoring server at /<cell>/invocations, and a v2 server of models called like the cells, would say."""
        if asked.method == "GET" and "/v2/models/" not in asked.path:
            return Reply(status=404)
        cell = next(each for each in CELLS if f"/{each.name}" in asked.path)
        if asked.method == "GET":
            shape = cell.seen(self.images).shape[1:]
            return Reply(content={"platform": "scripted", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, *shape]}]})
        if (rows := asked.json.get("inputs")) is None:
            return Reply(status=400, content={"message": "takes inputs only"})
        scoring = asked.path.endswith("/invocations")
        try:
            found = self.wrapped(cell).answer(rows if scoring else np.reshape(rows[0]["data"], rows[0]["shape"]))
        except RuntimeError as error:
            return Reply(status=400, content={"message": str(error)})
        if scoring:
            return Reply(content={"predictions": found.tolist()})
        tensor = {"name": "scores", "shape": list(found.shape), "datatype": "FP32", "data": found.ravel().tolist()}
        return Reply(content={"outputs": [tensor]})

    def registered(self, form: str, cell: Cell, log: Callable[..., Any], *, trust: bool, **options: object) -> Built:
        """Log and register a model; its input spec is stated by tags of the version, or by the user."""
        with current_store(self.store):
            found = mlflow.get_experiment_by_name("cells")
            place = (self.folder / "artefacts").as_uri()
            run = found.experiment_id if found else mlflow.create_experiment("cells", artifact_location=place)
            with mlflow.start_run(experiment_id=run):
                info = log(name=form.replace(" ", "-"), registered_model_name=form, pip_requirements=["torch"], **options)
            version = str(info.registered_model_version)
            tagged = stated_beside(cell)
            for key, value in cell.spec.items() if tagged else ():
                MlflowClient().set_model_version_tag(form, version, f"audit.input.{key}", value)
        return Built(reference=f"models:/{form}/{version}", input_spec=None if tagged else as_option(cell), trust=trust)


def as_option(cell: Cell) -> str:
    return ",".join(f"{key}={value}" for key, value in cell.spec.items())


def stated_beside(cell: Cell) -> bool:
    """Whether the input spec lies beside the model (tags, sidecar); otherwise the user states it. Either comes with every range."""
    return cell.layout == "NHWC"


def _onnx_file(shop: Workshop, cell: Cell) -> Built:
    path = shop.folder / f"{cell.name}.onnx"
    exported(shop.wrapped(cell), torch.from_numpy(cell.seen(shop.images)), path, dynamo=False)
    if stated_beside(cell):
        lines = [f'{key} = "{value}"' if key in ("layout", "range") else f"{key} = {value}" for key, value in cell.spec.items()]
        path.with_suffix(".input.toml").write_text("\n".join(lines))
    return Built(reference=str(path), input_spec=None if stated_beside(cell) else as_option(cell))


def _onnx_flavour(shop: Workshop, cell: Cell) -> Built:
    graph = onnx.load(shop.built("ONNX file", cell).reference)
    return shop.registered("ONNX flavour", cell, mlflow.onnx.log_model, onnx_model=graph, trust=False)


def _torch(shop: Workshop, cell: Cell, form: str, how: str) -> Built:
    return shop.registered(
        form,
        cell,
        mlflow.pytorch.log_model,
        pytorch_model=shop.wrapped(cell),
        serialization_format=how,
        trust=how == "pickle",
        **({"input_example": cell.seen(shop.images)} if how == "pt2" else {}),
    )


def _python_model(shop: Workshop, cell: Cell) -> Built:
    return shop.registered("pyfunc", cell, mlflow.pyfunc.log_model, python_model=Python(shop.wrapped(cell)), trust=True)


def _scikit_learn(shop: Workshop, cell: Cell) -> Built:
    kind = Labelling if cell.outputs == "labels" else Weighing
    estimator = kind(shop.wrapped(cell), cell.seen(shop.images).shape[1:])
    options = {"sk_model": estimator, "serialization_format": "cloudpickle"}
    return shop.registered("scikit-learn", cell, mlflow.sklearn.log_model, trust=True, **options)


def _function(shop: Workshop, cell: Cell) -> Built:
    return Built(reference=f"{shop.functions()}:{cell.name}", input_spec=as_option(cell), trust=True)


FORMS: dict[str, Callable[[Workshop, Cell], Built]] = {
    "torch pickle": lambda shop, cell: _torch(shop, cell, "torch pickle", "pickle"),
    "torch export": lambda shop, cell: _torch(shop, cell, "torch export", "pt2"),
    "ONNX file": _onnx_file,
    "ONNX flavour": _onnx_flavour,
    "pyfunc": _python_model,
    "scikit-learn": _scikit_learn,
    "scoring server": lambda shop, cell: Built(reference=f"{shop.server}/{cell.name}/invocations", input_spec=as_option(cell)),
    "v2 server": lambda shop, cell: Built(reference=f"{shop.server}/v2/models/{cell.name}", input_spec=as_option(cell)),
    "function": _function,
}


def exists(form: str, cell: Cell) -> bool:
    """Whether there is such a model: scikit-learn's predict_proba never gives logits."""
    return (form, cell.outputs) != ("scikit-learn", "logits")


def refused(form: str, cell: Cell) -> bool:
    """Whether loading it must say that it gives class numbers only: what holds a network is held to its scores."""
    return cell.outputs == "labels" and form in ("torch pickle", "torch export", "ONNX file", "ONNX flavour")
