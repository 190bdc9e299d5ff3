"""Classifiers over ONNX Runtime. They give scores, and nothing inside: no gradients, no activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch  # before onnxruntime: it brings the CUDA libraries that ONNX Runtime looks for

from audit.errors import InputError, MissingCapability, ModelError
from audit.models import RowLoss, class_names
from audit.models.blocks import map_blocks
from audit.models.device import check
from audit.models.input_spec import InputSpec, PartialSpec
from audit.models.onnx_content import check_content, explained
from audit.models.probe import probe
from audit.models.scores import check_finite, check_scores
from audit.models.shapes import check_declared, check_images, refused, times
from audit.result import ModelIdentity
from audit.settings import DEFAULT_BLOCK_ROWS
from audit.text import printable
from audit.vocabulary import Capability

NO_GRADIENTS = "ONNX Runtime has no backward pass"
NO_ACTIVATIONS = "reading inner layers of an ONNX graph is not supported yet"

_INPUT_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
}
_SCORES = ("tensor(float)", "tensor(float16)", "tensor(double)")
_SILENT, _WARNINGS = 4, 2  # ONNX Runtime's log levels; warnings are its default
_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@dataclass(frozen=True, kw_only=True)
class Graph:
    """An open session and what its graph says: input name and dtype, one image's shape, fixed rows, the output used.

    A size of None is any size, and a shape of None any shape.
    """

    session: Any
    provider: str
    runtime: str
    input_name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    rows: int | None
    output_name: str
    metadata: Mapping[str, str]
    cautions: tuple[str, ...]

    @property
    def declared(self) -> PartialSpec:
        """What the graph itself says of the input spec."""
        return PartialSpec(values={"dtype": self.dtype}, places={"dtype": "the ONNX graph"})


class OnnxClassifier:
    """An ONNX graph behind the `Classifier` contract; build it with `wrap`. Images live on the CPU, wherever the session runs."""

    def __init__(self, graph: Graph, *, identity: ModelIdentity, spec: InputSpec, block_rows: int) -> None:
        self._graph = graph
        self._identity = identity
        self._spec = spec
        self._block_rows = block_rows
        self._forward_passes = 0

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded."""
        return self._identity

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """Gradients and activations."""
        return {Capability.GRADIENTS: NO_GRADIENTS, Capability.ACTIVATIONS: NO_ACTIVATIONS}

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self._identity.classes

    @property
    def device(self) -> torch.device:
        """Where images must live."""
        return torch.device("cpu")

    @property
    def forward_passes(self) -> int:
        """Images pushed through the model so far (padding not counted)."""
        return self._forward_passes

    @property
    def backward_passes(self) -> int:
        """Always 0."""
        return 0

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (n, K) of images (n, c, h, w).

        Raises:
            ModelError: the images have another shape than the model was loaded for, or the outputs are not finite.
        """
        check_images(images, self._identity)
        if not len(images):
            return images.new_zeros(0, self.classes)
        (scores,) = map_blocks(images.detach(), self._block_rows, lambda block, _: (self._forward(block),))
        check_finite(scores, self._identity.label)
        self._forward_passes += len(images)
        return scores

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(NO_GRADIENTS)

    def jacobian(self, images: torch.Tensor) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(NO_GRADIENTS)

    def _forward(self, block: torch.Tensor) -> torch.Tensor:
        return check_scores(run(self._graph, self._spec.prepare(block)), len(block), self._identity.label)


def open_graph(path: Path, who: str, *, device: str) -> Graph:
    """Open a session and read its graph.

    Raises:
        InputError: cuda was asked for and the session does not run there.
        ModelError: the file is no ONNX graph, is newer than the runtime, or is no image classifier by its signature.
    """
    import onnxruntime

    check(device)
    check_content(path, who)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    want_cuda = device == "cuda" or (
        device == "auto" and torch.cuda.is_available() and _CUDA in onnxruntime.get_available_providers()
    )
    # What goes wrong is raised, and the provider is checked below; nothing needs to be written to the terminal.
    options.log_severity_level = _SILENT
    onnxruntime.set_default_logger_severity(_SILENT)
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[_CUDA, _CPU] if want_cuda else [_CPU])
    except Exception as error:  # ONNX Runtime has its own exceptions without a common base
        raise ModelError(f"{who}: ONNX Runtime {onnxruntime.__version__} cannot open it: {explained(error)}") from error
    finally:
        onnxruntime.set_default_logger_severity(_WARNINGS)
    # Only the session itself tells the truth: a missing GPU is no error to ONNX Runtime.
    providers = session.get_providers()
    if device == "cuda" and _CUDA not in providers:
        raise InputError(
            f"--device cuda cannot be honoured: ONNX Runtime runs this model on {', '.join(providers)}; "
            "check nvidia-smi and `audit doctor`, or run with --device cpu"
        )
    cautions = []
    if want_cuda and _CUDA not in providers:
        cautions.append("A GPU is present, but ONNX Runtime could not use it; the model ran on the CPU.")
    name, dtype, shape = _input(session, who)
    output, note = _output(session, who)
    return Graph(
        session=session,
        provider=providers[0],
        runtime=f"ONNX Runtime {onnxruntime.__version__}, {providers[0]}",
        input_name=name,
        dtype=dtype,
        shape=shape[1:] or None,
        rows=shape[0] if shape else None,
        output_name=output,
        metadata=session.get_modelmeta().custom_metadata_map,
        cautions=(*cautions, *note),
    )


def wrap(
    graph: Graph,
    *,
    image_shape: tuple[int, int, int],
    identity: ModelIdentity,
    spec: InputSpec,
    block_rows: int = DEFAULT_BLOCK_ROWS,
) -> OnnxClassifier:
    """Make a classifier of an open graph; a graph with a fixed batch size is run in blocks of that size.

    Raises:
        InputError: the specification contradicts the graph.
        ModelError: the graph refuses these images, or its outputs are not (n, K).
    """
    who = identity.label
    spec.check_channels(image_shape[0])
    if spec.dtype != graph.dtype:
        raise InputError(f"{who}: the input spec says dtype {spec.dtype}, but the graph takes {graph.dtype}; leave dtype out")
    check_declared(graph.shape, spec, image_shape, who)

    def attempt(images: torch.Tensor) -> torch.Tensor:
        try:
            return run(graph, spec.prepare(images))
        except ModelError:
            raise
        except Exception as error:  # ONNX Runtime has its own exceptions without a common base
            raise ModelError(refused(who, spec, image_shape, error)) from error

    rows = graph.rows or block_rows
    found = probe(attempt, image_shape, rows, who)
    identity = replace(
        identity,
        classes=found.classes,
        input_shape=image_shape,
        runtime=graph.runtime,
        device=f"cuda:0 ({torch.cuda.get_device_name(0)})" if graph.provider == _CUDA else "cpu",
        outputs=spec.outputs if spec.outputs != "auto" else "not settled",
        input_spec=spec.words(),
        class_names=identity.class_names or class_names.from_metadata(graph.metadata, found.classes, who),
        cautions=(*identity.cautions, *graph.cautions, *found.cautions),
    )
    return OnnxClassifier(graph, identity=identity, spec=spec, block_rows=rows)


def run(graph: Graph, prepared: torch.Tensor) -> torch.Tensor:
    """One call of the session on prepared rows; its scores as float32."""
    (scores,) = graph.session.run([graph.output_name], {graph.input_name: prepared.numpy()})
    values: npt.NDArray[np.float32] = np.array(scores, dtype=np.float32)
    return torch.from_numpy(values)


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


def _output(session: Any, who: str) -> tuple[str, tuple[str, ...]]:
    outputs = session.get_outputs()
    usable = [o for o in outputs if o.type in _SCORES and len(o.shape) == 2] or [o for o in outputs if o.type in _SCORES]
    if not usable:
        raise ModelError(f"{who}: gives {', '.join(o.type for o in outputs)}; an audit needs a float output (n, classes)")
    name = str(usable[0].name)
    if len(outputs) == 1:
        return name, ()
    return name, (f"The graph has {len(outputs)} outputs; {printable(name, 60)!r} was used.",)
