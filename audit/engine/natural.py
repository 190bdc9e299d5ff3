"""Corruptions and confidence as the report tells them: tables, reliability, and the images of a few mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.special
import torch

from audit import statistics
from audit.collect.corruptions import read
from audit.corruptions import sizes
from audit.corruptions.kinds import corrupted, levels_of
from audit.corruptions.parameters import BENCHMARK_KINDS, KINDS, SEVERITIES
from audit.engine.sample import Sample
from audit.engine.summary import class_name, predictions_of
from audit.engine.table import save_pair
from audit.errors import Undefined
from audit.evidence import MADE_HERE, Bools, Corruptions, Evidence, EvidenceKey, EvidenceStore, Floats, ReferenceAttack
from audit.metrics.calibration import bins_of
from audit.metrics.corruption import averaged_kinds
from audit.result import (
    FAILURES_FOLDER,
    CorruptionExample,
    CorruptionRow,
    CorruptionTable,
    ModelResult,
    Reliability,
    ReliabilityBin,
)
from audit.settings import Settings

# One mistake for each of the kinds that cost most.
SHOWN_CORRUPTIONS = 8


def corruptions_of(store: EvidenceStore) -> Corruptions | None:
    """The answers to corrupted images, where any were corrupted."""
    key = EvidenceKey(kind=Evidence.CORRUPTIONS)
    found = store.get_as(Corruptions, key) if key in store else None
    return None if found is None or len(found.positions) == 0 else found


def corruption_table(store: EvidenceStore, image_shape: tuple[int, int, int]) -> CorruptionTable | None:
    """Errors per kind and severity with Wilson intervals."""
    evidence = corruptions_of(store)
    if evidence is None:
        return None
    samples = len(evidence.positions)
    rows = []
    for place, kind in enumerate(evidence.kinds):
        wrong = [int((~evidence.correct[:, place, index]).sum()) for index in range(len(SEVERITIES))]
        intervals = [statistics.proportion(count, samples) for count in wrong]
        rows.append(
            CorruptionRow(
                kind=kind,
                averaged=kind in BENCHMARK_KINDS,
                errors=tuple(count / samples for count in wrong),
                low=tuple(interval.low for interval in intervals),
                high=tuple(interval.high for interval in intervals),
                note=_note(kind, evidence.source, image_shape),
            )
        )
    clean = predictions_of(store).correct[evidence.positions]
    return CorruptionTable(samples=samples, clean_error=float(1 - clean.mean()), source=evidence.source, rows=tuple(rows))


def _note(kind: str, source: str, image_shape: tuple[int, int, int]) -> str:
    """What a reader must know of a kind."""
    if source == MADE_HERE:
        return sizes.degenerate(kind, *image_shape[1:]) or ""
    return "" if kind in KINDS else "not a published kind"


def reliabilities(store: EvidenceStore) -> tuple[Reliability, ...]:
    """Accuracy by confidence on clean, corrupted and adversarial images; nothing of a model that gives labels only."""
    predictions = predictions_of(store)
    if predictions.no_scores is not None:
        return ()
    found = [_reliability("clean", scipy.special.softmax(predictions.logits, axis=1).max(axis=1), predictions.correct)]
    evidence = corruptions_of(store)
    if evidence is not None:
        # A mean over fewer kinds than the benchmark's is none of its own.
        with suppress(Undefined):
            places = averaged_kinds(evidence)
            found.append(_reliability("corrupted", evidence.confidence[:, places].ravel(), evidence.correct[:, places].ravel()))
    for key, value in store.items():
        if isinstance(value, ReferenceAttack) and key.threat is not None:
            probabilities = scipy.special.softmax(value.adversarial_logits, axis=1)
            right = probabilities.argmax(axis=1) == value.labels
            found.append(_reliability(f"adversarial, {key.threat.label}", probabilities.max(axis=1), np.asarray(right)))
    return tuple(found)


def _reliability(images: str, confidence: Floats, correct: Bools) -> Reliability:
    bins = []
    for rows in bins_of(confidence):
        count, right = len(rows), int(correct[rows].sum())
        interval = statistics.proportion(right, count)
        bins.append(
            ReliabilityBin(
                confidence=float(confidence[rows].mean()),
                accuracy=right / count,
                low=interval.low,
                high=interval.high,
                samples=count,
            )
        )
    return Reliability(images=images, bins=tuple(bins))


@dataclass(frozen=True, kw_only=True)
class _Mistake:
    row: int
    place: int
    severity: int


def _mistakes(evidence: Corruptions, clean: Bools) -> Iterator[_Mistake]:
    """For the kinds that cost most, the surest wrong answer at the lowest severity that fools a right one."""
    worst = np.argsort(evidence.correct.mean(axis=(0, 2)), kind="stable")[:SHOWN_CORRUPTIONS]
    fooled = ~evidence.correct & clean[evidence.positions][:, None, None]
    for place in worst.tolist():
        severity = next((index for index in range(len(SEVERITIES)) if fooled[:, place, index].any()), None)
        if severity is not None:
            sure = np.where(fooled[:, place, severity], evidence.confidence[:, place, severity], -1.0)
            yield _Mistake(row=int(sure.argmax()), place=place, severity=severity + 1)


def with_corruptions(
    model: ModelResult, store: EvidenceStore, sample: Sample, settings: Settings, index: int, folder: Path
) -> ModelResult:
    """The result with its corruption table, its reliability, and the images of a few mistakes, written below `folder`.

    The images are corrupted again (the same example, kind and severity give the same one), or read again from their folder.
    """
    dataset = sample.dataset
    evidence, predictions = corruptions_of(store), predictions_of(store)
    examples = []
    for number, mistake in enumerate(_mistakes(evidence, predictions.correct) if evidence is not None else ()):
        assert evidence is not None, "mistakes are of evidence"
        position = int(evidence.positions[mistake.row])
        kind = evidence.kinds[mistake.place]
        cell = mistake.row, mistake.place, mistake.severity - 1
        example = CorruptionExample(
            example_id=str(predictions.ids[position]),
            label=class_name(dataset.class_names, int(predictions.labels[position])),
            kind=kind,
            severity=mistake.severity,
            answered=class_name(dataset.class_names, int(evidence.predicted[cell])),
            confidence=float(evidence.confidence[cell]) if evidence.no_scores is None else None,
        )
        if settings.keep_images:
            levels = levels_of(torch.from_numpy(dataset.images(sample.indices[position : position + 1])))
            ids, severities = [example.example_id], (mistake.severity,)
            if sample.corrupted is None:
                changed = next(corrupted(levels, kind, ids, settings.seed, severities))
            else:
                changed = next(read(sample.corrupted, kind, ids, severities))
            clean, altered = (f"{FAILURES_FOLDER}/{index}-corrupted-{number:02d}-{face}.png" for face in ("clean", "corrupted"))
            before, after = (np.asarray(image[0].numpy() / 255, dtype=np.float32) for image in (levels, changed))
            if save_pair((before, after), (clean, altered), folder):
                example = replace(example, clean_image=clean, corrupted_image=altered)
        examples.append(example)
    return replace(
        model,
        corruptions=corruption_table(store, dataset.image_shape),
        corruption_examples=tuple(examples),
        reliability=reliabilities(store),
    )
