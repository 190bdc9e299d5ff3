"""The HTML report as a tagged PDF with attachments, by WeasyPrint.

No PDF/A or PDF/UA claim is written: no validator has agreed to one. What those variants would add besides the claim, the
relationship of each attachment and the title in the window, is set here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from audit.errors import SinkError

INSTALL = (
    "install Pango: on Debian or Ubuntu `apt-get install --no-install-recommends libpango-1.0-0 libpangoft2-1.0-0 "
    "libharfbuzz-subset0 fonts-dejavu-core`, on macOS `brew install pango`"
)


@dataclass(frozen=True, kw_only=True)
class AttachedFile:
    """A file to embed; `relationship` as in ISO 32000-2, 7.11.3 (`Data`, `Source`, ...)."""

    path: Path
    mime_type: str
    description: str
    relationship: str = "Data"


def write(html: str, target: Path, *, attachments: Sequence[AttachedFile], created: datetime, identifier: str) -> None:
    """Write `html` as PDF to `target`, whole or not at all; the same input gives the same bytes.

    Args:
        html: the report; nothing but data: URIs is fetched for it.
        target: the file to write.
        attachments: files to embed.
        created: the date of the attachments, and so of no clock.
        identifier: what the document is known by, hashed into the PDF's identifier.

    Raises:
        SinkError: WeasyPrint or its system libraries are missing, or it could not lay out the page; says what to do.
    """
    try:
        import weasyprint
        from weasyprint.urls import FatalURLFetchingError, URLFetcher
    except ImportError as error:
        raise SinkError(
            f"the PDF was not made, because WeasyPrint is not installed ({error.name}); run pip install weasyprint"
        ) from error
    except OSError as error:
        raise SinkError(f"the PDF was not made, because a system library of WeasyPrint is missing; {INSTALL}") from error

    fetcher = URLFetcher(allowed_protocols={"data"}, fail_on_errors=True)
    embedded = [
        weasyprint.Attachment(
            string=file.path.read_bytes(), name=file.path.name, description=file.description, created=created, modified=created,
            relationship=file.relationship, url_fetcher=fetcher,
        )
        for file in attachments
    ]  # fmt: skip

    def finish(_: Any, pdf: Any) -> None:
        _describe(pdf, attachments)

    partial = target.with_name(target.name + ".partial")
    try:
        document = weasyprint.HTML(string=html, url_fetcher=fetcher)
        document.write_pdf(
            partial,
            finisher=finish,
            pdf_tags=True,
            pdf_identifier=hashlib.sha256(identifier.encode()).digest()[:16],
            attachments=embedded,
        )
        partial.replace(target)
    except (Exception, FatalURLFetchingError) as error:
        # WeasyPrint derives a refused fetch from BaseException.
        raise SinkError(
            f"the PDF was not made, because WeasyPrint failed ({type(error).__name__}: {error}); the HTML is complete"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _describe(pdf: Any, attachments: Sequence[AttachedFile]) -> None:
    """Give each embedded file its MIME type and relationship, and show the title instead of the file name."""
    import pydyf

    by_name = {file.path.name: file for file in attachments}
    references = []
    item: Any
    for item in pdf.objects:
        if not isinstance(item, dict) or item.get("Type") != "/Filespec":
            continue
        name = getattr(item["F"], "string", "")
        name = name.decode() if isinstance(name, bytes) else str(name)
        if name in by_name:
            item["AFRelationship"] = f"/{by_name[name].relationship}"
            stream = pdf.objects[int(item["EF"]["F"].split()[0])]
            stream.extra["Subtype"] = "/" + by_name[name].mime_type.replace("/", "#2f")
            references.append(item.reference)  # type: ignore[attr-defined]
    if references:
        pdf.catalog["AF"] = pydyf.Array(references)
    pdf.catalog["ViewerPreferences"] = pydyf.Dictionary({"DisplayDocTitle": "true"})
