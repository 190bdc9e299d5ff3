"""One connection to an endpoint: bounded, patient, and with one sentence for everything that can go wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic, sleep
from typing import cast
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from audit.errors import EndpointError, ModelError
from audit.models.endpoint_secrets import HEADERS, TOKEN, parts_of
from audit.models.limits import Meter
from audit.text import printable, redact

# Seconds: to connect, and for a whole answer, which is as long as MLflow's scoring server itself allows one to take.
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 10.0, 60.0
# Waits before a call is repeated, in seconds; without jitter, so that two runs behave alike.
WAITS = (0.5, 1.0, 2.0, 4.0)
# A server that asks for a longer rest is taken to be out of service.
LONGEST_WAIT = 120.0
# Far above the answer for a block of 1000 classes, far below what would fill the memory.
MOST_BYTES = 1 << 26
_MOST_REDIRECTS = 3
_PART = 1 << 16
# A shorter word of a header, such as a version, may be part of any class name.
_SHORTEST_SECRET = 8

_TRANSIENT = (429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 307, 308)
_SAYS = {
    401: f"wants credentials (401); set {TOKEN} to a bearer token, or {HEADERS} to a JSON object of headers",
    403: f"denies access (403); check {TOKEN} and {HEADERS}, or ask its owner",
    404: "has nothing at this address (404); check the path and the model's name",
    405: "takes no such request at this address (405); check the path",
}


class BatchTooLarge(EndpointError):
    """The server takes no request of this size (413)."""


class RequestRefused(ModelError):
    """The server refuses the content of a request (400, 422); `said` is its whole answer."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class Connection:
    """Calls to one host; every call is counted, repeated where that helps, and bounded in time and size."""

    def __init__(self, who: str, headers: Mapping[str, str], meter: Meter) -> None:
        """`who` names the endpoint in messages."""
        self.who = who
        self._secrets = parts_of(headers)
        self._meter = meter
        self._answered = False
        self._moved: dict[str, str] = {}
        self._session = requests.Session()
        self._session.headers.update(headers)
        # Without it, requests would look for credentials in ~/.netrc; secrets come from the environment only.
        self._session.auth = _as_it_is

    def get(self, url: str) -> bytes:
        """What lies at an address.

        Raises:
            EndpointError: nothing, or it cannot be had.
        """
        return self._call("GET", url, None, 0)

    def post(self, url: str, body: bytes, images: int) -> object:
        """The JSON that answers the JSON `body`, which holds `images` images.

        Raises:
            EndpointError: the server cannot be reached, refuses, or answers with something else; BatchTooLarge for 413.
            RequestRefused: the server refuses this content (400, 422), with its own first line.
            QueryBudgetSpent: the images may not be sent.
        """
        return self.parsed(self._call("POST", url, body, images))

    def parsed(self, content: bytes) -> object:
        """`content` as JSON, without the secrets that a server may repeat in its texts.

        Raises:
            EndpointError: it is something else.
        """
        try:
            found = json.loads(content)
            repeated = [secret for secret in self._secrets if len(secret) >= _SHORTEST_SECRET and secret.encode() in content]
            return _without(repeated, found) if repeated else found
        except (ValueError, RecursionError):
            raise EndpointError(f"{self.who}: answers with {_kind(content)}, not with JSON; check the address") from None

    def _call(self, method: str, url: str, body: bytes | None, images: int) -> bytes:
        for wait in (*WAITS, None):
            if images:
                self._meter.spend(images)
            try:
                status, rest, content = self._once(method, url, body)
            except requests.ConnectionError as error:
                # Before the first answer nobody may be there at all; after it, a server may be starting again.
                if wait is None or not (self._answered or _was_cut(error)):
                    raise EndpointError(
                        f"{self.who}: cannot be reached ({self._cause(error)}); is it running, and is its address right?"
                    ) from error
                sleep(wait)
                continue
            except requests.Timeout as error:
                raise EndpointError(
                    f"{self.who}: gave no answer within {ANSWER_TIMEOUT:g} seconds; look at the server, or audit fewer examples"
                ) from error
            except requests.RequestException as error:
                raise EndpointError(f"{self.who}: cannot be asked: {self._clean(str(error))}") from error
            self._answered = True
            if status not in _TRANSIENT or wait is None:
                return self._checked(status, content, images)
            pause = max(wait, rest)
            if pause > LONGEST_WAIT:
                raise EndpointError(
                    f"{self.who}: asks to wait {pause:.0f} seconds ({status}); try again later, or set --rate-limit"
                )
            sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, method: str, url: str, body: bytes | None) -> tuple[int, float, bytes]:
        """Status, seconds to wait and content of one call; redirects on the same host are followed."""
        url = self._moved.get(url, url)
        start = url
        deadline = monotonic() + ANSWER_TIMEOUT
        for _ in range(_MOST_REDIRECTS):
            with self._session.request(
                method,
                url,
                data=body,
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                timeout=(CONNECT_TIMEOUT, ANSWER_TIMEOUT),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = self._read(response, deadline)
                if response.status_code not in _REDIRECTS:
                    if url != start:
                        self._moved[start] = url
                    return response.status_code, _seconds(response.headers.get("Retry-After")), content
                target = urljoin(url, response.headers.get("Location", ""))
            if not _same_host(url, target):
                raise EndpointError(
                    f"{self.who}: sends the request on to another host ({self._clean(target)}), which would get the images and the "
                    "credentials; name that host itself if it is the right one"
                )
            url = target
        raise EndpointError(f"{self.who}: sends the request on without end; name the address where it answers")

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        parts, size = [], 0
        raw: urllib3.HTTPResponse = response.raw
        try:
            while part := raw.read1(_PART, decode_content=True):
                size += len(part)
                if size > MOST_BYTES:
                    raise EndpointError(f"{self.who}: answers with more than {MOST_BYTES >> 20} MiB; is this a scoring endpoint?")
                if monotonic() > deadline:
                    raise requests.Timeout
                parts.append(part)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise requests.Timeout from error
        except urllib3.exceptions.HTTPError as error:
            raise requests.ConnectionError(error) from error
        return b"".join(parts)

    def _checked(self, status: int, content: bytes, images: int) -> bytes:
        """The content of an answer with status 200."""
        if status == HTTPStatus.OK:
            return content
        if status in _SAYS:
            raise EndpointError(f"{self.who}: {_SAYS[status]}")
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise BatchTooLarge(f"{self.who}: takes no batch of {images} images (413); raise its limit for the size of a request")
        words = f"{self.who}: {'refuses the request' if status < 500 else 'fails'} ({status}): {self._reason(content)}"
        if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise RequestRefused(words, content.decode("utf-8", "replace"))
        raise EndpointError(words)

    def _reason(self, content: bytes) -> str:
        """The server's own first line, without what MLflow repeats of the images."""
        text = content.decode("utf-8", "replace")
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            said = cast("dict[str, object]", answer)
            text = next((value for key in ("message", "error", "detail") if isinstance(value := said.get(key), str)), text)
        elif text.lstrip().startswith("<"):
            return _kind(content)
        lines = [line for line in text.rpartition("Error: ")[2].splitlines() if line.strip()]
        return self._clean(lines[0] if lines else "without a word")

    def _cause(self, error: requests.ConnectionError) -> str:
        if isinstance(error, requests.exceptions.SSLError):
            return "its certificate cannot be verified"
        if isinstance(error, requests.exceptions.ConnectTimeout):
            return f"no connection within {CONNECT_TIMEOUT:g} seconds"
        text = str(error)
        if match := re.search(r"Name or service not known|[Nn]ame resolution|nodename nor servname|Connection refused", text):
            return match[0].lower() if match[0] == "Connection refused" else "its name is unknown"
        return "it closed the connection" if _was_cut(error) else self._clean(text)

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return printable(redact(text), 200)


def _without(secrets: Sequence[str], found: object) -> object:
    """JSON with the secrets cut out of its texts and names; numbers stay."""
    if isinstance(found, str):
        for secret in secrets:
            found = found.replace(secret, "…")
        return found
    if isinstance(found, list):
        return [_without(secrets, each) for each in found]
    if isinstance(found, dict):
        return {_without(secrets, name): _without(secrets, each) for name, each in found.items()}
    return found


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _was_cut(error: requests.ConnectionError) -> bool:
    """Whether a connection stood and was then closed."""
    return bool(error.args) and isinstance(error.args[0], urllib3.exceptions.ProtocolError)


def _seconds(text: str | None) -> float:
    """Retry-After in seconds from now: a number, or a date; 0 where there is neither."""
    if text is None:
        return 0.0
    try:
        return max(0.0, float(int(text)))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def _same_host(one: str, other: str) -> bool:
    """Whether a redirect stays on the host, and does not leave encryption."""
    first, second = urlsplit(one), urlsplit(other)
    if first.hostname != second.hostname or second.scheme not in ("http", "https"):
        return False
    return second.scheme == "https" if first.scheme != second.scheme else first.port == second.port


def _kind(content: bytes) -> str:
    start = content.lstrip()[:16].lower()
    if not start:
        return "nothing"
    return "an HTML page" if start.startswith((b"<!doctype", b"<html", b"<?xml")) else "something else"
