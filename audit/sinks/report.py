"""A result folder becomes `report.html` and `report.pdf`; neither the model, the data nor the network is needed."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from audit.errors import InputError, SinkError
from audit.records.folder import read_folder
from audit.result import RESULT_FILE, TABLE_FILE, AuditResult
from audit.sinks import clauses, example_table, pdf, report_panels
from audit.sinks import report_words as words
from audit.sinks.report_view import Report, view

HTML_FILE, PDF_FILE = "report.html", "report.pdf"
_FACES = (
    ("IBM Plex Sans", 400, "IBMPlexSans-Regular"),
    ("IBM Plex Sans", 600, "IBMPlexSans-SemiBold"),
    ("IBM Plex Mono", 400, "IBMPlexMono-Regular"),
)
_EXPONENT = re.compile(r"(\d)e(\u2212?)(\d+)")


@dataclass(frozen=True, kw_only=True)
class RenderedReport:
    """Where the report is; `pdf_problem` says in one sentence why there is no PDF, where one was asked for."""

    html: Path
    pdf: Path | None
    pdf_problem: str | None


def render(folder: Path, *, pdf: bool = True, clause_map: Path | None = None) -> RenderedReport:
    """Write the report of the result in `folder` beside it; the same result gives the same HTML, byte for byte.

    Args:
        folder: holds result.json and, where they were kept, examples.parquet and failures/*.png.
        pdf: whether to make the PDF too; if that fails, the HTML is made all the same.
        clause_map: a TOML file in place of the built-in clause map.

    Raises:
        InputError: the folder holds no result that can be read, or the clause map is not one.
        SinkError: the report cannot be written there.
    """
    result = _result(folder)
    templates = template_folder()
    table = example_table.read(folder, report_panels.COLUMNS)
    report = view(result, table, folder, clauses.read(clause_map or templates / "clauses.toml"))
    text = _page(report, templates)
    html, document = folder / HTML_FILE, folder / PDF_FILE
    partial = html.with_suffix(".html.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(html)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SinkError(
            f"the report cannot be written to {html} ({error.strerror}); free some space or name another folder"
        ) from error
    problem = _pdf(text, document, folder, result) if pdf else None
    return RenderedReport(html=html, pdf=document if pdf and problem is None else None, pdf_problem=problem)


def template_folder() -> Path:
    """Where the templates are: inside the installed package, or at the top of a source checkout."""
    packaged = Path(str(importlib.resources.files("audit"))) / "templates"
    for place in (packaged, packaged.parent.parent / "templates"):
        if (place / "report.html.j2").is_file():
            return place
    raise SinkError("the report's templates are missing from this installation; reinstall the package mlflow-audit")


def _result(folder: Path) -> AuditResult:
    result = read_folder(folder)
    if not result.subjects:
        raise InputError(f"{folder} holds no audited model, so there is nothing to report")
    return result


def _page(report: Report, templates: Path) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["exponent"] = _exponent
    environment.filters["code"] = _code
    environment.filters["probability"] = lambda value: words.fixed(value, 2)
    environment.filters["percent"] = words.percent
    environment.filters["readable"] = words.readable
    script = (templates / "gallery.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html.j2").render(
        report=report,
        fonts=Markup(_fonts(templates)),
        page_css=Markup(_style(templates, "page.css")),
        screen_css=Markup(_style(templates, "screen.css")),
        print_css=Markup(_style(templates, "print.css")),
        script=Markup(script),
        script_digest=digest,
        footer_css=Markup(_css_string(f"{report.tool} · result {words.clipped(report.result_id, 40)} · {report.day}")),
    )


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


def _style(templates: Path, name: str) -> str:
    return (templates / name).read_text(encoding="utf-8")


def _css_string(text: str) -> str:
    """A CSS string literal that no text can leave, inside a style element: all but letters, digits and blanks as code points."""
    return '"' + "".join(c if c.isascii() and (c.isalnum() or c in " .-") else f"\\{ord(c):06x} " for c in words.clean(text)) + '"'


def _fonts(templates: Path) -> str:
    rules = []
    for family, weight, file in _FACES:
        data = base64.b64encode((templates / "fonts" / f"{file}.woff2").read_bytes()).decode("ascii")
        source = f"url(data:font/woff2;base64,{data}) format('woff2')"
        rules.append(f'@font-face{{font-family:"{family}";font-weight:{weight};font-style:normal;font-display:swap;src:{source}}}')
    return "\n".join(rules)


def _pdf(text: str, document: Path, folder: Path, result: AuditResult) -> str | None:
    attachments = [
        pdf.AttachedFile(path=folder / RESULT_FILE, mime_type="application/json", description="Every number of this report"),
        pdf.AttachedFile(
            path=folder / TABLE_FILE, mime_type="application/vnd.apache.parquet", description="One row per model and image"
        ),
    ]
    try:
        created = datetime.fromisoformat(result.created)
    except ValueError:
        created = datetime(2000, 1, 1, tzinfo=UTC)
    try:
        present = [file for file in attachments if file.path.is_file()]
        pdf.write(text, document, attachments=present, created=created, identifier=result.id)
    except SinkError as error:
        # A PDF of an earlier result beside this HTML would be worse than none.
        document.unlink(missing_ok=True)
        return str(error)
    return None
