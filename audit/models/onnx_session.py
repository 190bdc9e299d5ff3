"""An open ONNX Runtime session, and what its graph says of itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # before onnxruntime: it brings the CUDA libraries that ONNX Runtime looks for

from audit.errors import InputError, ModelError
from audit.models.device import check
from audit.models.input_spec import PartialSpec
from audit.models.live_layers import live_nodes
from audit.models.onnx_batch import why_not, with_any_batch
from audit.models.onnx_content import explained, read_graph
from audit.models.onnx_output import Output, choose, matrix
from audit.models.shapes import times
from audit.settings import DEFAULT_BLOCK_ROWS
from audit.text import printable

if TYPE_CHECKING:
    from onnx import ModelProto

_INPUT_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
}
# A block of images takes seconds at most, except on very large networks.
PATIENCE_S = 600
_SILENT, _WARNINGS = 4, 2  # ONNX Runtime's log levels; warnings are its default
CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@dataclass(frozen=True, kw_only=True)
class Graph:
    """An open session and what its graph says.

    Input name and dtype, one image's shape (a size of None is any size, None itself any shape), fixed rows per call (None: any),
    the output used, layers left in training mode. `freed` is the same graph rewritten for any number of rows, or why there is
    none; None where it is free already. It is a proposal: see `freed_if_equal`.
    """

    session: Any
    provider: str
    runtime: str
    input_name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    rows: int | None
    output: Output
    metadata: Mapping[str, str]
    live: tuple[str, ...]
    cautions: tuple[str, ...]
    freed: Graph | str | None = None

    @property
    def output_name(self) -> str:
        """The name of the output that is read."""
        return self.output.name

    @property
    def declared(self) -> PartialSpec:
        """What the graph itself says of the input spec."""
        return PartialSpec(values={"dtype": self.dtype}, places={"dtype": "the ONNX graph"})


def open_graph(path: Path, who: str, *, device: str, output: str | None = None) -> Graph:
    """Open a session and read its graph.

    Args:
        path: the ONNX file; external data are looked for beside it.
        who: the model, for messages.
        device: auto, cpu or cuda.
        output: the output to read; None takes the likeliest.

    Raises:
        InputError: cuda was asked for and the session does not run there, or there is no such output.
        ModelError: the file is no ONNX graph, is newer than the runtime, or is no image classifier by its signature.
    """
    check(device)
    model = read_graph(path, who)
    session = _session(str(path), who, device=device)
    graph = _described(session, model, who, device=device, output=output)
    if graph.rows is None or graph.rows >= DEFAULT_BLOCK_ROWS:
        return graph
    try:
        freed = with_any_batch(path, graph.rows)
        free = _described(
            _session(freed.SerializeToString(), who, device=device), freed, who, device=device, output=graph.output.name
        )
    except Exception as error:  # the rewritten graph is a proposal; ONNX and protobuf raise exceptions without a common base
        return replace(graph, freed=why_not(error))
    free = replace(free, output=graph.output, runtime=f"{graph.runtime}, rewritten from batches of {graph.rows}")
    return replace(graph, freed=free)


def run(graph: Graph, prepared: torch.Tensor) -> torch.Tensor:
    """One call of the session on prepared rows; its scores as float32."""
    (scores,) = graph.session.run([graph.output_name], {graph.input_name: prepared.numpy()})
    return matrix(scores, graph.output)


def first_run(graph: Graph, prepared: torch.Tensor) -> torch.Tensor:
    """`run`, for a graph of which nothing is known yet: one that goes on and on is stopped.

    Raises:
        ModelError: it did not finish in `PATIENCE_S` seconds.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    timer = threading.Timer(PATIENCE_S, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        (scores,) = graph.session.run([graph.output_name], {graph.input_name: prepared.numpy()}, options)
    except Exception as error:
        if options.terminate:
            raise ModelError(
                f"the graph had not computed {len(prepared)} images after {PATIENCE_S} seconds, so it was stopped; it may hold a "
                "loop without an end, or be too large for this machine"
            ) from error
        raise
    finally:
        timer.cancel()
    return matrix(scores, graph.output)


def _session(source: str | bytes, who: str, *, device: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # What goes wrong is raised, and the provider is checked below; nothing needs to be written to the terminal.
    options.log_severity_level = _SILENT
    onnxruntime.set_default_logger_severity(_SILENT)
    try:
        session = onnxruntime.InferenceSession(source, options, providers=[CUDA, _CPU] if _wants_cuda(device) else [_CPU])
    except Exception as error:  # ONNX Runtime has its own exceptions without a common base
        raise ModelError(f"{who}: ONNX Runtime {onnxruntime.__version__} cannot open it: {explained(error)}") from error
    finally:
        onnxruntime.set_default_logger_severity(_WARNINGS)
    # Only the session itself tells the truth: a missing GPU is no error to ONNX Runtime.
    if device == "cuda" and CUDA not in session.get_providers():
        raise InputError(
            f"--device cuda cannot be honoured: ONNX Runtime runs this model on {', '.join(session.get_providers())}; "
            "check nvidia-smi and `audit doctor`, or run with --device cpu"
        )
    return session


def _wants_cuda(device: str) -> bool:
    import onnxruntime

    return device == "cuda" or (device == "auto" and torch.cuda.is_available() and CUDA in onnxruntime.get_available_providers())


def _described(session: Any, model: ModelProto, who: str, *, device: str, output: str | None) -> Graph:
    import onnxruntime

    cautions = []
    providers = session.get_providers()
    if _wants_cuda(device) and CUDA not in providers:
        cautions.append("A GPU is present, but ONNX Runtime could not use it; the model ran on the CPU.")
    name, dtype, shape = _input(session, who)
    chosen = choose(session.get_outputs(), model, output, who)
    return Graph(
        session=session,
        provider=providers[0],
        runtime=f"ONNX Runtime {onnxruntime.__version__}, {providers[0]}",
        input_name=name,
        dtype=dtype,
        shape=shape[1:] or None,
        rows=shape[0] if shape else None,
        output=chosen,
        metadata=session.get_modelmeta().custom_metadata_map,
        live=live_nodes(model),
        cautions=(*cautions, *chosen.notes),
    )


def _input(session: Any, who: str) -> tuple[str, str, tuple[int | None, ...]]:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(printable(each.name, 40) for each in inputs)
        raise ModelError(f"{who}: takes {len(inputs)} inputs ({names}); an audit needs one image input")
    only = inputs[0]
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in only.shape)
    # A graph that leaves even the rank open has no sizes at all.
    if shape and not 2 <= len(shape) <= 5:
        raise ModelError(f"{who}: takes an input of shape {times(shape)}; an audit needs batches of images, as one tensor")
    if only.type not in _INPUT_DTYPES:
        raise ModelError(f"{who}: takes {only.type}; supported are {', '.join(_INPUT_DTYPES.values())}")
    return only.name, _INPUT_DTYPES[only.type], shape
