"""A Python function as a model: named `package.module:function`, imported only if trusted, and asked like an endpoint."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import torch

from audit.errors import AuditError, InputError, ModelError
from audit.models.answers import Labels, Scores, read
from audit.models.input_spec import PartialSpec
from audit.models.limits import Meter, QueryLimits
from audit.models.own_folder import own_folder
from audit.models.queried import QueriedClassifier, wrap
from audit.models.ref import ModelRef
from audit.models.trust import digest, overall_digest, require_trust
from audit.result import ModelIdentity
from audit.text import printable, redact

NOTHING_INSIDE = "a function gives answers and nothing inside"
CAUTION = (
    "The model is a function: the digest covers the source of its module, not what that module reads or calls, weights included."
)


def load(
    ref: ModelRef,
    *,
    image_shape: tuple[int, int, int],
    stated: PartialSpec,
    trust: bool,
    block_rows: int,
    class_names: Sequence[str],
    limits: QueryLimits,
) -> QueriedClassifier:
    """Import the function and look at it once.

    It is called with an array of prepared images, float32 (n, c, h, w) unless the input spec says otherwise, and gives scores
    (n, K) or labels (n,): class indices or class names. The current folder can be imported from, after everything installed.

    Args:
        ref: a function.
        image_shape: (c, h, w) of the data.
        stated: what the user stated of the input.
        trust: whether the module may be imported.
        block_rows: rows per call.
        class_names: of the data, for a function that answers with labels.
        limits: what the user allows.

    Raises:
        UntrustedError: `trust` is false.
        ModelError: there is no such function, or it raises, or its answers are neither scores nor labels.
        InputError: the specification does not fit the images.
        QueryBudgetSpent: looking at it would take more images than allowed.
    """
    name = printable(ref.text)
    require_trust(name, (f"the module {ref.module} and the function {ref.function}",), trust=trust)
    function = _imported(ref.module or "", ref.function or "", name)
    meter = Meter(limits, name)

    def ask(prepared: torch.Tensor) -> Scores | Labels:
        meter.spend(len(prepared))
        try:
            with own_folder():
                # A copy, which a function may write into.
                answer = function(prepared.clone().numpy())
        except AuditError:
            raise
        except Exception as error:  # it may raise anything
            shape = "x".join(map(str, prepared.shape))
            raise ModelError(f"{name}: raised {_first_line(error)} on an array of {shape} ({prepared.dtype})") from error
        return read(answer, len(prepared), name)

    files = _sources(ref.module or "")
    identity = ModelIdentity(
        reference=ref.reference,
        uri=ref.reference,
        name=name,
        flavour="Python function",
        digest=overall_digest(files),
        classes=0,
        runtime="called in this process",
        device="cpu",
        outputs="",
        input_shape=(),
        files=files,
        trusted=True,
        opaque=True,
        cautions=(CAUTION,),
    )
    return wrap(
        ask,
        image_shape=image_shape,
        identity=identity,
        spec=stated.complete(),
        rows=block_rows,
        class_names=class_names,
        inside=NOTHING_INSIDE,
    )


def _imported(module: str, function: str, who: str) -> Callable[[object], object]:
    here = str(Path.cwd())
    if here not in sys.path:
        # At the end, so that no file here takes the place of an installed module.
        sys.path.append(here)
    try:
        with own_folder():
            found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise InputError(
                f"{who}: there is no module {printable(module)}; start in the folder that holds it, or install it"
            ) from error
        raise ModelError(f"{who}: importing it needs the Python module {error.name!r}, which is not installed") from error
    except Exception as error:  # a module may raise anything while it is imported
        raise ModelError(f"{who}: cannot be imported: {_first_line(error)}") from error
    if not callable(found):
        raise InputError(f"{who}: the module {printable(module)} has no function {function}; check its name")
    return cast("Callable[[object], object]", found)


def _sources(module: str) -> dict[str, str]:
    """The sha256 of a lone module's source, or of every source file of its top-level package, by path."""
    top = sys.modules[module.partition(".")[0]]
    origin = top.__file__ or sys.modules[module].__file__
    if origin is None:
        return {}
    path = Path(origin)
    if path.name != "__init__.py":
        return {path.name: digest(path)}
    return {source.relative_to(path.parent.parent).as_posix(): digest(source) for source in sorted(path.parent.rglob("*.py"))}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return printable(redact(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__), 200)
