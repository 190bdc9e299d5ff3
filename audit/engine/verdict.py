"""An audit judged by its own policy, before it is written: the models were just loaded, so what they are now is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from audit import records
from audit.audited import Audited
from audit.engine.table import write_table
from audit.errors import InputError
from audit.evidence import EvidenceStore
from audit.gate import CurrentModel, judge
from audit.policy import REFERENCE, LoadedPolicy, load_policy
from audit.records.examples import read_table
from audit.result import AuditResult, Verdict


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """What a verdict needs beyond the audit: the policy, and the audits it compares with by their names in it."""

    policy: LoadedPolicy
    references: dict[str, Audited]


def grounds(path: Path | None, *, with_reference: bool, tracking_uri: str | None, registry_uri: str | None) -> Grounds:
    """Read the policy, and find the audits that it compares with before anything expensive is done.

    Args:
        path: the policy file; None takes the minimal policy.
        with_reference: whether this audit has a reference model; its measurements come later.
        tracking_uri: as in `records.audits`.
        registry_uri: as in `records.audits`.

    Raises:
        InputError: it is no policy; one of the models has no audit; or the reference is meant, and there is none.
    """
    loaded = load_policy(path)
    policy = loaded.policy
    if REFERENCE in policy.references and not with_reference:
        raise InputError(
            f'policy {policy.name!r} compares with the reference model (not_worse_than = "{REFERENCE}"); name one with --reference'
        )
    names = [name for name in policy.references if name != REFERENCE]
    found = {name: records.audit(name, tracking_uri=tracking_uri, registry_uri=registry_uri) for name in names}
    return Grounds(policy=loaded, references=found)


def judged(result: AuditResult, stores: Sequence[EvidenceStore], on: Grounds) -> AuditResult:
    """The result with the verdict of every audited model; `stores` hold the evidence of each model."""
    every = _audited(result, stores, with_columns=bool(on.policy.policy.references))
    own = next((one for one in every if one.model.is_reference), None)
    references: dict[str, Audited] = on.references if own is None else on.references | {REFERENCE: own}

    def verdict(one: Audited) -> Verdict:
        current = CurrentModel.of(one.model.identity)
        return judge(one, on.policy, references=references, now=datetime.now(UTC), current=current)

    models = (one.model if one.model.is_reference else replace(one.model, verdict=verdict(one)) for one in every)
    return replace(result, models=tuple(models))


def _audited(result: AuditResult, stores: Sequence[EvidenceStore], *, with_columns: bool) -> list[Audited]:
    """The models as readers will see them; columns come from the table that they will read, and only where rules compare."""
    no_ids = np.zeros(0, dtype=np.str_)
    bare = [Audited(result=result, index=index, source="this audit", ids=no_ids) for index in range(len(result.models))]
    if not with_columns:
        return bare
    with TemporaryDirectory(prefix="audit-table-") as place:
        write_table(stores, Path(place))
        table = read_table(Path(place))
    parts = [table.of(one.index) for one in bare]
    return [replace(one, ids=ids, columns=columns) for one, (ids, columns) in zip(bare, parts, strict=True)]
