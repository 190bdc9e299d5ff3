"""Strings from outside: made safe before they reach a result, a terminal or a log."""

from __future__ import annotations

import re
import unicodedata

# The bound on the scheme keeps the search linear in the length of the text.
_USER_INFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,30}://)[^/\s@]+@", re.IGNORECASE)
_SECRET_PARAMETER = re.compile(
    r"(?P<name>(?:token|password|passwd|secret|api[_-]?key|access[_-]?key|signature|sig|authorization|credential)[^=\s&;:]*)"
    r"(?P<between>\s*[=:]\s*)(?:bearer\s+|basic\s+)?[^\s&;,'\"]+",
    re.IGNORECASE,
)
# Bidirectional overrides can make a printed name read as another one.
_BIDIRECTIONAL = dict.fromkeys([0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def redact(text: str) -> str:
    """Remove URL user information and values of secret-looking parameters.

    >>> redact("https://ann:pw@host/x?token=abc&v=1")
    'https://…@host/x?token=…&v=1'
    """
    return _SECRET_PARAMETER.sub(r"\g<name>\g<between>…", _USER_INFO.sub(r"\g<scheme>…@", text))


def printable(text: str, limit: int = 300) -> str:
    r"""One line fit for a terminal or a CI log: no control characters, ANSI escapes or direction overrides.

    A leading `::` is broken up, since CI systems read it as a command. Longer text is cut at `limit` characters.

    >>> printable("::set-output\x1b[31m red\nnext")
    ': :set-output red next'
    """
    text = _ANSI.sub("", text).translate(_BIDIRECTIONAL)
    text = "".join(" " if unicodedata.category(c) in {"Cc", "Zl", "Zp"} else c for c in text)
    text = " ".join(text.split())
    if text.startswith("::"):
        text = ": :" + text[2:]
    return text if len(text) <= limit else text[: limit - 1] + "…"
