"""The per-example table and the images of the failures shown: the parts of a result that are not numbers about the whole."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.special
from PIL import Image

from audit.corruptions.parameters import BENCHMARK_KINDS
from audit.engine.summary import ARMS, Failure, predictions_of
from audit.engine.table_boundary import boundary_columns, spread
from audit.evidence import (
    BROKEN,
    SURVIVED,
    AccuracyEpsilon,
    Corruptions,
    Evidence,
    EvidenceKey,
    EvidenceStore,
    FisherEstimate,
    FisherSpectrum,
    Images,
    ReferenceAttack,
    Sequences,
    Temperature,
    WorstCase,
)
from audit.metrics import kl_radius
from audit.metrics.accuracy import point_name
from audit.metrics.fisher import SATURATED_ABOVE
from audit.metrics.margin import exceeds
from audit.metrics.spec import key_of
from audit.result import FAILURES_FOLDER, TABLE_FILE, FailureExample

log = logging.getLogger(__name__)

STATES = {BROKEN: "broken", SURVIVED: "survived"}


def columns(store: EvidenceStore, model: int) -> dict[str, pa.Array]:
    """One model's columns, one row per sampled example; values that were not measured are null.

    A column named like a metric's key holds what that metric is the share or the median of.
    """
    predictions = predictions_of(store)
    rows = len(predictions.labels)
    probabilities = scipy.special.softmax(predictions.logits, axis=1)
    unscored = np.full(rows, predictions.no_scores is not None)
    found: dict[str, Any] = {
        "model": np.full(rows, model),
        "id": predictions.ids.tolist(),
        "label": predictions.labels,
        "predicted": predictions.predicted,
        "correct": predictions.correct,
        "confidence": pa.array(probabilities.max(axis=1), mask=unscored),
        "saturated_share": pa.array(probabilities.max(axis=1) > SATURATED_ABOVE, mask=unscored),
    }
    for key, value in store.items():
        if key.threat is None:
            continue
        if isinstance(value, WorstCase):
            arm = ARMS[key.kind].replace("-", "_")
            broken = value.broken_by >= 0
            found[f"{arm}_state/{key.threat.key}"] = [STATES.get(int(state), "unknown") for state in value.state]
            found[f"{arm}_broken_by/{key.threat.key}"] = [
                value.attacks[index] if index >= 0 else None for index in value.broken_by.tolist()
            ]
            found[f"{arm}_class/{key.threat.key}"] = pa.array(value.adversarial_class, mask=~broken)
            found[f"{arm}_distance/{key.threat.key}"] = pa.array(value.distance, mask=~broken)
        if isinstance(value, AccuracyEpsilon):
            for index, epsilon in enumerate(value.epsilons):
                found[key_of("accuracy_epsilon_curve", point_name(key.threat, epsilon), key.threat)] = value.robust[:, index]
        if isinstance(value, ReferenceAttack):
            attacked = value.clean_correct
            found[f"reference_success/{key.threat.key}"] = pa.array(value.success, mask=~attacked)
            for name in ("l0", "l2", "linf", "ssim", "psd"):
                found[f"reference_{name}/{key.threat.key}"] = pa.array(getattr(value, name), mask=~attacked)
    found.update(_fisher(store, rows))
    found.update(boundary_columns(store, rows))
    found.update(_corruptions(store, rows))
    found.update(_sequences(store, rows))
    return {name: value if isinstance(value, pa.Array) else pa.array(value) for name, value in found.items()}


def without_fit(store: EvidenceStore) -> bool:
    """Whether the temperature's fit ran into its bound, where nothing at that temperature counts as measured."""
    fit = EvidenceKey(kind=Evidence.TEMPERATURE)
    return fit in store and store.get_as(Temperature, fit).at_limit


