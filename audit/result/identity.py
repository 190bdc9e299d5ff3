"""What was audited, on what, and how to get the same numbers again."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """What was audited, so precisely that it can be found again.

    `digest` is sha256 over the sorted (path, sha256) pairs of `files`. `trusted` is true when code of the model was allowed to
    run. `input_spec` and `runtime` are plain words for the manifest. `tags` are the registry's. `class_names` are those that the
    model's tags or metadata state, by class index. `opaque` is true where no digest proves the weights (an endpoint, a function).
    `gradients` says where they come from if not from the model as it is deployed, `gradients_lost_in` names the operators of its
    graph between image and output that have no useful one. `averaged` is how many calls each answer is the mean of (`--eot`),
    `surrogate` the name and the beginning of the digest of the model that transfer attacks were crafted on.
    """

    reference: str
    uri: str
    name: str
    flavour: str
    digest: str
    classes: int
    runtime: str
    device: str
    outputs: str
    input_shape: tuple[int, ...]
    version: str | None = None
    model_id: str | None = None
    run_id: str | None = None
    description: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    input_spec: dict[str, str] = field(default_factory=dict)
    trusted: bool = False
    opaque: bool = False
    class_names: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    gradients: str = ""
    gradients_lost_in: tuple[str, ...] = ()
    averaged: int = 1
    surrogate: str = ""

    @property
    def label(self) -> str:
        """`name, version 3` (with a no-break space) or the name alone."""
        return self.name if self.version is None else f"{self.name}, version\u00a0{self.version}"


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """How many sampled examples a class has."""

    name: str
    count: int


@dataclass(frozen=True, kw_only=True)
class DataIdentity:
    """The data an audit rests on. `digest` is sha256 of the source's content, `sample_digest` of the sampled ids and labels."""

    reference: str
    source: str
    digest: str
    sample_digest: str
    total: int
    samples: int
    sampling: str
    seed: int
    image_shape: tuple[int, ...]
    classes: tuple[ClassCount, ...]
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """How to get these numbers again. `command` is redacted; `settings` and `versions` are plain words."""

    command: str
    tool_version: str
    python: str
    platform: str
    device: str
    threads: int
    seed: int
    settings: dict[str, str]
    versions: dict[str, str]
