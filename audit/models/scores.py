"""What a model returns: one tensor of finite (n, K) scores, found among its outputs and checked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import cast

import torch

from audit.errors import InputError, ModelError
from audit.text import printable

LOGITS = "logits"


def scores_of(outputs: object, who: str, wanted: str | None = None) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Find the one tensor of scores among a model's outputs, and a caution where a choice was made.

    Args:
        outputs: what the model returned.
        who: the model, for messages.
        wanted: the name (of a dictionary's entry, a field) or the position (of a tuple's item) that the user gave.

    Raises:
        InputError: there is no output of the wanted name.
        ModelError: there is none, or no obvious one.
    """
    if isinstance(outputs, torch.Tensor):
        if wanted is not None:
            raise InputError(f"{who}: returns one tensor, which has no name; leave out --output {printable(wanted, 60)}")
        return outputs, ()
    kind, found = _named(outputs)
    if kind is None:
        raise ModelError(f"{who}: returns {type(outputs).__name__}, not a tensor of class scores")
    named = {key: value for key, value in found.items() if isinstance(value, torch.Tensor)}
    if wanted is not None:
        if wanted not in named:
            raise InputError(unknown(who, wanted, list(named)))
        return named[wanted], ()
    for key in (LOGITS, *named) if len(named) == 1 else (LOGITS,):
        if key in named:
            return named[key], (f"The model returns a {kind}; its entry {printable(key, 60)!r} was used.",)
    listed = ", ".join(repr(printable(name, 40)) for name in sorted(named))
    raise ModelError(
        f"{who}: returns a {kind} with the tensors {listed or 'none'}; an audit needs one, or one called {LOGITS!r}; "
        "name it with --output"
    )


def _named(outputs: object) -> tuple[str | None, Mapping[str, object]]:
    """What kind of container it is, and what it holds by name or position."""
    if isinstance(outputs, Mapping):
        return "dictionary", {str(key): value for key, value in cast("Mapping[object, object]", outputs).items()}
    if is_dataclass(outputs) and not isinstance(outputs, type):
        return type(outputs).__name__, {each.name: getattr(outputs, each.name) for each in fields(outputs)}
    if isinstance(outputs, tuple | list):
        values = cast("tuple[object, ...]", outputs)
        names: tuple[str, ...] = getattr(type(outputs), "_fields", ())
        if names:
            return "named tuple", dict(zip(names, values, strict=True))
        return "tuple", {str(place): value for place, value in enumerate(values)}
    return None, {}


def check_scores(scores: torch.Tensor, rows: int, who: str) -> torch.Tensor:
    """The scores as (rows, K) with K >= 2.

    Trailing sizes of 1 are dropped, as in (rows, K, 1, 1). One value per image becomes the columns (0, value): read as logits they
    say what a single logit says. `resolve_outputs` settles whether the value is a probability.

    Raises:
        ModelError: it has another shape.
    """
    given = tuple(scores.shape)
    while scores.ndim > 1 and scores.shape[-1] == 1:
        scores = scores.squeeze(-1)
    if is_one_value(scores, rows):
        return torch.stack((torch.zeros_like(scores), scores), dim=1)
    if scores.ndim != 2 or scores.shape[0] != rows:
        raise ModelError(f"{who}: gives outputs of shape {given} for {rows} images, expected ({rows}, classes)")
    return scores


def is_one_value(scores: torch.Tensor, rows: int) -> bool:
    """Whether there is one value per image: (rows,), (rows, 1), (rows, 1, 1) and so on."""
    return scores.ndim > 0 and scores.shape[0] == rows and scores.numel() == rows


def refuse_class_numbers(scores: torch.Tensor, rows: int, who: str) -> None:
    """Refuse whole numbers, one per image: read as scores they would be the logit or the probability of one class.

    Raises:
        ModelError: the model gives its answer, not its scores.
    """
    if not scores.is_floating_point() and is_one_value(scores, rows):
        raise ModelError(
            f"{who}: gives only class numbers ({scores.dtype}), but an audit needs one score per class; let it return its scores, "
            "or audit a function that returns its labels (package.module:function)"
        )


def check_finite(scores: torch.Tensor, who: str) -> None:
    """Make sure that every score is a finite number.

    Raises:
        ModelError: some are NaN or infinite; says how many, for how many images.
    """
    # One finite sum says it of all; a sum that is not may have overflowed.
    if bool(scores.sum().isfinite()):
        return
    finite = torch.isfinite(scores)
    if not bool(finite.all()):
        bad = ~finite
        raise ModelError(
            f"{who}: {int(bad.sum())} of {scores.numel()} outputs are NaN or infinite, for {int(bad.any(dim=1).sum())} of "
            f"{scores.shape[0]} images; check the value range and normalisation (input spec) and the model's weights"
        )


def unknown(who: str, wanted: str, names: Sequence[str]) -> str:
    """One sentence for an output that is not there, with the nearest one."""
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    meant = f"; did you mean {printable(near[0], 60)!r}?" if near else ""
    have = ", ".join(repr(printable(name, 60)) for name in names) or "none"
    return f"{who}: has no output {printable(wanted, 60)!r}{meant} (it has {have})"