def _fisher(store: EvidenceStore, rows: int) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    exact, fit, queried = (
        EvidenceKey(kind=kind) for kind in (Evidence.FISHER_SPECTRUM, Evidence.TEMPERATURE, Evidence.FISHER_ESTIMATE)
    )
    if exact in store:
        evidence = store.get_as(FisherSpectrum, exact)
        found["lambda_max_raw"] = spread(evidence.lambda_max_raw, evidence.positions, rows)
        if fit in store and not without_fit(store):
            fitted = evidence.lambda_max
            found["lambda_max_T"] = spread(fitted, evidence.positions, rows)
            found["lambda_max_residual"] = spread(evidence.residual, evidence.positions, rows)
            found["trace_T"] = spread(evidence.trace, evidence.positions, rows)
            moving = fitted > 0
            found["fisher_effective_rank"] = spread(evidence.trace[moving] / fitted[moving], evidence.positions[moving], rows)
            for name, d in (("kl_radius", 1), ("kl_radius_linf", evidence.dimension)):
                found[name] = spread(kl_radius.radii(fitted[moving], d), evidence.positions[moving], rows)
        for name in ("margin_linf", "margin_l2", "margin_l1"):
            found[name] = spread(getattr(evidence, name), evidence.positions, rows)
        for threat in dict.fromkeys(key.threat for key in store if key.threat is not None):
            found[key_of("linearised_margin_share", None, threat)] = spread(exceeds(evidence, threat), evidence.positions, rows)
    if queried in store:
        estimate = store.get_as(FisherEstimate, queried)
        status = np.array([None] * rows, dtype=object)
        status[estimate.positions] = estimate.status
        found["lambda_estimate_status"] = pa.array(status.tolist(), type=pa.string())
        unfitted = np.full_like(estimate.lambda_max, np.nan)
        for name, values in (
            ("lambda_estimate_T", unfitted if without_fit(store) else estimate.lambda_max),
            ("fisher_trace_estimate", unfitted if without_fit(store) else estimate.trace),
            ("lambda_estimate_raw", estimate.lambda_max_raw),
            ("lambda_estimate_relative_error", estimate.standard_error),
        ):
            measured = (estimate.status == "measured") & np.isfinite(values)
            found[name] = spread(values[measured], estimate.positions[measured], rows)
    return found


def _corruptions(store: EvidenceStore, rows: int) -> dict[str, pa.Array]:
    """Per example the share of wrong answers that each error is the mean of."""
    key = EvidenceKey(kind=Evidence.CORRUPTIONS)
    if key not in store:
        return {}
    evidence = store.get_as(Corruptions, key)
    averaged = [place for place, kind in enumerate(evidence.kinds) if kind in BENCHMARK_KINDS]
    found = {"unnormalised_mean_corruption_error": evidence.error[:, averaged].mean(axis=(1, 2))} if averaged else {}
    for place, kind in enumerate(evidence.kinds):
        found[key_of("corruption_error", kind)] = evidence.error[:, place].mean(axis=1)
    return {name: spread(values, evidence.positions, rows) for name, values in found.items()}


def _sequences(store: EvidenceStore, rows: int) -> dict[str, pa.Array]:
    """Per example the share of frame pairs with another answer that each flip probability is the mean of."""
    key = EvidenceKey(kind=Evidence.SEQUENCES)
    if key not in store:
        return {}
    evidence = store.get_as(Sequences, key)
    found = {"mean_flip_probability": evidence.flip_share.mean(axis=1)}
    for place, family in enumerate(evidence.families):
        found[key_of("flip_probability", family)] = evidence.flip_share[:, place]
    return {name: spread(values, evidence.positions, rows) for name, values in found.items()}


def write_table(stores: Sequence[EvidenceStore], folder: Path) -> Path:
    """Write the per-example table of all models to `folder`; returns its path."""
    tables = [pa.table(columns(store, index)) for index, store in enumerate(stores)]
    path = folder / TABLE_FILE
    pq.write_table(pa.concat_tables(tables, promote_options="permissive"), path)
    return path


def save_image(image: Images, path: Path) -> None:
    """Write an image (c, h, w) in [0, 1] as an 8-bit PNG."""
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    Image.fromarray(pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0)).save(path)


def save_pair(images: tuple[Images, Images], names: tuple[str, str], folder: Path) -> bool:
    """Write the two images (c, h, w) of an example below `folder`; false where they cannot be written, and then neither is there.

    A disk that takes no more costs an example its images, not the audit its numbers.
    """
    try:
        for image, name in zip(images, names, strict=True):
            (folder / name).parent.mkdir(exist_ok=True)
            save_image(image, folder / name)
    except OSError as error:
        log.warning("an example image cannot be written (%s)", error.strerror)
        for name in names:
            (folder / name).unlink(missing_ok=True)
        return False
    return True


def write_failures(failures: Sequence[Failure], model: int, folder: Path) -> tuple[FailureExample, ...]:
    """Write the images that were kept below `folder`; returns the records with their relative paths."""
    records = []
    for index, failure in enumerate(failures):
        record = failure.record
        if failure.images is not None:
            clean, adversarial = (f"{FAILURES_FOLDER}/{model}-{index:03d}-{face}.png" for face in ("clean", "adversarial"))
            if save_pair((failure.images.clean, failure.images.adversarial), (clean, adversarial), folder):
                record = replace(record, clean_image=clean, adversarial_image=adversarial)
        records.append(record)
    return tuple(records)
