"""An ONNX file on disk: what it is, when it is not what its name says, and the digests of all its parts."""

from __future__ import annotations

import re
from pathlib import Path

from audit.errors import ModelError
from audit.models.trust import digest, inside, overall_digest
from audit.result import ModelIdentity
from audit.text import printable


def file_identity(path: Path, reference: str) -> ModelIdentity:
    """Name and digests of an ONNX file and of the external data files it names.

    Raises:
        ModelError: the file is no ONNX graph, or names data outside its own folder.
    """
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    who = printable(path.name)
    check_content(path, who)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own errors
        raise ModelError(f"{who}: is not an ONNX graph, or is damaged; export it again") from error
    tensors = [*model.graph.initializer, *(a.t for node in model.graph.node for a in node.attribute if a.name == "value")]
    names = {ExternalDataInfo(tensor).location for tensor in tensors if uses_external_data(tensor)}
    files = {path.name: digest(path)}
    for name in sorted(names):
        files[name] = digest(inside(path.parent, name, f"{who}: the data file"))
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
    if "INVALID_PROTOBUF" in text or "ModelProto does not have a graph" in text:
        return "it is not an ONNX graph, or is damaged; export it again"
    return printable(text.rpartition("failed:")[2], 240)
