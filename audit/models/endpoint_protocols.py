"""How endpoints are asked: MLflow's scoring server, and the v2 inference protocol of KServe and Triton."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch

from audit.errors import EndpointError, ModelError
from audit.models.answers import Labels, Scores, read
from audit.models.endpoint_http import Connection, RequestRefused
from audit.models.input_spec import PartialSpec
from audit.models.queried import Ask
from audit.text import printable

_DTYPES = {"FP32": "float32", "FP64": "float64", "UINT8": "uint8"}
_MISSING_COLUMNS = re.compile(r"missing inputs (\[[^\]]*\])")


@dataclass(frozen=True, kw_only=True)
class Service:
    """What an endpoint says of itself before it is asked.

    `facts` enter the model's digest. `shape` is that of one image (None: any), `rows` the fixed number of rows per call, if any.
    `settle` finds out on prepared rows how the endpoint is asked, and what that way is called.
    """

    protocol: str
    facts: Mapping[str, object]
    runtime: str
    settle: Callable[[torch.Tensor], tuple[Ask, str]]
    declared: PartialSpec = field(default_factory=PartialSpec)
    shape: tuple[int | None, ...] | None = None
    rows: int | None = None


# Prepared rows (b, ...) -> the body of a request.
Form = Callable[[torch.Tensor], bytes]


def scoring_server(connection: Connection, url: str) -> Service:
    """MLflow's scoring server: it tells its version and nothing of the model."""
    try:
        said = connection.get(url.removesuffix("/invocations") + "/version").decode("utf-8", "replace").strip()
    except EndpointError:
        said = ""
    version = f" {said}" if re.fullmatch(r"\d[\w.+-]{0,30}", said, re.ASCII) else ""
    return Service(
        protocol="MLflow scoring server",
        facts={"version": version},
        runtime=f"MLflow scoring server{version}",
        settle=partial(_settle_scoring_server, connection, url),
    )


def _settle_scoring_server(connection: Connection, url: str, sample: torch.Tensor) -> tuple[Ask, str]:
    """Find the form of request that the model behind the server takes, and what it is called.

    Without a signature to read, the forms are tried on `sample`: the images as they are, each as one row, as an unnamed table, and
    as a table with the column names that the server misses.

    Raises:
        ModelError: it takes none of them; says why it refused the first.
        EndpointError: as `Connection.post`.
    """
    refused: list[RequestRefused] = []
    forms = {"inputs": _inputs, "inputs, one row per image": _flat_inputs, "dataframe_split": _table(None)}
    for name, form in forms.items():
        try:
            connection.post(url, form(sample), len(sample))
        except RequestRefused as error:
            refused.append(error)
        else:
            return _ask_with(connection, url, form), name
    columns = _missing_columns(refused[-1].said)
    if len(columns) == sample[0].numel():
        form = _table(columns)
        connection.post(url, form(sample), len(sample))
        return _ask_with(connection, url, form), "dataframe_split with the model's column names"
    raise refused[0]


def _ask_with(connection: Connection, url: str, form: Form) -> Ask:
    def ask(prepared: torch.Tensor) -> Scores | Labels:
        answer = connection.post(url, form(prepared), len(prepared))
        if isinstance(answer, dict):
            if "predictions" not in answer:
                raise EndpointError(f"{connection.who}: answers with JSON that holds no predictions; is this a scoring server?")
            answer = answer["predictions"]
        with _answers_of_the_endpoint():
            return read(answer, len(prepared), connection.who)

    return ask


def _inputs(prepared: torch.Tensor) -> bytes:
    return f'{{"inputs": {nested(prepared)}}}'.encode()


def nested(values: torch.Tensor) -> str:
    """The values as JSON's nested lists. One channel at the end would make a list of every pixel, which is slow to write out."""
    pixels = values.ndim > 2 and values.shape[-1] == 1
    text = json.dumps((values[..., 0] if pixels else values).tolist())
    # Between two rows it becomes "]], [[": every bracket is doubled, and those at the ends are missing.
    return f"[{text.replace(', ', '], [')}]" if pixels else text


def _flat_inputs(prepared: torch.Tensor) -> bytes:
    return _inputs(prepared.flatten(1))


