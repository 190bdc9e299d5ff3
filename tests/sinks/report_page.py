"""Reads a rendered report for the tests: checks nesting, and keeps tags, headings and words."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

from sample_result import write_folder

from audit import result as r
from audit.sinks import report

VOID = {"meta", "br", "img", "link", "hr", "input", "col", "use"}


class Page(html.parser.HTMLParser):
    """Checks nesting while it reads, and keeps what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.headings: list[int] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        # A list item or table cell may be closed implicitly in HTML; this report closes everything.
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self.open[-3:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"style", "script", "title"} & set(self.open[-1:]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())


def page(folder: Path, result: r.AuditResult, **options: object) -> tuple[str, Page]:
    write_folder(folder, result, **options)  # type: ignore[arg-type]
    text = report.render(folder, pdf=False).html.read_text(encoding="utf-8")
    return text, Page(text)
