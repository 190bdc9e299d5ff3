"""What a partial depends on, as one digest: with the same fingerprint the same numbers would come out again.

model (weights, input specification, outputs, runtime, device, compute block) + chunk (positions, ids, labels, pixels) + the
settings this kind of evidence reads + the fingerprints of what it needs + the code that gathers it and the libraries under it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import torch

from audit.collect import COLLECTORS
from audit.data import Chunk
from audit.engine.manifest import distribution_version
from audit.evidence import EvidenceKey, Floats
from audit.result import ModelIdentity
from audit.settings import Settings

# The rooms whose code decides what evidence is gathered; a changed metric, sink or verb leaves evidence valid.
ROOMS = ("attacks", "collect", "corruptions", "data", "fisher", "models", "evidence", "settings.py", "vocabulary.py")
LIBRARIES = ("torch", "onnxruntime", "onnxruntime-gpu", "numpy", "scipy", "pillow")


def digest(parts: object) -> str:
    """sha256 of plain data, written as canonical JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str).encode()).hexdigest()


@cache
def code() -> str:
    """The code that gathers evidence, and the libraries and number of threads that compute it."""
    sources: dict[str, str] = {}

    def walk(place: Traversable, name: str) -> None:
        if place.is_dir():
            for entry in place.iterdir():
                walk(entry, f"{name}/{entry.name}")
        elif name.endswith(".py"):
            sources[name] = hashlib.sha256(place.read_bytes()).hexdigest()

    for room in ROOMS:
        walk(files("audit") / room, room)
    return digest([sources, {name: distribution_version(name) for name in LIBRARIES}, torch.get_num_threads()])


def model(identity: ModelIdentity, lacks: Iterable[str], block_rows: int, answers: str | None = None) -> str:
    """The model as it computes: not its name, tags or version, but everything its outputs depend on.

    Without gradients the same kind of evidence is gathered in another way, so what it `lacks` belongs to it. `answers` is the
    digest of what an opaque model says to the clean sample: it stands in for its weights, together with where it is asked, since
    a defence may change nothing on clean images.
    """
    known = [
        identity.digest,
        identity.flavour,
        identity.input_spec,
        identity.outputs,
        identity.runtime,
        identity.device,
        identity.averaged,
        sorted(lacks),
        block_rows,
    ]
    return digest(known if answers is None else [*known, answers, identity.uri])


def answers(logits: Floats) -> str:
    """What a model said, bit for bit."""
    return hashlib.sha256(logits.tobytes()).hexdigest()


def chunk(part: Chunk) -> str:
    """The examples of a chunk and their places in the sample."""
    found = hashlib.sha256(digest([part.positions.tolist(), part.ids.tolist(), part.labels.tolist(), part.images.shape]).encode())
    found.update(part.images.tobytes())
    return found.hexdigest()


def settings_read(key: EvidenceKey, settings: Settings) -> dict[str, str]:
    """The settings that this kind of evidence reads, by name."""
    found = {}
    for name in sorted(COLLECTORS[key.kind].reads):
        owner, _, field = name.rpartition(".")
        found[name] = repr(getattr(settings.profile if owner else settings, field))
    return found


def partial(key: EvidenceKey, model_digest: str, chunk_digest: str, settings: Settings, needed: Mapping[str, str]) -> str:
    """The fingerprint of one kind of evidence on one chunk; `needed` are what it needs, by key."""
    threat = None if key.threat is None else [key.threat.norm.value, key.threat.epsilon]
    return digest([code(), key.kind.value, threat, model_digest, chunk_digest, settings_read(key, settings), dict(needed)])


def fit(key: EvidenceKey, needed: Sequence[str]) -> str:
    """The fingerprint of a fit: it depends on every part of what it needs."""
    return digest([code(), key.kind.value, list(needed)])
