"""A model's files, found and digested and read as data; nothing of them runs here."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from audit.models import mlflow_registry
from audit.models.input_spec import PartialSpec, from_sidecar, from_tags, from_user, is_file
from audit.models.mlflow_registry import Fetched
from audit.models.mlmodel import Route
from audit.models.onnx_content import file_identity
from audit.models.ref import ModelRef
from audit.models.trust import require_digest
from audit.result import ModelIdentity


@dataclass(frozen=True, kw_only=True)
class Located:
    """Model files on disk. `stated` is the user's input spec over the sidecar's or the tags'.

    `keep` leaves the files where they are until the program ends, for a model that may read them whenever it is asked.
    """

    identity: ModelIdentity
    file: Path
    stated: PartialSpec
    fetched: Fetched | None = None
    keep: Callable[[], object] = lambda: None

    @property
    def route(self) -> Route:
        """How it is loaded."""
        return Route.ONNX if self.fetched is None else self.fetched.model.route

    @property
    def runs(self) -> tuple[str, ...]:
        """The code that loading it would run, in words."""
        return () if self.fetched is None else self.fetched.model.runs


@contextmanager
def located(
    ref: ModelRef, *, spec: str | None, expect_sha256: str | None = None, tracking_uri: str | None, registry_uri: str | None
) -> Iterator[Located]:
    """The files of a model that has some, for as long as the context lasts.

    Raises:
        InputError: there is no such model, its files are not the expected ones, or an input spec is not valid.
        ModelError: what is there is no model this project can load.
    """
    stated = from_user(spec) if spec else PartialSpec()
    if not ref.is_registry:
        identity = file_identity(ref.file, ref.reference)
        require_digest(identity.name, identity.files, expect_sha256)
        beside = PartialSpec() if spec and is_file(spec) else from_sidecar(ref.file)
        yield Located(identity=identity, file=ref.file, stated=stated.over(beside))
        return
    with ExitStack() as kept:
        folder = kept.enter_context(TemporaryDirectory(prefix="audit-model-", ignore_cleanup_errors=True))
        fetched = mlflow_registry.fetch(ref, Path(folder), tracking_uri=tracking_uri, registry_uri=registry_uri)
        model = fetched.model
        require_digest(fetched.identity.label, fetched.identity.files, expect_sha256)
        unused = tuple(f"The model also carries code that was not run: {what}." for what in model.carries)
        identity = replace(fetched.identity, flavour=model.route.value, cautions=unused)
        yield Located(
            identity=identity,
            file=model.file,
            stated=stated.over(from_tags(identity.tags)),
            fetched=replace(fetched, identity=identity),
            keep=lambda: atexit.register(kept.pop_all().close),
        )
