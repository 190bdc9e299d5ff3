"""One audited model as its readers see it: gate, compare and history need no more than this, and no model or data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from audit.evidence import Bools, Floats, Strings
from audit.result import AuditResult, ModelResult


@dataclass(frozen=True, kw_only=True)
class Column:
    """One per-example column of numbers: `values` (n,), which mean something only where `known` (n,)."""

    values: Floats
    known: Bools


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One model of one result, with its per-example columns.

    `ids` (n,) are the sampled examples in canonical order; both it and `columns` are empty where the per-example table is
    missing, and `no_table` then says why. Columns of words (states of a worst case) are 1 for "survived", 0 for "broken", and not
    known for "unknown". `source` says in words where the result was found, and `run_id` is the audit's parent run, where known.
    """

    result: AuditResult
    index: int
    source: str
    ids: Strings
    columns: Mapping[str, Column] = field(default_factory=dict)
    no_table: str | None = None
    run_id: str | None = None

    @property
    def model(self) -> ModelResult:
        """Everything measured on the model."""
        return self.result.models[self.index]

    @property
    def label(self) -> str:
        """Name and version."""
        return self.model.identity.label


@dataclass(frozen=True, kw_only=True)
class VersionRecord:
    """One version of a registered model: its newest complete audit, or in words why it has none.

    `verdict` is the registry's tag: the word of the last gate that judged this version, not of the audit alone.
    """

    name: str
    version: str
    audited: Audited | None = None
    why_none: str | None = None
    verdict: str | None = None
