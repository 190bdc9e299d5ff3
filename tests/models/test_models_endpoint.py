from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest
import torch
from scripted_server import Asked, Reply, serving
from small_models import Small, images

from audit.errors import EndpointError, InputError, ModelError, QueryBudgetSpent
from audit.models import Classifier, ModelRef, endpoint_http, endpoint_secrets, limits, load, resolve_outputs
from audit.models.endpoint_protocols import nested
from audit.models.limits import QueryLimits
from audit.vocabulary import Capability

SHAPE = (3, 8, 8)


def scores_of(rows: object, seed: int = 0) -> list[list[float]]:
    """What the small network of these tests says, as a server would write it."""
    with torch.no_grad():
        return Small(seed=seed).eval()(torch.tensor(rows, dtype=torch.float32)).tolist()


def scoring(asked: Asked) -> Reply:
    """An MLflow scoring server over the small network, its model without a signature."""
    if asked.path == "/version":
        return Reply(content=b"3.17.2")
    if asked.method == "GET":
        return Reply(status=404)
    return Reply(content={"predictions": scores_of(asked.json["inputs"])})


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (endpoint_secrets.TOKEN, endpoint_secrets.HEADERS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that were asked for, none of which is waited."""
    found: list[float] = []
    monkeypatch.setattr(endpoint_http, "sleep", found.append)
    return found


def open_endpoint(url: str, **options: object) -> Classifier:
    options = {"image_shape": SHAPE, "block_rows": 4, **options}
    return load(ModelRef.parse(url), **options)  # type: ignore[arg-type]


def after(count: int, then: Callable[[Asked], Reply]) -> Callable[[Asked], Reply]:
    """A scoring server that turns into another one after `count` requests for predictions."""
    seen = []

    def respond(asked: Asked) -> Reply:
        if asked.method == "POST":
            seen.append(asked)
        return then(asked) if len(seen) > count else scoring(asked)

    return respond


# A form, and four looks at the model.
OPENING = 5


def test_scores_equal_those_of_the_network_bit_for_bit_in_padded_blocks_over_one_connection() -> None:
    x = images(9)
    with serving(scoring) as server:
        classifier = open_endpoint(f"{server.url}/invocations")
        found = classifier.logits(x)
        padded = torch.cat([x, x[-1:].expand(3, *SHAPE)])
        expected = torch.cat([torch.tensor(scores_of(padded[start : start + 4].tolist())) for start in (0, 4, 8)])[:9]
        assert torch.equal(found, expected)
        assert torch.equal(classifier.logits(x.flip(0)[:5]), found.flip(0)[:5])
        assert {len(post.json["inputs"]) for post in server.posts} == {4}
        assert server.connections == 1
    assert (classifier.classes, classifier.forward_passes, classifier.backward_passes) == (5, 14, 0)
    assert set(classifier.lacks) == {Capability.GRADIENTS, Capability.ACTIVATIONS}


def test_the_identity_says_what_can_be_known_and_warns() -> None:
    with serving(scoring) as server:
        url = f"{server.url}/serving/small/invocations"
        identity = open_endpoint(url).identity
        again = open_endpoint(url).identity
    host = server.url.removeprefix("http://")
    assert identity.label == f"small at {host}" and identity.uri == url
    assert identity.runtime == "MLflow scoring server, 4 images per request as inputs"
    assert (identity.device, identity.flavour, identity.opaque) == ("remote", "endpoint (MLflow scoring server)", True)
    assert identity.digest == again.digest and len(identity.digest) == 64
    assert "may be replaced" in identity.cautions[0]
    with serving(scoring) as server:
        assert open_endpoint(f"{server.url}/invocations").identity.runtime.startswith("MLflow scoring server 3.17.2,")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda rows: {"predictions": [row[:-1] if index else row for index, row in enumerate(rows)]}, "rows differ in length"),
        (lambda rows: {"predictions": rows[:-1]}, "gives 3 answers for 4 images"),
        (lambda rows: {"predictions": [-1 for _ in rows]}, "one whole number per image, some below 0"),
        (lambda rows: {"predictions": "soon"}, "shape ()"),
        (lambda rows: {"scores": rows}, "holds no predictions"),
        (lambda rows: {"predictions": {"a": rows, "b": rows}}, "several outputs (a, b)"),
        (lambda rows: b"<!DOCTYPE html><title>Sign in</title>", "an HTML page, not with JSON"),
        (lambda rows: b"", "nothing, not with JSON"),
        (lambda rows: b'{"predictions": [[1.0', "something else, not with JSON"),
        (lambda rows: b"[" * 100_000, "something else, not with JSON"),
        (lambda rows: {"predictions": list(reversed(rows))}, "out of order"),
        (lambda rows: {"predictions": sorted(rows)}, "out of order"),
    ],
)
def test_an_answer_that_cannot_be_used_is_one_sentence(answer: Callable[[list[list[float]]], object], says: str) -> None:
    def respond(asked: Asked) -> Reply:
        return Reply(content=answer(scores_of(asked.json["inputs"]))) if asked.method == "POST" else scoring(asked)

    with serving(respond) as server, pytest.raises((EndpointError, ModelError)) as error:
        open_endpoint(f"{server.url}/invocations")
    assert says in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).startswith(server.url.removeprefix("http://"))


def test_what_is_no_number_is_refused_when_it_is_measured() -> None:
    def respond(asked: Asked) -> Reply:
        if asked.method == "GET":
            return scoring(asked)
        rows: list[list[float | None]] = [list(row) for row in scores_of(asked.json["inputs"])]
        for row, image in zip(rows, asked.json["inputs"], strict=True):
            if (first := image[0][0][0]) in (0.0, 1.0):
                row[2] = float("nan") if first else None
        return Reply(content={"predictions": rows})

    with serving(respond) as server:
        classifier = open_endpoint(f"{server.url}/invocations")
        for first in (0.0, 1.0):
            x = images(4)
            x[1, 0, 0, 0] = first
            with pytest.raises(ModelError, match="1 of 20 outputs are NaN or infinite"):
                classifier.logits(x)


@pytest.mark.parametrize(
    ("status", "content", "says"),
    [
        (401, b"", "wants credentials (401); set AUDIT_ENDPOINT_TOKEN"),
        (403, b"no", "denies access (403)"),
        (404, b"<html>gone</html>", "nothing at this address (404)"),
        (405, b"", "takes no such request"),
        (413, b"", "takes no batch of 1 images (413)"),
        (
            400,
            {"error_code": "BAD_REQUEST", "message": "Failed to predict data '[[1]]'. \nError: no such column\nmore"},
            ": no such column",
        ),
        (422, {"detail": "cannot::read\x1b[31m password=hunter2"}, "(422): cannot::read password=…"),
        (400, b"\nplain words\nand more", "(400): plain words"),
        (400, b"", "(400): without a word"),
        (418, b"short and stout", "refuses the request (418): short and stout"),
        (501, {"error": "no"}, "fails (501): no"),
    ],
)
def test_a_refusal_is_one_sentence(status: int, content: object, says: str, waits: list[float]) -> None:
    respond = lambda asked: Reply(status=status, content=content) if asked.method == "POST" else scoring(asked)  # noqa: E731
    with serving(respond) as server, pytest.raises(InputError) as error:
        open_endpoint(f"{server.url}/invocations")
    assert says in str(error.value) and "\n" not in str(error.value) and "hunter2" not in str(error.value)
    assert not waits


def test_a_server_that_is_not_there_is_named_at_once(waits: list[float]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EndpointError, match="cannot be reached") as error:
        open_endpoint(f"http://127.0.0.1:{port}/invocations")
    assert f"127.0.0.1:{port}" in str(error.value) and "connection refused" in str(error.value)
    assert not waits


def test_a_passing_failure_is_waited_out_with_growing_waits(waits: list[float]) -> None:
    failures = iter([500, 503, 504, 502])

    def respond(asked: Asked) -> Reply:
        if asked.method == "POST" and (status := next(failures, None)):
            return Reply(status=status, content=b"later")
        return scoring(asked)

    with serving(respond) as server:
        assert open_endpoint(f"{server.url}/invocations").classes == 5
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_lasting_failure_ends_after_four_repetitions(waits: list[float]) -> None:
    respond = after(OPENING, lambda _: Reply(status=503, content={"error": "no worker"}))
    with serving(respond) as server:
        classifier = open_endpoint(f"{server.url}/invocations")
        with pytest.raises(EndpointError, match=r"fails \(503\): no worker"):
            classifier.logits(images(2))
        assert len(server.posts) == OPENING + 5
    assert waits == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("header", "least", "most"), [("7", 7, 7), ("Fri, 31 Dec 2100 23:59:59 GMT", None, None), ("soon", 0.5, 0.5)]
)
def test_retry_after_is_honoured(header: str, least: float | None, most: float | None, waits: list[float]) -> None:
    refusals = iter([Reply(status=429, headers={"Retry-After": header})])

    def respond(asked: Asked) -> Reply:
        return next(refusals, None) or scoring(asked) if asked.method == "POST" else scoring(asked)

    with serving(respond) as server:
        if least is None:
            with pytest.raises(EndpointError, match=r"asks to wait \d+ seconds \(429\)"):
                open_endpoint(f"{server.url}/invocations")
            assert not waits
        else:
            open_endpoint(f"{server.url}/invocations")
            assert len(waits) == 1 and least <= waits[0] <= (most or 0)


def reset(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection so that the other side reads a reset."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def half_an_answer(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"predictions": [')


@pytest.mark.parametrize("raw", [reset, half_an_answer])
def test_a_connection_that_is_cut_is_tried_again(raw: Callable[[BaseHTTPRequestHandler], None], waits: list[float]) -> None:
    cuts = iter([Reply(raw=raw)])

    def respond(asked: Asked) -> Reply:
        return next(cuts, None) or scoring(asked) if asked.method == "POST" else scoring(asked)

    with serving(respond) as server:
        assert open_endpoint(f"{server.url}/invocations").classes == 5
    assert waits == [0.5]
    with serving(lambda asked: Reply(raw=raw)) as server, pytest.raises(EndpointError, match="closed the connection"):
        open_endpoint(f"{server.url}/invocations")


def test_a_slow_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_http, "ANSWER_TIMEOUT", 0.2)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(40):
            handler.wfile.write(b"1")
            time.sleep(0.05)

    def silence(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.6)

    for raw in (drip, silence):
        with serving(lambda asked, raw=raw: Reply(raw=raw) if asked.method == "POST" else scoring(asked)) as server:  # type: ignore[misc]
            started = time.monotonic()
            with pytest.raises(EndpointError, match=r"gave no answer within 0\.2 seconds"):
                open_endpoint(f"{server.url}/invocations")
            assert time.monotonic() - started < 1


def test_a_huge_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_http, "MOST_BYTES", 1 << 20)

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                handler.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        except OSError:
            pass

    def respond(asked: Asked) -> Reply:
        return Reply(raw=endless) if asked.method == "POST" else scoring(asked)

    with serving(respond) as server, pytest.raises(EndpointError, match="answers with more than 1 MiB"):
        open_endpoint(f"{server.url}/invocations")


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    def respond(asked: Asked) -> Reply:
        if asked.method == "POST" and len(asked.json["inputs"]) > 3:
            return Reply(status=413)
        return scoring(asked)

    with serving(respond) as server:
        classifier = open_endpoint(f"{server.url}/invocations", block_rows=16)
        assert classifier.logits(images(5)).shape == (5, 5)
        assert [len(post.json["inputs"]) for post in server.posts[:4]] == [16, 8, 4, 2]
    assert "2 images per request" in classifier.identity.runtime


def test_redirects_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoint_secrets.TOKEN, "s3cr3t-token")
    with serving(scoring) as other:
        away = f"{other.url}/invocations?token=abc"
        respond = lambda asked: Reply(status=307, headers={"Location": away})  # noqa: E731
        with serving(respond) as server, pytest.raises(EndpointError, match="another host") as error:
            open_endpoint(f"{server.url}/invocations")
        assert not other.asked and "abc" not in str(error.value)

    def respond(asked: Asked) -> Reply:
        return scoring(asked) if asked.path != "/invocations" else Reply(status=308, headers={"Location": "/new/invocations"})

    with serving(respond) as server:
        classifier = open_endpoint(f"{server.url}/invocations")
        before = len(server.posts)
        classifier.logits(images(4))
        # The new address is remembered.
        assert [post.path for post in server.posts[before:]] == ["/new/invocations"]

    def around(asked: Asked) -> Reply:
        return Reply(status=302, headers={"Location": asked.path})

    with serving(around) as server, pytest.raises(EndpointError, match="without end"):
        open_endpoint(f"{server.url}/invocations")


def test_secrets_come_from_the_environment_and_go_to_the_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoint_secrets.TOKEN, " s3cr3t-token\n")
    monkeypatch.setenv(endpoint_secrets.HEADERS, json.dumps({"X-Key": "k3y-of-mine"}))
    with serving(scoring) as server:
        identity = open_endpoint(f"{server.url}/invocations").identity
        assert all(asked.headers["Authorization"] == "Bearer s3cr3t-token" for asked in server.asked)
        assert server.asked[0].headers["X-Key"] == "k3y-of-mine"
    assert "s3cr3t" not in repr(identity) and "k3y" not in repr(identity)

    def told(asked: Asked) -> Reply:
        return Reply(status=400, content=f"bad {asked.headers.get('X-Key')} {asked.headers.get('Authorization')}".encode())

    with serving(told) as server, pytest.raises(ModelError) as error:
        open_endpoint(f"{server.url}/invocations")
    assert "bad … Bearer …" in str(error.value)


def test_secrets_that_a_server_repeats_in_its_answers_go_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoint_secrets.TOKEN, "s3cr3t-token")

    def respond(asked: Asked) -> Reply:
        said = asked.headers.get("Authorization")
        if asked.method == "GET":
            inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, *SHAPE]}]
            return Reply(content={"name": "m", "platform": f"for {said}", "inputs": inputs, "outputs": []})
        rows = asked.json["inputs"][0]["shape"][0]
        return Reply(content={"outputs": [{"name": "o", "datatype": "BYTES", "shape": [rows], "data": [said] * rows}]})

    with serving(respond) as server:
        identity = open_endpoint(f"{server.url}/v2/models/m", class_names=("Bearer …", "another")).identity
        assert "for Bearer …" in identity.runtime and "s3cr3t" not in repr(identity)
        with pytest.raises(ModelError, match="the class 'Bearer …'"):
            open_endpoint(f"{server.url}/v2/models/m", class_names=("one", "another"))


def test_secrets_are_not_handed_to_a_second_host(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = ["https://a/invocations", "https://a:8080/v2/models/net", "https://b/invocations"]
    endpoint_secrets.check_hosts(urls)
    monkeypatch.setenv(endpoint_secrets.TOKEN, "s3cr3t-token")
    endpoint_secrets.check_hosts(urls[:2])
    with pytest.raises(InputError, match="would go to every one of a, b") as error:
        endpoint_secrets.check_hosts(urls)
    assert "s3cr3t" not in str(error.value)


@pytest.mark.parametrize("value", ["{", "[1]", '{"a": 1}', '{"a b": "c"}', '{"a": "s3cr3t\\r\\nHost: x"}', '{"a": ""}'])
def test_headers_that_are_none_are_refused_without_repeating_them(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoint_secrets.HEADERS, value)
    with pytest.raises(InputError, match="AUDIT_ENDPOINT_HEADERS") as error:
        open_endpoint("http://127.0.0.1:9/invocations")
    assert "s3cr3t" not in str(error.value)


def test_the_query_budget_is_kept_to_the_image_and_ends_for_good() -> None:
    with serving(scoring) as server:
        allowed = QueryLimits(max_queries=4 * OPENING + 6)
        classifier = open_endpoint(f"{server.url}/invocations", limits=allowed)
        classifier.logits(images(2))
        with pytest.raises(QueryBudgetSpent, match=rf"24 images were sent.*--max-queries {4 * OPENING + 6}"):
            classifier.logits(images(4))
        with pytest.raises(QueryBudgetSpent):
            classifier.logits(images(1))
        with pytest.raises(QueryBudgetSpent, match="one call takes 4 images, more than --max-queries 3, so none was sent"):
            open_endpoint(f"{server.url}/invocations", limits=QueryLimits(max_queries=3))
        assert sum(len(post.json["inputs"]) for post in server.posts) == 4 * OPENING + 4


def test_the_rate_limit_spaces_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(round(seconds, 6))
        clock[0] += seconds

    monkeypatch.setattr(limits, "sleep", sleep)
    monkeypatch.setattr(limits, "monotonic", lambda: clock[0])
    meter = limits.Meter(QueryLimits(rate_limit=4), "who")
    for busy in (0.0, 0.1, 0.5, 0.0):
        meter.spend(1)
        clock[0] += busy
    meter.spend(1)
    assert pauses == [0.25, 0.15, 0.25]


def test_images_as_rows_and_as_a_table_with_the_models_own_columns() -> None:
    names = [f"pixel {index}" for index in range(192)]

    def respond(asked: Asked) -> Reply:
        if asked.method == "GET":
            return scoring(asked)
        table = asked.json.get("dataframe_split")
        if table is None or table["columns"] != names:
            message = f"Failed to predict. \nError: Model is missing inputs {names}. Note that there were extra inputs: [0]."
            return Reply(status=400, content={"message": message})
        return Reply(content={"predictions": scores_of(torch.tensor(table["data"]).view(-1, *SHAPE).tolist())})

    x = images(4)
    with serving(respond) as server:
        classifier = open_endpoint(f"{server.url}/invocations")
        assert torch.equal(classifier.logits(x), torch.tensor(scores_of(x.tolist())))
    assert "dataframe_split with the model's column names" in classifier.identity.runtime

    def flat(asked: Asked) -> Reply:
        if asked.method == "GET":
            return scoring(asked)
        rows = torch.tensor(asked.json["inputs"])
        if rows.ndim != 2:
            return Reply(status=400, content={"message": "Shape of input (4, 3, 8, 8) does not match expected shape (-1, 192)."})
        return Reply(content={"predictions": scores_of(rows.view(-1, *SHAPE).tolist())})

    with serving(flat) as server:
        classifier = open_endpoint(f"{server.url}/invocations")
        assert torch.equal(classifier.logits(x), torch.tensor(scores_of(x.tolist())))
    assert "inputs, one row per image" in classifier.identity.runtime


def test_the_input_spec_is_what_the_server_receives() -> None:
    with serving(scoring) as server:
        classifier = open_endpoint(f"{server.url}/invocations", spec="range=0-255,dtype=uint8")
        classifier.logits(torch.full((1, *SHAPE), 0.5))
        assert server.posts[-1].json["inputs"][0][0][0][0] == 128


METADATA = {
    "name": "small",
    "versions": ["2"],
    "platform": "onnxruntime_onnx",
    "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 8, 8]}],
    "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 5]}],
}


def v2(asked: Asked, *, metadata: object = METADATA, flat: bool = True) -> Reply:
    """A KServe or Triton server with one model."""
    if asked.method == "GET":
        return Reply(content=metadata) if asked.path in ("/v2/models/small", "/v2/models/small/versions/2") else Reply(status=404)
    (tensor,) = asked.json["inputs"]
    rows = scores_of(torch.tensor(tensor["data"]).view(tensor["shape"]).tolist())
    data: object = [value for row in rows for value in row] if flat else rows
    labels = {"name": "label", "datatype": "INT64", "shape": [len(rows)], "data": [row.index(max(row)) for row in rows]}
    scores = {"name": "logits", "datatype": "FP32", "shape": [len(rows), 5], "data": data}
    return Reply(content={"model_name": "small", "model_version": "2", "outputs": [labels, scores]})


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("path", ["/v2/models/small", "/v2/models/small/versions/2", "/v2/models/small/infer"])
def test_a_v2_server_is_asked_by_its_metadata(path: str, flat: bool) -> None:
    x = images(6)
    with serving(lambda asked: v2(asked, flat=flat)) as server:
        classifier = open_endpoint(f"{server.url}{path}")
        assert torch.equal(classifier.logits(x)[:4], torch.tensor(scores_of(x[:4].tolist())))
        assert server.posts[-1].path == path.removesuffix("/infer") + "/infer"
        sent = server.posts[-1].json["inputs"][0]
        assert (sent["name"], sent["datatype"], sent["shape"]) == ("image", "FP32", [4, 3, 8, 8])
    identity = classifier.identity
    assert identity.name == f"small at {server.url.removeprefix('http://')}"
    assert identity.runtime == "v2 inference server (onnxruntime_onnx), 4 images per request as JSON tensors"


def test_the_metadata_of_a_v2_server_enter_its_digest() -> None:
    versions = iter(["2", "3", "2"])
    current = ["2"]

    def respond(asked: Asked) -> Reply:
        return v2(asked, metadata={**METADATA, "versions": current})

    with serving(respond) as server:
        digests = []
        for current[0] in versions:
            digests.append(open_endpoint(f"{server.url}/v2/models/small").identity.digest)
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 8, 8, 3]}]}, "state layout=NHWC"),
        ({"inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 28, 28]}]}, "takes images of 1x28x28"),
        ({"inputs": [{"name": "image", "datatype": "BYTES", "shape": [-1]}]}, "takes BYTES"),
        ({"inputs": [{"name": "a"}, {"name": "b"}]}, "takes 2 inputs (a, b)"),
        ({"inputs": "none"}, "does not describe its inputs"),
    ],
)
def test_a_v2_model_that_does_not_fit_is_refused_before_it_is_asked(change: dict[str, object], says: str) -> None:
    with serving(lambda asked: v2(asked, metadata={**METADATA, **change})) as server:
        with pytest.raises(InputError) as error:
            open_endpoint(f"{server.url}/v2/models/small")
        assert says in str(error.value) and not server.posts
        with pytest.raises(EndpointError, match=r"nothing at this address \(404\)"):
            open_endpoint(f"{server.url}/v2/models/smalls")


def test_a_fixed_batch_of_a_v2_model_is_kept() -> None:
    metadata = {**METADATA, "inputs": [{"name": "image", "datatype": "FP32", "shape": [3, 3, 8, 8]}]}
    with serving(lambda asked: v2(asked, metadata=metadata)) as server:
        open_endpoint(f"{server.url}/v2/models/small").logits(images(4))
        assert {tuple(post.json["inputs"][0]["shape"]) for post in server.posts} == {(3, 3, 8, 8)}


def labelled(names: list[object]) -> Callable[[Asked], Reply]:
    def respond(asked: Asked) -> Reply:
        if asked.method == "GET":
            return scoring(asked)
        return Reply(content={"predictions": [names[row.index(max(row))] for row in scores_of(asked.json["inputs"])]})

    return respond


@pytest.mark.parametrize("names", [[0, 1, 2, 3, 4], ["ant", "bee", "cat", "dog", "eel"], [0.0, 1.0, 2.0, 3.0, 4.0]])
def test_labels_become_one_hot_rows_and_no_scores(names: list[object]) -> None:
    x = images(8)
    with serving(labelled(names)) as server:
        url, insects = f"{server.url}/invocations", ("ant", "bee", "cat", "dog", "eel")
        settled = resolve_outputs(open_endpoint(url, class_names=insects), x)
        found = settled.logits(x)
        with pytest.raises(ModelError, match="outputs=logits was stated"):
            resolve_outputs(open_endpoint(url, class_names=insects, spec="outputs=logits"), x)
    right = torch.tensor(scores_of(x[:4].tolist()) + scores_of(x[4:].tolist())).argmax(1)
    assert torch.equal(found, torch.nn.functional.one_hot(right, 5).float())
    assert (settled.identity.outputs, settled.classes) == ("labels only", 5)
    assert "labels only" in settled.lacks[Capability.SCORES]


def test_labels_without_names_or_with_other_names_are_refused() -> None:
    with serving(labelled([0, 1, 2, 3, 4])) as server, pytest.raises(ModelError, match="nothing says how many classes there are"):
        open_endpoint(f"{server.url}/invocations")
    says = r"answers with the class 'ant', but there are 2 classes \(yes, no\)"
    with serving(labelled(["ant"] * 5)) as server, pytest.raises(ModelError, match=says):
        open_endpoint(f"{server.url}/invocations", class_names=("yes", "no"))


def test_an_endpoint_needs_the_data_for_the_size_of_an_image() -> None:
    with pytest.raises(InputError, match="declares no image size"):
        load(ModelRef.parse("http://127.0.0.1:9/invocations"))


@pytest.mark.parametrize("shape", [(2, 3, 4, 1), (1, 1, 1, 1), (2, 1, 2, 2), (3, 4), (3, 1), (2, 4, 1), (1, 2, 3, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_images_are_written_out_as_json_would(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 300 - 50).to(dtype)
    assert nested(values) == json.dumps(values.tolist())


@pytest.mark.parametrize(
    ("said", "words"),
    [("3.17.2", " 3.17.2"), ("3.17.2\x1b[31m", ""), ("٣.١٧", ""), ("3" * 40, ""), ("3.1\n<script>", "")],
)
def test_a_version_is_one_or_nothing(said: str, words: str) -> None:
    def respond(asked: Asked) -> Reply:
        return Reply(content=said.encode()) if asked.path == "/version" else scoring(asked)

    with serving(respond) as server:
        assert open_endpoint(f"{server.url}/invocations").identity.runtime.startswith(f"MLflow scoring server{words}, 4 images")
