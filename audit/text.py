"""Strings from outside: made safe before they reach a result, a terminal or a log."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

# The bound on the scheme keeps the search linear in the length of the text.
_USER_INFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,30}://)[^/\s@]+@", re.IGNORECASE)
_SECRET_PARAMETER = re.compile(
    r"(?P<name>(?:token|password|passwd|secret|api[_-]?key|access[_-]?key|signature|sig|authorization|credential)[^=\s&;:]*)"
    r"(?P<between>\s*[=:]\s*)(?:bearer\s+|basic\s+)?[^\s&;,'\"]+",
    re.IGNORECASE,
)
# Bidirectional overrides can make a printed name read as another one.
_BIDIRECTIONAL = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
# `##vso[...]`, `##[...]`, `##teamcity[...]`: commands of CI systems, wherever they stand in a line.
_CI_COMMAND = re.compile(r"##(?=\w*\[)")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def redact(text: str) -> str:
    """Remove URL user information and values of secret-looking parameters.

    >>> redact("https://ann:pw@host/x?token=abc&v=1")
    'https://…@host/x?token=…&v=1'
    """
    return _SECRET_PARAMETER.sub(r"\g<name>\g<between>…", _USER_INFO.sub(r"\g<scheme>…@", text))


def printable(text: str, limit: int = 300) -> str:
    r"""One line fit for a terminal or a CI log: no control characters, ANSI escapes or direction overrides.

    A leading `::` and `##[` are broken up, since CI systems read them as commands. Longer text is cut at `limit` characters.

    >>> printable("::set-output\x1b[31m red\nnext"), printable("a ##vso[task.complete]")
    (': :set-output red next', 'a # #vso[task.complete]')
    """
    text = _ANSI.sub("", text).translate(_BIDIRECTIONAL)
    text = "".join(" " if unicodedata.category(c) in {"Cc", "Zl", "Zp"} else c for c in text)
    text = " ".join(text.split())
    text = _CI_COMMAND.sub("# #", text)
    if text.startswith("::"):
        text = ": :" + text[2:]
    return text if len(text) <= limit else text[: limit - 1] + "…"


def nearest(name: str, valid: Iterable[str]) -> str:
    """The end of an error about a name: the valid one that is near, or all of them.

    >>> nearest("Clen", ["clean", "stability"]), nearest("x", ["a", "b"])
    ('; did you mean clean?', '; known: a, b')
    """
    names = list(valid)
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=1)
    meant = next((each for each in names if near and each.lower() == near[0]), None)
    return f"; did you mean {meant}?" if meant else f"; known: {', '.join(names)}"
