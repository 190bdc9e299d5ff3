"""An ONNX file on disk: what it is, when it is not what its name says, and the digests of all its parts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import ModelError
from audit.models.trust import digest, inside, overall_digest
from audit.result import ModelIdentity
from audit.text import printable

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

# Values of one tensor between two operators, for one image or one fixed batch: 8 GiB as float32, far more than networks have.
MOST_VALUES = 1 << 31
# Above this, sizes in between are not worked out beforehand: the graph would be copied for it.
_INFERRED_BYTES = 1 << 29


def file_identity(path: Path, reference: str) -> ModelIdentity:
    """Name and digests of an ONNX file and of the external data files it names.

    Raises:
        ModelError: the file is no ONNX graph, or names data outside its own folder.
    """
    who = printable(path.name)
    model = read_graph(path, who)
    files = {path.name: digest(path)}
    for name in sorted({_location(tensor) for tensor in tensors(model.graph) if _is_external(tensor)}):
        files[name] = digest(_data_file(path, name, who))
    return ModelIdentity(
        reference=reference,
        uri=reference,
        name=printable(path.stem),
        flavour="onnx file",
        digest=overall_digest(files),
        classes=0,
        runtime="",
        device="",
        outputs="",
        input_shape=(),
        files=files,
    )


def read_graph(path: Path, who: str) -> ModelProto:
    """The graph without its external data, after a look at what it claims: nothing of that size has been allocated yet.

    Raises:
        ModelError: it is no ONNX graph; it names data outside its folder, or more data than there are; or it makes a tensor
            larger than any network needs.
    """
    import onnx

    check_content(path, who)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own errors
        raise ModelError(f"{who}: is not an ONNX graph, or is damaged; export it again") from error
    size = path.stat().st_size
    for tensor in tensors(model.graph):
        held = _data_file(path, _location(tensor), who).stat().st_size if _is_external(tensor) else size
        # Four values to a byte is the densest there is.
        if math.prod(tensor.dims) > 4 * held:
            raise ModelError(
                f"{who}: its tensor {printable(tensor.name, 60)!r} claims {math.prod(tensor.dims):.2g} values, but the file has "
                f"{held} bytes; export it again"
            )
    _check_sizes(model, size, who)
    return model


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every stored tensor of a graph: initialisers, constants, and those of the graphs inside its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from tensors(attribute.g)
            for inner in attribute.graphs:
                yield from tensors(inner)


def constants(graph: GraphProto) -> dict[str, TensorProto]:
    """The stored tensors of a graph by the name that its nodes read them under."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found.update((node.output[0], attribute.t) for attribute in node.attribute if attribute.name == "value")
    return found


def _check_sizes(model: ModelProto, size: int, who: str) -> None:
    import onnx

    if size > _INFERRED_BYTES:
        return
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # what is wrong with the graph is for the runtime to say
        return
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        values = math.prod(dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.dim_value > 0)
        if values > MOST_VALUES:
            raise ModelError(
                f"{who}: computing {printable(value.name, 60)!r} takes a tensor of {values:.2g} values, more than any network "
                "needs; export it again"
            )


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == tensor.EXTERNAL


def _location(tensor: TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _data_file(path: Path, name: str, who: str) -> Path:
    found = inside(path.parent, name, f"{who}: the data file")
    if not found.is_file():
        raise ModelError(f"{who}: the data file {printable(name)!r} is named by the model, but is no file; export it again")
    return found


def check_content(path: Path, who: str) -> None:
    """Name the usual things that are saved under a model's name."""
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except FileNotFoundError:
        raise ModelError(f"there is no model file {printable(str(path))}; check the path") from None
    except OSError as error:
        raise ModelError(f"model file {printable(str(path))} cannot be read ({error.strerror})") from None
    start = head.lstrip().lower()
    if not head:
        raise ModelError(f"{who}: the file is empty; export or download it again")
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ModelError(f"{who}: is a web page, not an ONNX graph; download the file itself")
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(f"{who}: is a Git LFS pointer, not an ONNX graph; fetch the file with git lfs pull")
    if head.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        raise ModelError(f"{who}: is a zip archive or a pickle, not an ONNX graph; export the model with torch.onnx.export")


def explained(error: Exception) -> str:
    """Repeat what ONNX Runtime said in its own words, without its source paths, and with what to do about it."""
    text = printable(str(error), 2000)
    if match := re.search(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)", text):
        return (
            f"its IR version is {match[1]} and {match[2]} is the newest it reads; update onnxruntime, or export with an older opset"
        )
    if match := re.search(r"Opset (\d+) is under development.* (till opset \d+)", text):
        return f"it uses opset {match[1]}, and support goes {match[2]}; update onnxruntime, or export with an older opset"
    if match := re.search(r"No Op registered for (\S+) with domain_version of (\d+)|No opset import for domain '([^']*)'", text):
        missing = f"operator {match[1]} of opset {match[2]}" if match[1] else f"operators of domain {match[3]!r}"
        return f"it uses {missing}, which ONNX Runtime does not have; export it with standard operators"
    if match := re.search(r"Could not find an implementation for (\w+)\(\d+\)", text):
        return f"it has no {match[1]} for the graph's kind of numbers; export the model in float32"
    if "INVALID_PROTOBUF" in text or "ModelProto does not have a graph" in text:
        return "it is not an ONNX graph, or is damaged; export it again"
    return printable(text.rpartition("failed:")[2], 240)
