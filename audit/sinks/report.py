"""A result folder becomes `report.html` and `report.pdf`; neither the model, the data nor the network is needed."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from audit.errors import InputError, SinkError
from audit.records.examples import read_table
from audit.records.folder import read_folder
from audit.result import RESULT_FILE, TABLE_FILE, AuditResult
from audit.sinks import clauses, page, pdf
from audit.sinks import report_words as words
from audit.sinks.report_view import Report, view

HTML_FILE, PDF_FILE = "report.html", "report.pdf"


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
    templates = page.template_folder()
    report = view(result, read_table(folder), folder, clauses.read(clause_map or templates / "clauses.toml"))
    text = _page(report, templates)
    html, document = folder / HTML_FILE, folder / PDF_FILE
    page.write(text, html)
    problem = _pdf(text, document, folder, result) if pdf else None
    return RenderedReport(html=html, pdf=document if pdf and problem is None else None, pdf_problem=problem)


def _result(folder: Path) -> AuditResult:
    result = read_folder(folder)
    if not result.subjects:
        raise InputError(f"{folder} holds no audited model, so there is nothing to report")
    return result


def _page(report: Report, templates: Path) -> str:
    script = (templates / "gallery.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        page.environment(templates)
        .get_template("report.html.j2")
        .render(
            report=report,
            fonts=page.fonts(templates),
            page_css=page.style(templates, "page.css"),
            screen_css=page.style(templates, "screen.css"),
            print_css=page.style(templates, "print.css"),
            script=Markup(script),
            script_digest=digest,
            footer_css=page.css_string(f"{report.tool} · result {words.clipped(report.result_id, 40)} · {report.day}"),
        )
    )


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
