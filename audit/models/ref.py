"""What a user may type for a model: a value, parsed without touching a registry, a file or a framework."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from audit.errors import InputError
from audit.text import printable, redact

ACCEPTED = (
    "models:/name/3, models:/name@alias, models:/name/latest, models:/m-<id>, runs:/<run>/<path>, path/file.onnx, "
    "https://host/invocations, https://host/v2/models/<name> or package.module:function"
)

_REGISTERED = re.compile(r"^models:/(?P<name>[^/@]+)/(?P<version>\d+|latest)$")
_ALIASED = re.compile(r"^models:/(?P<name>[^/@]+)@(?P<alias>[\w.-]+)$")
_LOGGED = re.compile(r"^models:/(?P<model_id>m-[0-9a-zA-Z]+)$")
_RUN = re.compile(r"^runs:/(?P<run_id>[0-9a-zA-Z]+)/(?P<path>[^/].*?)/*$")
_CALLABLE = re.compile(r"^(?!(?:models|runs|file|https?):)(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)$")
_SCORING = re.compile(r"^https?://[^/?#@\s]+(/[^?#\s]*)?/invocations/?$", re.IGNORECASE)
_V2 = re.compile(
    r"^(?P<base>https?://[^/?#@\s]+(/[^?#\s]*?)?/v2/models/(?P<name>[^/?#\s]+)(/versions/(?P<version>[^/?#\s]+))?)(/infer)?/?$",
    re.IGNORECASE,
)
_OTHER_FILES = (".pt", ".pth", ".pt2", ".pkl", ".pickle", ".joblib", ".ckpt", ".safetensors", ".h5", ".keras")


class RefKind(StrEnum):
    """Where the reference leads."""

    VERSION = "registered version"
    ALIAS = "registered alias"
    LATEST = "latest registered version"
    LOGGED = "logged model"
    RUN = "run artefact"
    ONNX_FILE = "ONNX file"
    SCORING_SERVER = "MLflow scoring server"
    V2_SERVER = "v2 inference server"
    CALLABLE = "Python function"


@dataclass(frozen=True, kw_only=True)
class ModelRef:
    """A parsed model reference; which fields are set depends on `kind`, the others are None.

    `text` is what the user typed, stripped; show `reference`, which is redacted.
    """

    kind: RefKind
    text: str
    name: str | None = None
    version: int | None = None
    alias: str | None = None
    model_id: str | None = None
    run_id: str | None = None
    path: str | None = None
    url: str | None = None
    module: str | None = None
    function: str | None = None

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        """Read one of the accepted forms; no I/O, so the model need not exist.

        Raises:
            InputError: the text has none of the accepted forms.

        >>> ModelRef.parse("models:/digits/3").version
        3
        >>> ModelRef.parse("models:/digits@champion").alias
        'champion'
        """
        text = text.strip()
        if match := _LOGGED.match(text):
            return cls(kind=RefKind.LOGGED, text=text, model_id=match["model_id"])
        if match := _REGISTERED.match(text):
            if match["version"] == "latest":
                return cls(kind=RefKind.LATEST, text=text, name=match["name"])
            return cls(kind=RefKind.VERSION, text=text, name=match["name"], version=int(match["version"]))
        if match := _ALIASED.match(text):
            return cls(kind=RefKind.ALIAS, text=text, name=match["name"], alias=match["alias"])
        if (match := _RUN.match(text)) and ".." not in match["path"].split("/"):
            return cls(kind=RefKind.RUN, text=text, run_id=match["run_id"], path=match["path"])
        if "://" not in text and ":/" not in text and text.lower().endswith(".onnx"):
            return cls(kind=RefKind.ONNX_FILE, text=text, path=text)
        if _SCORING.match(text):
            return cls(kind=RefKind.SCORING_SERVER, text=text, url=text.rstrip("/"))
        if match := _V2.match(text):
            # Where the model is described; `/infer` below it is where it answers.
            return cls(kind=RefKind.V2_SERVER, text=text, url=match["base"], name=match["name"])
        if match := _CALLABLE.match(text):
            return cls(kind=RefKind.CALLABLE, text=text, module=match["module"], function=match["function"])
        raise InputError(f"model {_shown(text)} {_why_not(text)}; write {ACCEPTED}")

    @property
    def reference(self) -> str:
        """The user's text, redacted and printable."""
        return printable(redact(self.text))

    @property
    def is_registry(self) -> bool:
        """Whether an MLflow server or store has to be asked."""
        return self.kind in (RefKind.VERSION, RefKind.ALIAS, RefKind.LATEST, RefKind.LOGGED, RefKind.RUN)

    @property
    def is_endpoint(self) -> bool:
        """Whether the model answers over HTTP."""
        return self.kind in (RefKind.SCORING_SERVER, RefKind.V2_SERVER)

    @property
    def has_files(self) -> bool:
        """Whether there are files to read; an endpoint or a function is only asked."""
        return self.is_registry or self.kind is RefKind.ONNX_FILE

    @property
    def file(self) -> Path:
        """The path of an ONNX file.

        Raises:
            InputError: the reference is not a file.
        """
        if self.kind is not RefKind.ONNX_FILE or self.path is None:
            raise InputError(f"model {_shown(self.text)} is not a file")
        return Path(self.path)


def _shown(text: str) -> str:
    return repr(printable(redact(text), limit=120))


def _why_not(text: str) -> str:
    lower = text.lower()
    if not text:
        return "is empty"
    if lower.startswith(("http://", "https://")):
        if "@" in text.split("/")[2]:
            return "carries credentials; give them in AUDIT_ENDPOINT_TOKEN or AUDIT_ENDPOINT_HEADERS, never in the address"
        if "?" in text or "#" in text:
            return "carries more than an address; give secrets in AUDIT_ENDPOINT_HEADERS"
        return "is an address of no known kind"
    if lower.startswith("models:/"):
        return "is not a registered version, an alias or a logged model"
    if lower.startswith("runs:/"):
        return "does not name a run and a path inside it"
    if lower.endswith(_OTHER_FILES):
        suffix = Path(lower).suffix
        return (
            f"is a {suffix} file, which is only read through MLflow (log it with mlflow.pytorch.log_model) or as an exported .onnx"
        )
    return "is not a model reference"