def _table(columns: list[str] | None) -> Form:
    def form(prepared: torch.Tensor) -> bytes:
        rows = prepared.flatten(1)
        return json.dumps({"dataframe_split": {"columns": columns or list(range(rows.shape[1])), "data": rows.tolist()}}).encode()

    return form


def _missing_columns(text: str) -> list[str]:
    match = _MISSING_COLUMNS.search(text)
    try:
        found = ast.literal_eval(match[1]) if match else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(name) for name in cast("list[object]", found)]


def v2_server(connection: Connection, url: str) -> Service:
    """The metadata of a v2 model: its only input, and the versions that are served.

    Raises:
        EndpointError: there is no such model, or no metadata.
        ModelError: it takes other than one image input.
    """
    found = connection.parsed(connection.get(url))
    inputs = found.get("inputs") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs):
        raise EndpointError(f"{connection.who}: does not describe its inputs; is this a v2 inference server (GET v2/models/NAME)?")
    who = connection.who
    if len(inputs) != 1:
        names = ", ".join(printable(str(each.get("name")), 40) for each in inputs)
        raise ModelError(f"{who}: takes {len(inputs)} inputs ({names}); an audit needs one image input")
    name, datatype, shape = (inputs[0].get(key) for key in ("name", "datatype", "shape"))
    if datatype not in _DTYPES:
        raise ModelError(f"{who}: takes {printable(str(datatype), 20)}; supported are {', '.join(_DTYPES)}")
    sizes = shape if isinstance(shape, list) and all(isinstance(size, int) for size in shape) else []
    if len(sizes) < 2:
        raise ModelError(f"{who}: takes an input of shape {printable(str(shape), 60)}; an audit needs batches of images")
    rows, *rest = (size if size > 0 else None for size in sizes)
    place = "the endpoint's metadata"
    return Service(
        protocol="v2 inference protocol",
        facts={"metadata": found},
        runtime=printable(f"v2 inference server ({found.get('platform') or 'platform not named'})", 80),
        settle=partial(_settle_v2_server, connection, url, str(name), str(datatype)),
        declared=PartialSpec(values={"dtype": _DTYPES[datatype]}, places={"dtype": place}),
        shape=tuple(rest),
        rows=rows,
    )


def _settle_v2_server(connection: Connection, url: str, name: str, datatype: str, sample: torch.Tensor) -> tuple[Ask, str]:
    def ask(prepared: torch.Tensor) -> Scores | Labels:
        tensor = {"name": name, "shape": list(prepared.shape), "datatype": datatype, "data": prepared.flatten().tolist()}
        answer = connection.post(f"{url}/infer", json.dumps({"inputs": [tensor]}).encode(), len(prepared))
        outputs = answer.get("outputs") if isinstance(answer, dict) else None
        if not isinstance(outputs, list) or not outputs:
            raise EndpointError(f"{connection.who}: answers with JSON that holds no outputs; is this a v2 inference server?")
        with _answers_of_the_endpoint():
            named = dict(_tensor(each, connection.who) for each in outputs)
            return read(named, len(prepared), connection.who)

    ask(sample)
    return ask, "JSON tensors"


def _tensor(output: object, who: str) -> tuple[str, object]:
    """The name and the nested list of one output tensor, whose data may come flat."""
    if not isinstance(output, dict) or not isinstance(data := output.get("data"), list):
        raise EndpointError(f"{who}: answers with an output that holds no JSON data; switch its binary answers off")
    name, shape = str(output.get("name")), output.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or (data and isinstance(data[0], list)):
        return name, data
    rows, columns = shape
    if not isinstance(rows, int) or not isinstance(columns, int) or columns < 1 or len(data) != rows * columns:
        raise EndpointError(f"{who}: answers with {len(data)} values in an output of shape {printable(str(shape), 60)}")
    return name, [data[start : start + columns] for start in range(0, len(data), columns)]


@contextmanager
def _answers_of_the_endpoint() -> Iterator[None]:
    """An answer that cannot be read is no fault of the images: asking for fewer of them would not help."""
    try:
        yield
    except ModelError as error:
        raise EndpointError(str(error)) from error
