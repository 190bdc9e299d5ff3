"""The model behind a gated audit: what it is now, the tags of its registered version, the alias that a pass may set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from audit.errors import AuditError, InputError
from audit.text import printable

if TYPE_CHECKING:
    from audit.audited import Audited
    from audit.gate import CurrentModel
    from audit.result import Verdict


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Where MLflow is; `asdict` gives the two arguments that every reader takes."""

    tracking_uri: str
    registry_uri: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model before the gate: as it was audited, as it is now, and the verdict."""

    audited: Audited
    current: CurrentModel
    verdict: Verdict

    @property
    def same_files(self) -> bool:
        """Whether the model is still the one that was audited."""
        return self.current.digest == self.audited.model.identity.digest


def current_model(audited: Audited, text: str | None, stores: Stores) -> CurrentModel:
    """What the gated model is now: `text` if the user named it, else what the audit was given, an alias where it was one.

    Raises:
        InputError: `text` leads to no model. What the audit was given may be gone: that is for the judge.
    """
    from audit import models
    from audit.gate import CurrentModel
    from audit.models.ref import ModelRef

    if text is not None:
        return CurrentModel.of(models.resolve(ModelRef.parse(text), **asdict(stores)))
    reference = audited.model.identity.reference
    try:
        return CurrentModel.of(models.resolve(ModelRef.parse(reference), **asdict(stores)))
    except InputError as error:
        return CurrentModel(reference=reference, because=f"{error}; --model says which model to gate")


def tag(case: Case, now: datetime, stores: Stores) -> str:
    """Tag the judged version; returns what was done, empty where nothing is registered.

    A version that is neither the audited one nor has its files is left alone: it was not judged.

    Raises:
        SinkError: the registry did not take the tags.
    """
    from audit.sinks.mlflow_verdict import gate_tags, tag_judged

    current, identity = case.current, case.audited.model.identity
    if current.name is None or current.version is None:
        return ""
    shown = printable(current.uri or "")
    if not case.same_files and (current.name, current.version) != (identity.name, identity.version):
        return f"{shown} was not tagged: it is not what was audited"
    tag_judged(current.name, current.version, gate_tags(case.verdict, case.audited.result.id, now), **asdict(stores))
    return f"{shown} is tagged audit.verdict = {case.verdict.status}"


def promote(case: Case, alias: str, stores: Stores) -> str | None:
    """Let the alias lead to the version that passed, by its number; returns why not, if its files are no longer the audited ones.

    Raises:
        SinkError: the registry did not take the alias.
    """
    from audit import models
    from audit.models.ref import ModelRef
    from audit.sinks.mlflow_verdict import set_alias

    current = case.current
    shown = printable(current.uri or "")
    if case.verdict.status != "pass" or current.uri is None or current.name is None or current.version is None:
        return f"{shown} was not promoted: it has not passed"
    try:
        # Looked at again right before: the verdict is about these files and no others.
        again = models.resolve(ModelRef.parse(current.uri), **asdict(stores))
    except AuditError as error:
        return f"{shown} was not promoted: {error}"
    if again.digest != case.audited.model.identity.digest:
        return f"{shown} was not promoted: its files were replaced while it was judged"
    set_alias(current.name, current.version, alias, **asdict(stores))
    return None
