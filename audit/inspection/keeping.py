"""What was found, written where `audit run` looks for it: a sidecar beside an ONNX file, or tags of a registered model."""

from __future__ import annotations

from pathlib import Path

from audit.errors import InputError
from audit.inspection import Inspection
from audit.inspection.judgement import Standing
from audit.inspection.words import verdict
from audit.models import mlflow_registry
from audit.models.input_spec import TAG_PREFIX, InputSpec, sidecar_path
from audit.models.ref import ModelRef, RefKind
from audit.models.spec_text import to_tags, to_toml
from audit.text import printable

_OWN_PLACES = ("the ONNX graph", "the model")


def best_spec(found: Inspection) -> InputSpec | None:
    """The specification that is worth keeping; None without a trial, or where everything was at chance."""
    judged = None if found.trial is None else found.trial.judgement
    return None if judged is None or judged.standing is Standing.CHANCE else judged.best.candidate.spec


def has_rivals(found: Inspection) -> bool:
    """Whether the best specification could not be told from others."""
    judged = None if found.trial is None else found.trial.judgement
    return judged is not None and judged.standing is Standing.AMBIGUOUS


def check_free(ref: ModelRef) -> None:
    """Make sure that a sidecar would replace nothing; the tags of a registered model are known once it was read.

    Raises:
        InputError: there is one.
    """
    if ref.kind is RefKind.ONNX_FILE and sidecar_path(ref.file).exists():
        raise _there_already(sidecar_path(ref.file))


def tags_of(found: Inspection, spec: InputSpec) -> dict[str, str]:
    """The tags that state the specification of a registered model."""
    return to_tags(spec, _stated(found))


def keep(
    found: Inspection, spec: InputSpec, ref: ModelRef, *, force: bool, tracking_uri: str | None, registry_uri: str | None
) -> str:
    """Write the specification down and say where.

    Raises:
        InputError: something is written there already and `force` is false, or it cannot be written.
    """
    if ref.is_registry:
        there = sorted(key for key in found.identity.tags if key.startswith(TAG_PREFIX))
        if there and not force:
            raise InputError(
                f"{found.identity.label} has the tags {printable(', '.join(there))} already; pass --force to replace them"
            )
        tags = tags_of(found, spec)
        mlflow_registry.write_tags(
            ref, tags, found.identity, prefix=TAG_PREFIX, tracking_uri=tracking_uri, registry_uri=registry_uri
        )
        return f"Set {len(tags)} tags {TAG_PREFIX}* on {found.identity.label}; audit run reads them."
    path = sidecar_path(ref.file)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(to_toml(spec, _stated(found), _comments(found)))
    except FileExistsError:
        raise _there_already(path) from None
    except OSError as error:
        raise InputError(f"{printable(str(path))} cannot be written ({error.strerror})") from None
    return f"Wrote {printable(str(path))}; audit run reads it."


def _there_already(path: Path) -> InputError:
    return InputError(f"{printable(str(path))} is there already; pass --force to replace it")


def _stated(found: Inspection) -> tuple[str, ...]:
    return tuple(key for key, place in found.places.items() if place not in _OWN_PLACES)


def _comments(found: Inspection) -> tuple[str, ...]:
    trial = found.trial
    if trial is None or trial.judgement is None:
        return ()
    return (f"Written by audit inspect from {trial.samples} images: {printable(trial.source)}.", *verdict(trial.judgement))
