"""Section 7 as data: failures with their clean, attacked and amplified difference images as data: URIs.

Small images are enlarged with hard pixels here, because viewers smooth them; large ones are reduced, to keep the report small.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from audit.result import FAILURES_FOLDER, AuditResult, FailureExample
from audit.sinks import report_words as words

SHOWN = 24
_SMALLEST_SHOWN, _LARGEST_SHOWN = 96, 128
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Triple:
    """Three data: URIs and the factor by which the difference was amplified; `note` when the images were reduced."""

    clean: str
    attacked: str
    difference: str
    factor: int
    note: str


@dataclass(frozen=True, kw_only=True)
class FailureCard:
    """One failure; `images` or the reason why there are none."""

    model: int
    model_label: str
    example_id: str
    label: str
    clean_confidence: float | None
    adversarial_label: str
    adversarial_confidence: float | None
    line: str
    arm: str
    distance: float
    images: Triple | None
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The failures shown, how many there were, and the filters that make sense."""

    cards: tuple[FailureCard, ...]
    total: int
    model_labels: tuple[str, ...]
    arms: tuple[str, ...]


def gallery(result: AuditResult, labels: Sequence[str], folder: Path) -> Gallery:
    """At most SHOWN failures, shared evenly among the models that have any."""
    having = [index for index, model in enumerate(result.models) if model.failures]
    each = max(3, SHOWN // max(1, len(having)))
    cards = tuple(
        _card(failure, index, labels[index], folder) for index in having for failure in result.models[index].failures[:each]
    )
    return Gallery(
        cards=cards,
        total=sum(model.failures_total for model in result.models),
        model_labels=tuple(labels[index] for index in having),
        arms=tuple(dict.fromkeys(card.arm for card in cards)),
    )


def _card(failure: FailureExample, model: int, label: str, folder: Path) -> FailureCard:
    distance = words.epsilon_text(failure.norm, failure.distance)
    images = _triple(failure, folder)
    return FailureCard(
        model=model,
        model_label=label,
        example_id=words.clipped(failure.example_id, 60),
        label=words.clipped(failure.label, 40),
        clean_confidence=failure.clean_confidence,
        adversarial_label=words.clipped(failure.adversarial_label, 40),
        adversarial_confidence=failure.adversarial_confidence,
        line=f"{failure.attack} ({failure.arm}), distance {words.norm_label(failure.norm)} {distance}, "
        f"threat {words.threat_label(failure.threat)}.",
        arm=failure.arm,
        distance=failure.distance,
        images=None if isinstance(images, str) else images,
        problem=images if isinstance(images, str) else None,
    )


def _triple(failure: FailureExample, folder: Path) -> Triple | str:
    if failure.clean_image is None or failure.adversarial_image is None:
        return "Images left out on request."
    clean = read_image(folder, failure.clean_image)
    attacked = read_image(folder, failure.adversarial_image)
    if clean is None or attacked is None:
        return "The image files are not in the result folder or cannot be read."
    if clean.shape != attacked.shape:
        return "The two image files differ in size."
    change = attacked.astype(np.int16) - clean.astype(np.int16)
    largest = int(np.abs(change).max())
    # The largest change becomes black or white, mid-grey stays unchanged.
    factor = max(1, 127 // largest) if largest else 1
    difference = np.clip(128 + factor * change, 0, 255).astype(np.uint8)
    reduced = max(clean.shape[:2]) > _LARGEST_SHOWN
    return Triple(
        clean=data_uri(clean),
        attacked=data_uri(attacked),
        difference=data_uri(difference),
        factor=factor,
        note=f"Shown reduced from {clean.shape[1]} × {clean.shape[0]} pixels." if reduced else "",
    )


def read_image(folder: Path, relative: str) -> Pixels | None:
    """An image below the failures folder, (h, w) or (h, w, 3); None when it is missing, unreadable or lies elsewhere."""
    root = (folder / FAILURES_FOLDER).resolve()
    path = (folder / relative).resolve()
    if not path.is_relative_to(root):
        return None
    try:
        with Image.open(path, formats=("PNG",)) as image:
            return np.asarray(image.convert("L" if image.mode in {"1", "L", "I", "I;16", "F"} else "RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def data_uri(pixels: Pixels) -> str:
    """An image as a PNG in a data: URI, enlarged with hard pixels where it is small."""
    image = Image.fromarray(pixels)
    longest = max(image.size)
    if longest > _LARGEST_SHOWN:
        image = image.resize(_scaled(image.size, _LARGEST_SHOWN / longest), Image.Resampling.BOX)
    elif longest < _SMALLEST_SHOWN:
        image = image.resize(_scaled(image.size, -(-_SMALLEST_SHOWN // longest)), Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _scaled(size: tuple[int, int], factor: float) -> tuple[int, int]:
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
