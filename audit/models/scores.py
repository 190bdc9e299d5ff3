"""What a model returns: one tensor of finite (n, K) scores, found among its outputs and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from audit.errors import ModelError
from audit.text import printable

LOGITS = "logits"


def scores_of(outputs: object, who: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Find the one tensor of scores among a model's outputs, and a caution where a choice was made.

    Raises:
        ModelError: there is none, or no obvious one.
    """
    if isinstance(outputs, torch.Tensor):
        return outputs, ()
    if isinstance(outputs, Mapping):
        named = {
            str(key): value for key, value in cast("Mapping[object, object]", outputs).items() if isinstance(value, torch.Tensor)
        }
        for key in (LOGITS, *named) if len(named) == 1 else (LOGITS,):
            if key in named:
                return named[key], (f"The model returns a dictionary; its entry {printable(key, 60)!r} was used.",)
        raise ModelError(
            f"{who}: returns a dictionary with the tensors {sorted(named)}; an audit needs one, or one called {LOGITS!r}"
        )
    if isinstance(outputs, tuple | list):
        values = cast("tuple[object, ...]", outputs)
        if LOGITS in (fields := getattr(type(outputs), "_fields", ())):
            return scores_of(values[fields.index(LOGITS)], who)[0], (
                f"The model returns a named tuple; its field {LOGITS!r} was used.",
            )
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if len(tensors) == 1:
            return tensors[0], ("The model returns a tuple; its only tensor was used.",)
        raise ModelError(f"{who}: returns a tuple with {len(tensors)} tensors; an audit needs one tensor of class scores")
    raise ModelError(f"{who}: returns {type(outputs).__name__}, not a tensor of class scores")


def check_scores(scores: torch.Tensor, rows: int, who: str) -> torch.Tensor:
    """`scores` as it is, after making sure that it is (rows, K) with K >= 2.

    Raises:
        ModelError: it has another shape.
    """
    if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1):
        raise ModelError(
            f"{who}: gives one value per image, but an audit needs one score per class; "
            "a single sigmoid unit is not supported yet, so export the model with two outputs"
        )
    if scores.ndim != 2 or scores.shape[0] != rows:
        raise ModelError(f"{who}: gives outputs of shape {tuple(scores.shape)} for {rows} images, expected ({rows}, classes)")
    return scores


def check_finite(scores: torch.Tensor, who: str) -> None:
    """Make sure that every score is a finite number.

    Raises:
        ModelError: some are NaN or infinite; says how many, for how many images.
    """
    finite = torch.isfinite(scores)
    if not bool(finite.all()):
        bad = ~finite
        raise ModelError(
            f"{who}: {int(bad.sum())} of {scores.numel()} outputs are NaN or infinite, for {int(bad.any(dim=1).sum())} of "
            f"{scores.shape[0]} images; check the value range and normalisation (input spec) and the model's weights"
        )
