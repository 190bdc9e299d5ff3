"""White-box Fisher evidence: Gram matrices and linearised margins of the first examples of the sample."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.run import Batch
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.errors import ModelError
from audit.evidence import EvidenceStore, FisherSpectrum
from audit.fisher.exact import gram, rows_at_once
from audit.fisher.margin import Margins, linearised_margins
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> FisherSpectrum:
    """J J^T and margin radii of the rows whose position is below the profile's number; possibly none.

    Raises:
        ModelError: a gradient is not finite.
    """
    predictions = clean(needed)
    rows = np.flatnonzero(chunk.positions < settings.profile.fisher_samples)
    images = Batch.of(chunk, classifier.device).images
    classes, dimension = predictions.logits.shape[1], int(np.prod(chunk.images.shape[1:]))
    grams, margins = [np.zeros((0, classes, classes))], [_no_margins()]
    step = rows_at_once(classes, dimension)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        _, jacobian = classifier.jacobian(images[torch.as_tensor(part, device=classifier.device)])
        finite = jacobian.isfinite().flatten(1).all(dim=1).cpu().numpy()
        if not finite.all():
            raise ModelError(
                f"gradients of the model are not finite on example {chunk.ids[part[~finite][0]]}; "
                "white-box Fisher information needs finite gradients, the query-only estimate does not"
            )
        grams.append(gram(jacobian))
        margins.append(linearised_margins(predictions.logits[part], jacobian, chunk.labels[part]))
    return FisherSpectrum(
        positions=chunk.positions[rows],
        logits=predictions.logits[rows],
        gram=np.concatenate(grams),
        margin_linf=np.concatenate([part.linf for part in margins]),
        margin_l2=np.concatenate([part.l2 for part in margins]),
        margin_l1=np.concatenate([part.l1 for part in margins]),
        zero_gradient=np.concatenate([part.zero_gradient for part in margins]),
    )


def _no_margins() -> Margins:
    return Margins(linf=np.zeros(0), l2=np.zeros(0), l1=np.zeros(0), zero_gradient=np.zeros(0, dtype=np.bool_))
