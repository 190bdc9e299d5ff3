"""From a parsed reference to a classifier: find its files, decide whether code would run, open, look once.

`located` executes nothing, `opened` builds the session or the module, `Opened.classifier` looks at it under one input spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from audit.errors import ModelError
from audit.models import Classifier, mlflow_registry, onnx_file, torch_module
from audit.models.device import check, torch_device
from audit.models.input_spec import InputSpec, PartialSpec, from_sidecar, from_tags, from_user, is_file
from audit.models.layouts import LAYOUTS
from audit.models.mlflow_registry import Fetched
from audit.models.mlmodel import Route
from audit.models.onnx_content import file_identity
from audit.models.ref import ModelRef
from audit.models.shapes import Declared
from audit.models.torch_module import Serialisation
from audit.models.trust import require_trust
from audit.result import ModelIdentity

_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.float64: "float64", torch.uint8: "uint8"}

ImageShape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Located:
    """Model files on disk, digested and read as data. `stated` is the user's input spec over the sidecar's or the tags'."""

    identity: ModelIdentity
    file: Path
    stated: PartialSpec
    fetched: Fetched | None = None

    @property
    def route(self) -> Route:
        """How it is loaded."""
        return Route.ONNX if self.fetched is None else self.fetched.model.route

    @property
    def runs(self) -> tuple[str, ...]:
        """The code that loading it would run, in words."""
        return () if self.fetched is None else self.fetched.model.runs


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A session or module, ready to be looked at under any input spec.

    `given` is every key that is stated somewhere, the graph's own included. `scores` runs one block of prepared images and gives
    what came out, as float32 on the CPU. `network` is the torch module, None for ONNX.
    """

    given: PartialSpec
    declared: Declared
    scores: Callable[[torch.Tensor], torch.Tensor]
    wrap: Callable[[InputSpec, ImageShape], Classifier]
    network: torch.nn.Module | None = None


def load(
    ref: ModelRef,
    *,
    image_shape: ImageShape | None,
    spec: str | None,
    trust: bool,
    device: str,
    block_rows: int,
    tracking_uri: str | None,
    registry_uri: str | None,
) -> Classifier:
    """See `audit.models.load`."""
    check(device)
    with located(ref, spec=spec, tracking_uri=tracking_uri, registry_uri=registry_uri) as found:
        model = opened(found, trust=trust, device=device, block_rows=block_rows)
        full = model.given.complete()
        return model.wrap(full, image_shape or declared_shape(model.declared.shape, full, found.identity.label))


@contextmanager
def located(ref: ModelRef, *, spec: str | None, tracking_uri: str | None, registry_uri: str | None) -> Iterator[Located]:
    """The model's files, for as long as the context lasts; what is built from them needs them no longer.

    Raises:
        InputError: there is no such model, or an input spec beside it, or the user's, is not valid.
        ModelError: what is there is no model this project can load.
    """
    stated = from_user(spec) if spec else PartialSpec()
    if not ref.is_registry:
        identity = file_identity(ref.file, ref.reference)
        beside = PartialSpec() if spec and is_file(spec) else from_sidecar(ref.file)
        yield Located(identity=identity, file=ref.file, stated=stated.over(beside))
        return
    with TemporaryDirectory(prefix="audit-model-", ignore_cleanup_errors=True) as folder:
        fetched = mlflow_registry.fetch(ref, Path(folder), tracking_uri=tracking_uri, registry_uri=registry_uri)
        model = fetched.model
        unused = tuple(f"The model also carries code that was not run: {what}." for what in model.carries)
        identity = replace(fetched.identity, flavour=model.route.value, cautions=unused)
        yield Located(
            identity=identity,
            file=model.file,
            stated=stated.over(from_tags(identity.tags)),
            fetched=replace(fetched, identity=identity),
        )


def opened(found: Located, *, trust: bool, device: str, block_rows: int) -> Opened:
    """Build the session or the module.

    Raises:
        UntrustedError: that would run code, and `trust` is false.
        ModelError: it cannot be built.
    """
    who = found.identity.label
    trusted = require_trust(who, found.runs, trust=trust)
    identity = replace(found.identity, trusted=trusted)
    if found.fetched is None or found.route is Route.ONNX:
        graph = onnx_file.open_graph(found.file, who, device=device)
        return Opened(
            given=found.stated.over(graph.declared),
            declared=Declared(rows=graph.rows, shape=graph.shape),
            scores=partial(onnx_file.run, graph),
            wrap=lambda spec, shape: onnx_file.wrap(graph, image_shape=shape, identity=identity, spec=spec, block_rows=block_rows),
        )
    where = torch_device(device)
    module = mlflow_registry.load_module(found.fetched, trusted=trusted, device=where)
    pt2 = found.route is Route.PT2
    declared, dtype = _declared(module) if pt2 else (Declared(), _parameter_dtype(module))
    serialisation = Serialisation.PT2 if pt2 else Serialisation.MODULE
    return Opened(
        given=found.stated.over(PartialSpec(values={"dtype": dtype}, places={"dtype": "the model"})),
        declared=declared,
        scores=torch_module.plain_scores(module, serialisation, where, who),
        wrap=lambda spec, shape: torch_module.wrap(
            module,
            image_shape=shape,
            identity=identity,
            spec=spec,
            serialisation=serialisation,
            declared=declared,
            device=device,
            block_rows=block_rows,
        ),
        network=module,
    )


def _declared(module: torch.nn.Module) -> tuple[Declared, str]:
    """Rows, image shape and dtype of an exported program's only input."""
    if not isinstance(module, torch.fx.GraphModule):
        return Declared(), "float32"
    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    if len(values) != 1 or not isinstance(values[0], torch.Tensor) or values[0].ndim == 0:
        return Declared(), "float32"
    rows, *shape = (size if isinstance(size, int) else None for size in values[0].shape)
    return Declared(rows=rows, shape=tuple(shape)), _DTYPES.get(values[0].dtype, "float32")


def _parameter_dtype(module: torch.nn.Module) -> str:
    return next((_DTYPES[p.dtype] for p in module.parameters() if p.is_floating_point() and p.dtype in _DTYPES), "float32")


def declared_shape(shape: tuple[int | None, ...] | None, spec: InputSpec, who: str) -> ImageShape:
    """The (c, h, w) of the images that a model declares, for when there are no data.

    Raises:
        ModelError: it declares none, or the specification leaves the data's own size or channels open.
    """
    read = LAYOUTS[spec.layout].image_shape
    sizes = tuple(size for size in shape or () if size is not None)
    if read is None or spec.size or spec.colour != "keep" or len(sizes) != len(LAYOUTS[spec.layout].shape(1, 1, 1)):
        raise ModelError(f"{who}: does not declare the size of its images; give the data with it")
    return read(sizes)
