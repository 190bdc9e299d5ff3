"""The clause map: which part of a report is evidence for which clause. Data in TOML, so a user can replace or extend it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from audit.errors import InputError

# Sections a clause may point to: the ids of the report's headings.
SECTIONS = {
    "summary": "Summary",
    "record": "1",
    "policy": "2",
    "use": "3",
    "data": "4",
    "results": "5",
    "compare": "6",
    "examples": "7",
    "checks": "8",
    "certification": "9",
    "clauses": "10",
    "reproducibility": "11",
    "definitions": "12",
}


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One line of the map; `sections` are ids of SECTIONS."""

    source: str
    asks: str
    evidence: str
    sections: tuple[str, ...]


def read(path: Path) -> tuple[Clause, ...]:
    """Read `[[clause]]` tables with `source`, `asks`, `evidence` and `sections`.

    Raises:
        InputError: the file is missing, not TOML, or a clause lacks a field or names an unknown section.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the clause map {path} cannot be read ({error}); give a TOML file with [[clause]] tables") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the clause map {path} is not TOML: {error}") from error
    rows = document.get("clause")
    if not isinstance(rows, list) or not rows:
        raise InputError(f"the clause map {path} has no [[clause]] table")
    return tuple(_clause(path, index, row) for index, row in enumerate(rows, start=1))


def _clause(path: Path, index: int, row: object) -> Clause:
    texts = [row.get(name) for name in ("source", "asks", "evidence")] if isinstance(row, dict) else [None]
    sections = row.get("sections", []) if isinstance(row, dict) else []
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(sections, list):
        raise InputError(f"clause {index} of {path} needs the texts source, asks and evidence, and a list of sections")
    for section in sections:
        if section not in SECTIONS:
            raise InputError(f"clause {index} of {path} names the section {section!r}; sections are {', '.join(SECTIONS)}")
    source, asks, evidence = (str(text) for text in texts)
    return Clause(source=source, asks=asks, evidence=evidence, sections=tuple(str(section) for section in sections))
