"""Options that several verbs share, and what they turn into."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from audit.errors import InputError
from audit.sinks.mlflow_server import DEFAULT_STORE
from audit.text import printable

if TYPE_CHECKING:
    from audit.models.limits import QueryLimits
    from audit.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


def _digests(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    from audit.models.trust import expected_digest

    return tuple(map(expected_digest, given))


_AUDITED = (
    click.argument("models", metavar="MODEL...", nargs=-1, required=True),
    click.option(
        "--data",
        required=True,
        help="digits; a folder of class folders; .npz, .npy, .parquet or .csv; MNIST-style idx files; runs:/RUN/PATH.",
    ),
    click.option(
        "--class-names", type=click.Path(path_type=Path), metavar="FILE", help="Class names in order: one a line, or JSON."
    ),
    click.option("--resize", metavar="HxW[,METHOD]", help="Resize every image; without it all must have one size."),
    click.option("--skip-unreadable", is_flag=True, help="Leave out images that cannot be read, and say which."),
    click.option("--reference", metavar="MODEL", help="A model to compare with, audited in the same way."),
    click.option(
        "--surrogate", metavar="MODEL", help="A model with gradients, not trained on the data, to craft transfer attacks on."
    ),
    click.option(
        "--eot",
        type=click.IntRange(min=2),
        metavar="K",
        help="Audit a model that answers at random as the mean of K calls; costs K times as much.",
    ),
    click.option(
        "--profile-data",
        metavar="DATA",
        help="Other data that the ranges of neurons are taken from.  [default: a part of the data that is not scored]",
    ),
    click.option(
        "--corrupted",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Corrupted images of the data, laid out as CIFAR-10-C or ImageNet-C.  [default: they are made]",
    ),
    click.option(
        "--layers",
        multiple=True,
        metavar="PATTERN",
        help="Inner layers to look at, by name, e.g. 'features.*'; repeatable.  [default: all]",
    ),
    click.option(
        "--profile",
        type=click.Choice(["quick", "standard", "thorough", "autoattack"]),
        default="quick",
        show_default=True,
        help="How much work to do.",
    ),
    click.option(
        "--threat",
        "threats",
        multiple=True,
        metavar="NORM:EPSILON",
        help="Attack budget in [0, 1] pixels, e.g. linf:8/255 or l2:0.5; repeatable.  [default: linf:8/255]",
    ),
    click.option("--samples", type=click.IntRange(min=1), help="Examples to draw at most.  [default: the profile's]"),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of sampling and attacks."),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True),
    click.option(
        "--input-spec",
        metavar="SPEC",
        help="How the model wants its input: a TOML file, or e.g. range=0-255,layout=NHWC,mean=0.5,std=0.25.",
    ),
    click.option("--output", metavar="NAME", help="The model's output that holds the scores, where it has several."),
    click.option(
        "--expect-sha256",
        multiple=True,
        metavar="HEX",
        callback=_digests,
        help="Load a MODEL only if its files have this sha256; repeatable, in the order of the models.",
    ),
    click.option("--trust", is_flag=True, help="Allow loading a model that can run its own code (pickles, code paths, functions)."),
    click.option("--black-box", is_flag=True, help="Audit by queries only, as if nobody could see inside the model."),
    click.option(
        "--reuse",
        multiple=True,
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Take evidence with the same fingerprint from an earlier audit's folder; repeatable.",
    ),
    click.option(
        "--max-queries",
        type=click.IntRange(min=1),
        help="Images to send to an endpoint or a function at most, per model, padding and repeated calls included.",
    ),
    click.option(
        "--rate-limit", type=click.FloatRange(min=0, min_open=True), help="Calls per second to an endpoint or a function at most."
    ),
    click.option("--allow-chance", is_flag=True, help="Audit a model even if it is no better than guessing."),
    click.option("--tracking-uri", metavar="URI", help="MLflow store.  [default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db]"),
)


def audited(function: F) -> F:
    """Add the arguments and options that say what to audit."""
    for option in reversed(_AUDITED):
        function = option(function)
    return function


def settings_of(
    *,
    profile: str,
    threats: tuple[str, ...],
    samples: int | None,
    seed: int,
    device: str,
    eot: int | None = None,
    layers: tuple[str, ...] = (),
    keep_images: bool = True,
) -> Settings:
    """Settings from the command line; each threat counts once.

    Raises:
        InputError: a threat is not of the form norm:epsilon.
    """
    from dataclasses import replace

    from audit.settings import Settings
    from audit.vocabulary import Norm, Threat

    settings = replace(
        Settings.of(profile), samples=samples, seed=seed, device=device, keep_images=keep_images, eot=eot or 1, layers=layers
    )
    budgets: dict[tuple[Norm, float], Threat] = {}
    for threat in map(Threat.parse, threats):
        budgets.setdefault((threat.norm, threat.epsilon), threat)  # 0.1 and 1/10 are one budget
    return replace(settings, threats=tuple(budgets.values())) if budgets else settings


def limits_of(*, max_queries: int | None, rate_limit: float | None) -> QueryLimits:
    """What may be asked of an endpoint or a function."""
    from audit.models.limits import QueryLimits

    return QueryLimits(max_queries=max_queries, rate_limit=rate_limit)


def tracking_uri_of(given: str | None) -> str:
    """The MLflow store: the option, the environment, or a SQLite file here."""
    return given or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_STORE


def registry_uri_of(tracking_uri: str) -> str:
    """The model registry: MLFLOW_REGISTRY_URI, or the tracking store itself."""
    return os.environ.get("MLFLOW_REGISTRY_URI") or tracking_uri


def seconds_of(text: str | None) -> float | None:
    """A time budget in seconds: `90`, `90s`, `15m`, `1.5h`; None stays None.

    Raises:
        InputError: it is none of these, or not positive.

    >>> seconds_of("15m")
    900.0
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"the time budget {printable(text)!r} is not a duration; write for example 90s, 15m or 1.5h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def default_out() -> Path:
    """A new folder named after the local time."""
    return Path("audits") / datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
