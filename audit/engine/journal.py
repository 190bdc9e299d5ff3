"""The journal: every partial on disk under its fingerprint, so that nothing measured is measured twice.

One property gives resume (the same folder again), re-use (`--reuse` another folder's journal) and what a plan can promise. An entry
is a checksum and an .npz archive without pickles; it is written aside and moved into place, so it is whole or absent, and one whose
checksum does not fit is measured again.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from audit.errors import InputError
from audit.evidence import (
    AccuracyEpsilon,
    AdversarialNeurons,
    AnyEvidence,
    BoundaryDistance,
    BoundarySteps,
    Certification,
    Corruptions,
    FisherEstimate,
    FisherSpectrum,
    GradientHealth,
    GradientProbe,
    LipschitzBound,
    MinimalPerturbations,
    NeuronProfile,
    Neurons,
    NoiseResponse,
    Predictions,
    Probe,
    ProbeSample,
    ReferenceAttack,
    Sequences,
    ShownDirection,
    ShownFailure,
    Temperature,
    UniversalEffect,
    UniversalPerturbation,
    WorstCase,
)
from audit.text import printable
from audit.vocabulary import Threat

log = logging.getLogger(__name__)

JOURNAL_FOLDER = "journal"
_SUFFIX = ".evidence"
_PARTIAL = ".partial"
_DECISION = ".decision"
_UNFINISHED = "unfinished"
_KINDS = {
    kind.__name__: kind
    for kind in (
        *(Predictions, Temperature, ProbeSample, Probe, GradientProbe, GradientHealth, ReferenceAttack, WorstCase),
        *(AccuracyEpsilon, FisherSpectrum, FisherEstimate, LipschitzBound, NeuronProfile, Neurons, AdversarialNeurons),
        *(BoundaryDistance, BoundarySteps, NoiseResponse, Certification, Corruptions, Sequences),
        *(MinimalPerturbations, UniversalPerturbation, UniversalEffect),
    )
}
# What evidence keeps as examples to show, in a field `shown`.
_SHOWN: dict[type, type[ShownFailure] | type[ShownDirection]] = {WorstCase: ShownFailure, FisherSpectrum: ShownDirection}


class Journal:
    """Partials by fingerprint: kept in one folder, looked up there and in the folders given for re-use."""

    def __init__(self, folder: Path, reuse: Sequence[Path] = ()) -> None:
        self._folder = folder
        self._places = (folder, *reuse)

    def find(self, fingerprint: str) -> AnyEvidence | None:
        """The partial with this fingerprint; None when there is none, or when what is there is damaged."""
        for place in self._places:
            path = place / f"{fingerprint}{_SUFFIX}"
            try:
                return decode(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("journal entry %s is damaged and is measured again: %s", path.name, printable(str(error)))
        return None

    def holds(self, fingerprint: str) -> bool:
        """Whether a whole partial with this fingerprint is there."""
        return self.find(fingerprint) is not None

    def keep(self, fingerprint: str, evidence: AnyEvidence) -> None:
        """Write a partial so that it is whole or absent, also when the machine stops in between.

        A disk that takes no more costs the journal, not the audit: the partial is then only in memory.
        """
        self._put(f"{fingerprint}{_SUFFIX}", encode(evidence), "measure")

    def _put(self, name: str, content: bytes, verb: str) -> None:
        path = self._folder / name
        aside = path.with_suffix(_PARTIAL)
        try:
            with aside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            log.warning("the journal takes no more (%s); an interrupted audit would %s this again", error.strerror, verb)

    def clear(self) -> None:
        """Forget everything kept in the audit's own folder."""
        for path in (*self._folder.glob(f"*{_SUFFIX}"), *self._folder.glob(f"*{_DECISION}")):
            path.unlink(missing_ok=True)

    def remember(self, name: str, value: str) -> None:
        """Keep a decision of this audit, so that it is the same when the audit goes on."""
        self._put(f"{name}{_DECISION}", value.encode(), "decide")

    def recall(self, name: str) -> str | None:
        """A decision kept before the audit was stopped, or None."""
        path = self._folder / f"{name}{_DECISION}"
        return path.read_text(encoding="utf-8") if path.exists() else None

    def decided(self, name: str, value: str) -> str:
        """What an earlier part of this audit decided, or `value` from now on."""
        earlier = self.recall(name)
        if earlier is None:
            self.remember(name, value)
        return value if earlier is None else earlier

    def forget(self, name: str) -> None:
        """Let a decision be made anew when the audit goes on."""
        (self._folder / f"{name}{_DECISION}").unlink(missing_ok=True)

    def begin(self) -> None:
        """Mark the audit as unfinished."""
        (self._folder / _UNFINISHED).touch()

    def finish(self) -> None:
        """Mark the audit as finished: the folder may be used for another one."""
        (self._folder / _UNFINISHED).unlink(missing_ok=True)


