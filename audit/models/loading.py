"""From a parsed reference to a classifier: find its files, decide whether code would run, open, look once.

`located` executes nothing, `opened` builds the session or the module or asks MLflow for the model, and `Opened.wrap` looks at it
under one input spec. A model without files, an endpoint or a function, is asked at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from audit.errors import InputError, ModelError
from audit.models import Classifier, callable, endpoint, mlflow_registry, onnx_file, onnx_session, pyfunc, queried, torch_module
from audit.models.answers import dense
from audit.models.device import check, torch_device
from audit.models.input_spec import InputSpec, PartialSpec, from_user
from audit.models.layouts import LAYOUTS
from audit.models.limits import NO_LIMITS, QueryLimits
from audit.models.located import Located, located
from audit.models.mlflow_registry import Fetched
from audit.models.mlmodel import Route
from audit.models.onnx_gradients import converted
from audit.models.ref import ModelRef
from audit.models.shapes import Declared
from audit.models.torch_module import Serialisation
from audit.models.trust import require_trust
from audit.result import ModelIdentity

log = logging.getLogger(__name__)

_DTYPES = {getattr(torch, name): name for name in ("float32", "float16", "bfloat16", "float64", "uint8")}

_OUTPUT_BY_ITSELF = (
    "--output is for ONNX graphs and torch modules; of a model that is only asked, its output called 'logits' is read, or the only "
    "one with a score per class; leave --output out, and let it give one output if it gives several"
)

ImageShape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model, ready to be looked at under any input spec.

    `identity` says what was located, and which code ran to open it. `given` is every key that is stated somewhere, the model's own
    included. `scores` runs one block of prepared images and gives what came out, as float32 on the CPU, one-hot rows where the
    model answers with labels. `network` is the torch module, None for other models.
    """

    identity: ModelIdentity
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
    if not ref.has_files:
        if output is not None:
            raise InputError(f"model {ref.reference}: {_OUTPUT_BY_ITSELF}")
        if image_shape is None:
            raise InputError(f"model {ref.reference} declares no image size; give the data with it")
        if expect_sha256 is not None:
            raise InputError(f"model {ref.reference} has no files that --expect-sha256 could be held against; leave it out")
        ask = endpoint.load if ref.is_endpoint else partial(callable.load, trust=trust)
        return ask(
            ref,
            image_shape=image_shape,
            stated=from_user(spec) if spec else PartialSpec(),
            block_rows=block_rows,
            class_names=class_names,
            limits=limits,
        )
    if limits != NO_LIMITS:
        log.warning("model %s is read from files: --max-queries and --rate-limit change nothing for it", ref.reference)
    with located(ref, spec=spec, expect_sha256=expect_sha256, tracking_uri=tracking_uri, registry_uri=registry_uri) as found:
        model = opened(
            found,
            output=output,
            trust=trust,
            device=device,
            block_rows=block_rows,
            class_names=class_names,
            gradients=gradients,
        )
        full = model.given.complete()
        classifier = model.wrap(full, image_shape or declared_shape(model.declared.shape, full, found.identity.label))
        if found.route is Route.PYFUNC:
            found.keep()
        return classifier


def opened(
    found: Located,
    *,
    output: str | None = None,
    trust: bool,
    device: str,
    block_rows: int,
    class_names: tuple[str, ...] = (),
    gradients: bool = True,
) -> Opened:
    """Build the session or the module, or let MLflow load the model, which `found` must then outlive.

    Args:
        found: the files.
        output: the output that holds the scores, where there are several.
        trust: whether code that came with the model may run.
        device: auto, cpu or cuda.
        block_rows: rows per compute block, unless the model fixes its batch size.
        class_names: of the data, for a model that answers with labels and states no names of its own.
        gradients: whether an ONNX graph is converted to torch.

    Raises:
        UntrustedError: that would run code, and `trust` is false.
        ModelError: it cannot be built.
    """
    identity = found.identity
    if require_trust(identity.label, found.runs, trust=trust):
        ran = f"Code of the model ran, allowed for files with sha256 {identity.digest}: {'; '.join(found.runs)}."
        identity = replace(identity, trusted=True, cautions=(*identity.cautions, ran))
    if found.fetched is None or found.route is Route.ONNX:
        return _graph(found, identity, output=output, device=device, block_rows=block_rows, gradients=gradients)
    fetched = replace(found.fetched, identity=identity)
    if found.route is Route.PYFUNC:
        if output is not None:
            raise InputError(f"{identity.label}: {_OUTPUT_BY_ITSELF}")
        return _pyfunc(fetched, found.stated, block_rows=block_rows, class_names=class_names)
    return _network(fetched, found.stated, output=output, device=device, block_rows=block_rows)


def _graph(found: Located, identity: ModelIdentity, *, output: str | None, device: str, block_rows: int, gradients: bool) -> Opened:
    graph = onnx_file.open_graph(found.file, identity.label, device=device, output=output)
    module = converted(found.file, graph) if gradients else onnx_file.NOT_CONVERTED
    return Opened(
        identity=identity,
        given=found.stated.over(graph.declared),
        declared=Declared(rows=graph.rows, shape=graph.shape),
        scores=partial(onnx_session.first_run, graph),
        wrap=lambda spec, shape: onnx_file.wrap(
            graph, image_shape=shape, identity=identity, spec=spec, block_rows=block_rows, module=module
        ),
    )


def _network(fetched: Fetched, stated: PartialSpec, *, output: str | None, device: str, block_rows: int) -> Opened:
    identity, pt2 = fetched.identity, fetched.model.route is Route.PT2
    where = torch_device(device)
    module = mlflow_registry.load_module(fetched, trusted=identity.trusted, device=where)
    declared, dtype = _declared(module) if pt2 else (Declared(), _parameter_dtype(module))
    serialisation = Serialisation.PT2 if pt2 else Serialisation.MODULE
    return Opened(
        identity=identity,
        given=stated.over(PartialSpec(values={"dtype": dtype}, places={"dtype": "the model"})),
        declared=declared,
        scores=torch_module.plain_scores(module, serialisation, where, identity.label, output),
        wrap=lambda spec, shape: torch_module.wrap(
            module,
            image_shape=shape,
            identity=identity,
            spec=spec,
            serialisation=serialisation,
            declared=declared,
            output=output,
            device=device,
            block_rows=block_rows,
        ),
        network=module,
    )


def _pyfunc(fetched: Fetched, stated: PartialSpec, *, block_rows: int, class_names: tuple[str, ...]) -> Opened:
    identity, loaded = fetched.identity, pyfunc.load(fetched)
    names = identity.class_names or loaded.class_names
    ask = queried.ordered(loaded.ask, names or class_names, identity.label)
    return Opened(
        identity=identity,
        given=stated.over(loaded.declared),
        declared=Declared(),
        scores=lambda prepared: dense(ask(prepared), names or class_names, identity.label),
        wrap=lambda spec, shape: queried.wrap(
            ask,
            image_shape=shape,
            identity=replace(identity, runtime=loaded.runtime, device="cpu", class_names=names),
            spec=spec,
            rows=block_rows,
            class_names=class_names,
            inside=pyfunc.NOTHING_INSIDE,
        ),
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
