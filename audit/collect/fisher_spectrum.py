"""White-box Fisher evidence: the spectrum and linearised margins of the first examples of the sample.

With few classes it is exact, from the Jacobian of all logits; with many it is iterated, and the Jacobian is never held.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from audit.attacks.randomness import generator, signs
from audit.attacks.run import Batch
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.errors import ModelError
from audit.evidence import (
    Evidence,
    EvidenceKey,
    EvidenceStore,
    FisherSpectrum,
    Floats,
    Ints,
    ShownDirection,
    Strings,
    Temperature,
)
from audit.evidence.fisher import SHOWN_SENSITIVE
from audit.fisher import exact, lanczos
from audit.fisher.exact import MOST_CLASSES_EXACT
from audit.fisher.margin import Margins, competitors, linearised_margins, margins_of_classes
from audit.fisher.spectrum import spectrum
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What a few examples contribute: eight columns (n,) of eigenvalues and their errors, and the top directions (n, d)."""

    gram: Floats
    columns: Floats
    margins: Margins
    directions: torch.Tensor


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> FisherSpectrum:
    """Spectra and margin radii of the rows whose position is below the profile's number; possibly none.

    Raises:
        ModelError: a gradient is not finite.
    """
    predictions = clean(needed)
    temperature = needed.get_as(Temperature, EvidenceKey(kind=Evidence.TEMPERATURE)).value
    rows = np.flatnonzero(chunk.positions < settings.profile.fisher_samples)
    images = Batch.of(chunk, classifier.device).images
    classes, dimension = predictions.logits.shape[1], int(np.prod(chunk.images.shape[1:]))
    iterated = classes > MOST_CLASSES_EXACT
    step = lanczos.rows_at_once(dimension) if iterated else exact.rows_at_once(classes, dimension)
    seed, parts = settings.seed, []
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        given = _Given(
            images=images[torch.as_tensor(part, device=classifier.device)],
            logits=predictions.logits[part],
            labels=chunk.labels[part],
            ids=chunk.ids[part],
        )
        parts.append(_iterated(classifier, given, temperature, seed) if iterated else _exact(classifier, given, temperature))
    held = 0 if iterated else classes
    columns = np.concatenate([np.zeros((8, 0)), *(part.columns for part in parts)], axis=1)
    directions = torch.cat([torch.zeros(0, dimension), *(part.directions for part in parts)])
    most = np.argsort(-columns[0], kind="stable")[: SHOWN_SENSITIVE if settings.keep_images else 0]
    return FisherSpectrum(
        positions=chunk.positions[rows],
        dimension=dimension,
        logits=predictions.logits[rows],
        gram=np.concatenate([np.zeros((0, held, held)), *(part.gram for part in parts)]),
        temperature=temperature,
        **dict(zip(_COLUMNS, columns, strict=True)),
        **{
            name: np.concatenate([np.zeros(0), *(getattr(part.margins, field) for part in parts)])
            for name, field in (("margin_linf", "linf"), ("margin_l2", "l2"), ("margin_l1", "l1"))
        },
        zero_gradient=np.concatenate([np.zeros(0, dtype=np.bool_), *(part.margins.zero_gradient for part in parts)]),
        shown=tuple(
            ShownDirection(
                position=int(chunk.positions[rows[i]]),
                lambda_max=float(columns[0, i]),
                clean=np.array(chunk.images[rows[i]], dtype=np.float32),
                direction=directions[i].numpy().reshape(chunk.images.shape[1:]),
            )
            for i in most.tolist()
            if columns[0, i] > 0
        ),
    )


_COLUMNS = (
    *("lambda_max", "trace", "residual", "trace_error"),
    *("lambda_max_raw", "trace_raw", "residual_raw", "trace_error_raw"),
)


@dataclass(frozen=True, kw_only=True)
class _Given:
    images: torch.Tensor
    logits: Floats
    labels: Ints
    ids: Strings


def _exact(classifier: Classifier, given: _Given, temperature: float) -> _Part:
    _, jacobian = classifier.jacobian(given.images)
    _check_finite(jacobian, given.ids)
    gram = exact.gram(jacobian)
    fitted, raw = spectrum(gram, given.logits, temperature), spectrum(gram, given.logits, 1.0)
    none = np.zeros(len(given.labels))
    return _Part(
        gram=gram,
        columns=np.stack([*fitted[:2], none, none, *raw[:2], none, none]),
        margins=linearised_margins(given.logits, jacobian, given.labels),
        directions=exact.top_directions(jacobian, gram, given.logits, temperature),
    )


def _iterated(classifier: Classifier, given: _Given, temperature: float, seed: int) -> _Part:
    shape = (lanczos.TRACE_PROBES, *given.images.shape[1:])
    probes = torch.stack([signs(shape, generator(seed, str(name), "fisher trace")) for name in given.ids]).to(given.images)
    fitted, raw = lanczos.lanczos(classifier, given.images, given.logits, (temperature, 1.0), probes)
    classes = competitors(given.logits, given.labels)
    gradients = torch.stack(
        [_gradient(classifier, given.images, torch.from_numpy(column).to(given.images.device)) for column in classes.T], dim=1
    )
    _check_finite(gradients, given.ids)
    return _Part(
        gram=np.zeros((len(given.labels), 0, 0)),
        columns=np.stack(
            [getattr(found, name) for found in (fitted, raw) for name in ("lambda_max", "trace", "residual", "trace_error")]
        ),
        margins=margins_of_classes(given.logits, gradients, classes),
        directions=fitted.direction,
    )


def _gradient(classifier: Classifier, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Gradients (n, d) of each row's own class's logit."""
    _, _, found = classifier.loss_gradient(images, lambda z, rows: z.gather(1, classes[rows, None])[:, 0])
    return found.flatten(1)


def _check_finite(gradients: torch.Tensor, ids: Strings) -> None:
    finite = gradients.isfinite().flatten(1).all(dim=1).cpu().numpy()
    if not finite.all():
        raise ModelError(
            f"gradients of the model are not finite on example {ids[np.flatnonzero(~finite)[0]]}; "
            "white-box Fisher information needs finite gradients, the query-only estimate does not"
        )
