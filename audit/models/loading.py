"""From a parsed reference to a classifier: fetch, decide whether code would run, open, look once."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from audit.errors import InputError, ModelError
from audit.models import Classifier, callable, endpoint, mlflow_registry, onnx_file, pyfunc, queried, torch_module
from audit.models.device import check, torch_device
from audit.models.input_spec import InputSpec, PartialSpec, from_sidecar, from_tags, from_user, is_file
from audit.models.limits import QueryLimits
from audit.models.mlmodel import Route
from audit.models.onnx_content import file_identity
from audit.models.ref import ModelRef, RefKind
from audit.models.shapes import Declared
from audit.models.torch_module import Serialisation
from audit.models.trust import require_trust
from audit.result import ModelIdentity

_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.float64: "float64", torch.uint8: "uint8"}


def load(
    ref: ModelRef,
    *,
    image_shape: tuple[int, int, int] | None,
    spec: str | None,
    trust: bool,
    device: str,
    block_rows: int,
    tracking_uri: str | None,
    registry_uri: str | None,
    class_names: tuple[str, ...],
    limits: QueryLimits,
) -> Classifier:
    """See `audit.models.load`."""
    check(device)
    stated = from_user(spec) if spec else PartialSpec()
    if ref.is_endpoint or ref.kind is RefKind.CALLABLE:
        if image_shape is None:
            raise InputError(f"model {ref.reference} declares no image size; give the data with it")
        if ref.is_endpoint:
            return endpoint.load(
                ref, image_shape=image_shape, stated=stated, block_rows=block_rows, class_names=class_names, limits=limits
            )
        return callable.load(
            ref, image_shape=image_shape, stated=stated, trust=trust, block_rows=block_rows, class_names=class_names, limits=limits
        )
    if not ref.is_registry:
        identity = file_identity(ref.file, ref.reference)
        beside = PartialSpec() if spec and is_file(spec) else from_sidecar(ref.file)
        return _onnx(ref.file, identity, stated.over(beside), image_shape, device, block_rows)
    # Deleted at the end: nothing is read from the files once a session or module is built from them.
    with ExitStack() as kept:
        folder = kept.enter_context(TemporaryDirectory(prefix="audit-model-", ignore_cleanup_errors=True))
        fetched = mlflow_registry.fetch(ref, Path(folder), tracking_uri=tracking_uri, registry_uri=registry_uri)
        model = fetched.model
        trusted = require_trust(fetched.identity.label, model.runs, trust=trust)
        unused = tuple(f"The model also carries code that was not run: {what}." for what in model.carries)
        identity = replace(fetched.identity, flavour=model.route.value, trusted=trusted, cautions=unused)
        stated = stated.over(from_tags(identity.tags))
        if model.route is Route.ONNX:
            return _onnx(model.file, identity, stated, image_shape, device, block_rows)
        if model.route is Route.PYFUNC:
            loaded = pyfunc.load(fetched)
            full = stated.over(loaded.declared).complete()
            if image_shape is None:
                raise ModelError(f"{identity.label}: does not declare the size of its images; give the data with it")
            classifier = queried.wrap(
                loaded.ask,
                image_shape=image_shape,
                identity=replace(
                    identity, runtime=loaded.runtime, device="cpu", class_names=identity.class_names or loaded.class_names
                ),
                spec=full,
                rows=block_rows,
                class_names=class_names,
                inside=pyfunc.NOTHING_INSIDE,
            )
            # Such a model may read its files whenever it is asked.
            atexit.register(kept.pop_all().close)
            return classifier
        module = mlflow_registry.load_module(replace(fetched, identity=identity), trusted=trusted, device=torch_device(device))
        declared, dtype = _declared(module) if model.route is Route.PT2 else (Declared(), _parameter_dtype(module))
        full = stated.over(PartialSpec(values={"dtype": dtype}, places={"dtype": "the model"})).complete()
        return torch_module.wrap(
            module,
            image_shape=image_shape or _declared_shape(declared.shape, full, identity.label),
            identity=identity,
            spec=full,
            serialisation=Serialisation.PT2 if model.route is Route.PT2 else Serialisation.MODULE,
            declared=declared,
            device=device,
            block_rows=block_rows,
        )


def _onnx(
    path: Path, identity: ModelIdentity, stated: PartialSpec, image_shape: tuple[int, int, int] | None, device: str, block_rows: int
) -> Classifier:
    graph = onnx_file.open_graph(path, identity.label, device=device)
    spec = stated.over(graph.declared).complete()
    shape = image_shape or _declared_shape(graph.shape, spec, identity.label)
    return onnx_file.wrap(graph, image_shape=shape, identity=identity, spec=spec, block_rows=block_rows)


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


def _declared_shape(shape: tuple[int | None, ...] | None, spec: InputSpec, who: str) -> tuple[int, int, int]:
    sizes = [size for size in shape or () if size is not None]
    if shape is None or len(shape) != 3 or len(sizes) != 3:
        raise ModelError(f"{who}: does not declare the size of its images; give the data with it")
    first, second, third = sizes
    return (third, first, second) if spec.layout == "NHWC" else (first, second, third)
