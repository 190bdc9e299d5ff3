"""What every HTML page shares: its template environment, fonts, styles, and a file that is either whole or absent."""

from __future__ import annotations

import base64
import importlib.resources
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from audit.errors import SinkError
from audit.sinks import report_words as words
from audit.text import printable

_FACES = (
    ("IBM Plex Sans", 400, "IBMPlexSans-Regular"),
    ("IBM Plex Sans", 600, "IBMPlexSans-SemiBold"),
    ("IBM Plex Mono", 400, "IBMPlexMono-Regular"),
)
_EXPONENT = re.compile(r"(\d)e(\u2212?)(\d+)")


def template_folder() -> Path:
    """Where the templates are: inside the installed package, or at the top of a source checkout."""
    packaged = Path(str(importlib.resources.files("audit"))) / "templates"
    for place in (packaged, packaged.parent.parent / "templates"):
        if (place / "report.html.j2").is_file():
            return place
    raise SinkError("the report's templates are missing from this installation; reinstall the package mlflow-audit")


def environment(templates: Path) -> jinja2.Environment:
    """The Jinja environment of `templates`: all text is escaped and printable, a missing name is an error."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["exponent"] = _exponent
    found.filters["code"] = _code
    found.filters["probability"] = lambda value: words.fixed(value, 2)
    found.filters["percent"] = words.percent
    found.filters["readable"] = words.readable
    return found


def document(template: str, **context: Any) -> str:
    """A page that extends `partials/document.html.j2`; `context` holds its `title`, and whatever else the template reads."""
    templates = template_folder()
    return (
        environment(templates)
        .get_template(template)
        .render(
            tool=f"mlflow-audit {version('mlflow-audit')}",
            fonts=fonts(templates),
            page_css=style(templates, "page.css"),
            screen_css=style(templates, "screen.css"),
            print_css=style(templates, "print.css"),
            **context,
        )
    )


def style(templates: Path, name: str) -> Markup:
    """The text of one style sheet."""
    return Markup((templates / name).read_text(encoding="utf-8"))


def fonts(templates: Path) -> Markup:
    """The font faces as CSS rules with the fonts inside."""
    rules = []
    for family, weight, file in _FACES:
        data = base64.b64encode((templates / "fonts" / f"{file}.woff2").read_bytes()).decode("ascii")
        source = f"url(data:font/woff2;base64,{data}) format('woff2')"
        rules.append(f'@font-face{{font-family:"{family}";font-weight:{weight};font-style:normal;font-display:swap;src:{source}}}')
    return Markup("\n".join(rules))


def css_string(text: str) -> Markup:
    """A CSS string literal that no text can leave, inside a style element: all but letters, digits and blanks as code points."""
    coded = (c if c.isascii() and (c.isalnum() or c in " .-") else f"\\{ord(c):06x} " for c in words.clean(text))
    return Markup('"' + "".join(coded) + '"')


def write(text: str, path: Path) -> None:
    """Write a page so that it is either whole or absent.

    Raises:
        SinkError: it cannot be written there.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SinkError(
            f"the page cannot be written to {printable(str(path))} ({error.strerror}); free some space or name another folder"
        ) from error


def _printable(value: Any) -> Any:
    """Every plain string that reaches the page is free of control characters, escapes and direction overrides; edge blanks stay."""
    if not isinstance(value, str) or isinstance(value, Markup) or not value.strip():
        return value
    return " " * value.startswith(" ") + words.clean(value) + " " * value.endswith(" ")


def _exponent(text: str) -> Markup:
    """2.1e−7 as 2.1 × 10 to the power of −7."""
    return Markup(_EXPONENT.sub(r"\1 × 10<sup>\2\3</sup>", str(escape(words.clean(text)))))


def _code(text: str) -> Markup:
    """Words between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words.clean(text)))))
