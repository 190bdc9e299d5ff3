"""Credentials for endpoints: from the environment only, to one host only, and never repeated."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from audit.errors import InputError
from audit.text import printable

TOKEN, HEADERS = "AUDIT_ENDPOINT_TOKEN", "AUDIT_ENDPOINT_HEADERS"
_SCHEMES = ("bearer", "basic", "token")


def headers_from_environment() -> dict[str, str]:
    """The headers that carry secrets: a bearer token, and whatever else the user set.

    Raises:
        InputError: a variable does not hold what it should; its content is never repeated.
    """
    found: dict[str, str] = {}
    if text := os.environ.get(HEADERS):
        try:
            content = json.loads(text)
        except ValueError:
            content = None
        if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
            raise InputError(f'{HEADERS} is not a JSON object of texts; write for example {{"X-Api-Key": "..."}}')
        found.update(content)
    if token := os.environ.get(TOKEN):
        found["Authorization"] = f"Bearer {token.strip()}"
    for name, value in found.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(
            r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", value
        ):
            raise InputError(f"{TOKEN} or {HEADERS} holds letters that no HTTP header may hold; set it again, on one line")
    return found


def check_hosts(urls: Iterable[str]) -> None:
    """Make sure that secrets, if there are any, go to one host only.

    Raises:
        InputError: the endpoints are on several hosts, all of which would get them; or as `headers_from_environment`.
    """
    hosts = {urlsplit(url).hostname or "" for url in urls}
    if len(hosts) > 1 and headers_from_environment():
        raise InputError(
            f"{TOKEN} and {HEADERS} would go to every one of {', '.join(map(printable, sorted(hosts)))}; "
            "audit endpoints of different hosts apart, or unset them"
        )


def parts_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What must not be repeated of what the server says: the words of the headers, but for the names of schemes."""
    return tuple(part for value in headers.values() for part in value.split() if part.lower() not in _SCHEMES)
