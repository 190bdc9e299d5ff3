"""The most sensitive examples as the report tells them, each with its image and its top direction where these were kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.special

from audit.engine.summary import class_name, predictions_of
from audit.engine.table import save_pair, without_fit
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, FisherEstimate, FisherSpectrum, Floats, Images, Ints
from audit.evidence.fisher import SHOWN_SENSITIVE
from audit.result import FAILURES_FOLDER, ModelResult, SensitiveExample


def with_sensitive(model: ModelResult, store: EvidenceStore, names: tuple[str, ...], index: int, folder: Path) -> ModelResult:
    """The result with the examples of largest lambda_max at the fitted temperature, their images written below `folder`.

    Exact or iterated values where the model has gradients, else the estimates from queries, which have no direction to show. None
    where no temperature could be fitted: nothing at it counts as measured.
    """
    exact, queried = (EvidenceKey(kind=kind) for kind in (Evidence.FISHER_SPECTRUM, Evidence.FISHER_ESTIMATE))
    if without_fit(store):
        return model
    if exact in store:
        return replace(model, sensitive_examples=_measured(store.get_as(FisherSpectrum, exact), store, names, index, folder))
    if queried in store:
        return replace(model, sensitive_examples=_estimated(store.get_as(FisherEstimate, queried), store, names))
    return model


def _measured(
    evidence: FisherSpectrum, store: EvidenceStore, names: tuple[str, ...], index: int, folder: Path
) -> tuple[SensitiveExample, ...]:
    kept, examples = {shown.position: shown for shown in evidence.shown}, []
    for number, row in enumerate(_largest(evidence.lambda_max, evidence.positions)):
        position = int(evidence.positions[row])
        status = "exact" if evidence.residual[row] == 0 else "iterated"
        example = _example(store, names, position, evidence.lambda_max[row], evidence.trace[row], status)
        if position in kept:
            clean, top = (f"{FAILURES_FOLDER}/{index}-sensitive-{number:02d}-{face}.png" for face in ("clean", "direction"))
            if save_pair((kept[position].clean, picture(kept[position].direction)), (clean, top), folder):
                example = replace(example, clean_image=clean, direction_image=top)
        examples.append(example)
    return tuple(examples)


def _estimated(evidence: FisherEstimate, store: EvidenceStore, names: tuple[str, ...]) -> tuple[SensitiveExample, ...]:
    values = np.where(evidence.status == "measured", evidence.lambda_max, np.nan)
    return tuple(
        _example(store, names, int(evidence.positions[row]), values[row], evidence.trace[row], "estimated")
        for row in _largest(values, evidence.positions)
    )


def _largest(values: Floats, positions: Ints) -> list[int]:
    """Rows of the largest positive values (n,), largest first; an unknown one is NaN."""
    known = np.nan_to_num(values, nan=0.0)
    order = np.lexsort((positions, -known))[:SHOWN_SENSITIVE]
    return [row for row in order.tolist() if known[row] > 0]


def _example(
    store: EvidenceStore, names: tuple[str, ...], position: int, lambda_max: float, trace: float, status: str
) -> SensitiveExample:
    predictions = predictions_of(store)
    confidence = float(scipy.special.softmax(predictions.logits[position]).max())
    return SensitiveExample(
        example_id=str(predictions.ids[position]),
        label=class_name(names, int(predictions.labels[position])),
        predicted=class_name(names, int(predictions.predicted[position])),
        confidence=confidence if predictions.no_scores is None else None,
        lambda_max=float(lambda_max),
        effective_rank=float(trace / lambda_max),
        status=status,
    )


def picture(direction: Images) -> Images:
    """A direction (c, h, w) as an image in [0, 1]: 0 is mid-grey, and the largest entry in size as light as can be.

    An eigenvector has no sign of its own; this one is turned so that its largest entry is positive.
    """
    largest = direction.flat[np.abs(direction).argmax()]
    return np.asarray(0.5 + 0.5 * direction / (largest or 1.0), dtype=np.float32)
