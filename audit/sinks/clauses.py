"""The clause map: which part of a report is evidence for which clause. Data in TOML, so a user can replace or extend it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from audit import toml_file
from audit.text import nearest, printable

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


def _section(name: str) -> str:
    if name not in SECTIONS:
        raise ValueError(f"there is no section {printable(name, 80)!r}{nearest(name, SECTIONS)}")
    return name


Text = Annotated[str, Field(min_length=1)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")

    source: Text
    asks: Text
    evidence: Text
    sections: tuple[Annotated[str, AfterValidator(_section)], ...] = ()


class _Map(BaseModel):
    model_config = ConfigDict(extra="forbid")

    clause: Annotated[tuple[_Row, ...], Field(min_length=1)]


def read(path: Path) -> tuple[Clause, ...]:
    """Read `[[clause]]` tables with `source`, `asks`, `evidence` and `sections`.

    Raises:
        InputError: the file cannot be read, is not TOML, or a clause lacks a field or names an unknown section.
    """
    found = toml_file.validate(toml_file.read(path, "clause map"), _Map)
    return tuple(Clause(source=row.source, asks=row.asks, evidence=row.evidence, sections=row.sections) for row in found.clause)
