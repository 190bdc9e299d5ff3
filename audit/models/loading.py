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
from audit.models.onnx_gradients import converted
from audit.models.ref import ModelRef, RefKind
from audit.models.shapes import Declared
from audit.models.torch_module import Serialisation
from audit.models.trust import require_digest, require_trust
from audit.result import ModelIdentity

_DTYPES = {getattr(torch, name): name for name in ("float32", "float16", "bfloat16", "float64", "uint8")}


def load(
    ref: ModelRef,
    *,
    image_shape: tuple[int, int, int] | None,
    spec: str | None,
    output: str | None,
    trust: bool,
    expect_sha256: str | None,
    device: str,
    block_rows: int,
    tracking_uri: str | None,
    registry_uri: str | None,
    class_names: tuple[str, ...],
    limits: QueryLimits,
    gradients: bool,
) -> Classifier:
    """See `audit.models.load`; without `gradients`, nothing is done to get some."""
    check(device)
    stated = from_user(spec) if spec else PartialSpec()
    if ref.is_endpoint or ref.kind is RefKind.CALLABLE:
        if image_shape is None:
            raise InputError(f"model {ref.reference} declares no image size; give the data with it")
        if expect_sha256 is not None:
            raise InputError(f"model {ref.reference} has no files that --expect-sha256 could be held against; leave it out")
        if ref.is_endpoint:
            return endpoint.load(
                ref, image_shape=image_shape, stated=stated, block_rows=block_rows, class_names=class_names, limits=limits
            )
        return callable.load(
            ref, image_shape=image_shape, stated=stated, trust=trust, block_rows=block_rows, class_names=class_names, limits=limits
        )
    if not ref.is_registry:
        identity = file_identity(ref.file, ref.reference)
        require_digest(identity.name, identity.files, expect_sha256)
        beside = PartialSpec() if spec and is_file(spec) else from_sidecar(ref.file)
        return _onnx(ref.file, identity, stated.over(beside), image_shape, device, block_rows, output, gradients)
    # Deleted at the end: nothing is read from the files once a session or module is built from them.
    with ExitStack() as kept:
        folder = kept.enter_context(TemporaryDirectory(prefix="audit-model-", ignore_cleanup_errors=True))
        fetched = mlflow_registry.fetch(ref, Path(folder), tracking_uri=tracking_uri, registry_uri=registry_uri)
        model = fetched.model
        require_digest(fetched.identity.label, fetched.identity.files, expect_sha256)
        trusted = require_trust(fetched.identity.label, model.runs, trust=trust)
        cautions = [f"The model also carries code that was not run: {what}." for what in model.carries]
        if trusted:
            cautions.append(
                f"Code of the model ran, allowed for files with sha256 {fetched.identity.digest}: {'; '.join(model.runs)}."
            )
        identity = replace(fetched.identity, flavour=model.route.value, trusted=trusted, cautions=tuple(cautions))
        stated = stated.over(from_tags(identity.tags))
        if model.route is Route.ONNX:
            return _onnx(model.file, identity, stated, image_shape, device, block_rows, output, gradients)
        if model.route is Route.PYFUNC:
            classifier = _pyfunc(replace(fetched, identity=identity), stated, image_shape, block_rows, class_names)
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
            output=output,
            device=device,
            block_rows=block_rows,
        )


def _pyfunc(
    fetched: mlflow_registry.Fetched,
    stated: PartialSpec,
    image_shape: tuple[int, int, int] | None,
    block_rows: int,
    class_names: tuple[str, ...],
) -> Classifier:
    identity = fetched.identity
    if image_shape is None:
        raise ModelError(f"{identity.label}: does not declare the size of its images; give the data with it")
    loaded = pyfunc.load(fetched)
    names = identity.class_names or loaded.class_names
    return queried.wrap(
        loaded.ask,
        image_shape=image_shape,
        identity=replace(identity, runtime=loaded.runtime, device="cpu", class_names=names),
        spec=stated.over(loaded.declared).complete(),
        rows=block_rows,
        class_names=class_names,
        inside=pyfunc.NOTHING_INSIDE,
    )


def _onnx(
    path: Path,
    identity: ModelIdentity,
    stated: PartialSpec,
    image_shape: tuple[int, int, int] | None,
    device: str,
    block_rows: int,
    output: str | None,
    gradients: bool,
) -> Classifier:
    graph = onnx_file.open_graph(path, identity.label, device=device, output=output)
    spec = stated.over(graph.declared).complete()
    shape = image_shape or _declared_shape(graph.shape, spec, identity.label)
    module = converted(path, graph) if gradients else onnx_file.NO_GRADIENTS
    return onnx_file.wrap(graph, image_shape=shape, identity=identity, spec=spec, block_rows=block_rows, module=module)


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