def is_unfinished(out: Path) -> bool:
    """Whether a result folder holds an audit that was killed or interrupted."""
    return (out / JOURNAL_FOLDER / _UNFINISHED).exists()


@contextmanager
def open_journal(out: Path, reuse: Sequence[Path] = ()) -> Iterator[Journal]:
    """The journal of a result folder, locked: a second audit in the same folder would mix two audits.

    Raises:
        InputError: another audit is at work in the folder, or a folder given for re-use has no journal.
    """
    folder = out / JOURNAL_FOLDER
    folder.mkdir(exist_ok=True)
    others = []
    for place in reuse:
        other = place / JOURNAL_FOLDER
        if not other.is_dir():
            raise InputError(f"{printable(str(place))} has no journal to re-use; give the result folder of an earlier audit")
        others.append(other)
    lock = FileLock(folder / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(f"another audit is at work in {printable(str(out))}; wait for it, or give another --out") from error
    try:
        for left_over in folder.glob(f"*{_PARTIAL}"):
            left_over.unlink(missing_ok=True)
        yield Journal(folder, others)
    finally:
        lock.release()


def encode(evidence: AnyEvidence) -> bytes:
    """A checksum line and an .npz archive of the evidence's columns and plain values."""
    arrays: dict[str, Any] = {}
    plain: dict[str, object] = {}
    for field in fields(evidence):
        value = getattr(evidence, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif isinstance(value, Threat):
            plain[field.name] = str(value)
        elif field.name == "shown":
            plain[field.name] = len(value)
            for index, example in enumerate(value):
                for part in fields(example):
                    arrays[f"shown-{index}-{part.name}"] = np.asarray(getattr(example, part.name))
        else:
            plain[field.name] = value
    arrays["plain"] = np.array(json.dumps({"kind": type(evidence).__name__, "values": plain}))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    body = buffer.getvalue()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _plain(value: np.ndarray) -> Any:
    """An array as it is, a single value as a Python number."""
    return value if value.ndim else value.item()


def decode(content: bytes) -> AnyEvidence:
    """Read what `encode` wrote.

    Raises:
        ValueError: the checksum does not fit.
    """
    checksum, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise ValueError("its checksum does not fit")
    with np.load(io.BytesIO(body), allow_pickle=False) as archive:
        plain = json.loads(str(archive["plain"]))
        kind, values = _KINDS[plain["kind"]], plain["values"]
        found: dict[str, Any] = {}
        for field in fields(kind):
            if field.name == "threat":
                found[field.name] = Threat.parse(values["threat"])
            elif field.name == "shown":
                shown = _SHOWN[kind]
                found[field.name] = tuple(
                    shown(**{part.name: _plain(archive[f"shown-{index}-{part.name}"]) for part in fields(shown)})
                    for index in range(values["shown"])
                )
            elif field.name in values:
                value = values[field.name]
                found[field.name] = tuple(value) if isinstance(value, list) else value
            else:
                found[field.name] = archive[field.name]
    return kind(**found)
