"""The surrogate of an audit: a model with gradients that transfer attacks are crafted on."""

from __future__ import annotations

import torch

from audit import models
from audit.data import Dataset
from audit.errors import InputError
from audit.evidence import Ints
from audit.models import Classifier, resolve_outputs
from audit.models.composed import with_surrogate
from audit.models.ref import ModelRef
from audit.settings import Settings
from audit.text import printable
from audit.vocabulary import Capability

NOT_GIVEN = "no surrogate was given (--surrogate MODEL)"


def open_surrogate(
    reference: str,
    dataset: Dataset,
    indices: Ints,
    settings: Settings,
    *,
    trust: bool,
    tracking_uri: str | None,
    registry_uri: str | None,
) -> Classifier:
    """Load the model `--surrogate` names and settle its outputs; its input specification is its own.

    Raises:
        InputError: it cannot be loaded, refuses the images, or has no gradients.
    """
    ref = ModelRef.parse(reference)
    if ref.url is not None:
        raise InputError(
            f"the surrogate {printable(reference, 120)} is an endpoint, which gives no gradients; give a model's files"
        )
    loaded = models.load(
        ref,
        image_shape=dataset.image_shape,
        trust=trust,
        device=settings.device,
        block_rows=settings.block_rows,
        tracking_uri=tracking_uri,
        registry_uri=registry_uri,
        class_names=dataset.class_names,
    )
    found = resolve_outputs(loaded, torch.from_numpy(dataset.images(indices[: settings.block_rows])).to(loaded.device))
    if Capability.GRADIENTS in found.lacks:
        raise InputError(
            f"the surrogate {printable(found.identity.label)} has no gradients to craft transfer attacks with: "
            f"{found.lacks[Capability.GRADIENTS]}; give a PyTorch or ONNX model"
        )
    return found


def beside(classifier: Classifier, surrogate: Classifier | None) -> tuple[Classifier, str | None]:
    """The classifier with the surrogate beside it, or the classifier alone and why.

    Raises:
        InputError: the two do not know the same classes.
    """
    if surrogate is None:
        return classifier, NOT_GIVEN
    one, other = surrogate.identity, classifier.identity
    if one.digest == other.digest and not other.opaque:
        return classifier, "the surrogate is this model itself"
    if surrogate.classes != classifier.classes:
        raise InputError(
            f"the surrogate {printable(one.label)} knows {surrogate.classes} classes and {printable(other.label)} "
            f"{classifier.classes}; a surrogate must know the same classes"
        )
    if one.class_names and other.class_names and one.class_names != other.class_names:
        raise InputError(
            f"the surrogate {printable(one.label)} and {printable(other.label)} name their classes differently or in another "
            "order; a surrogate must know the same classes"
        )
    return with_surrogate(classifier, surrogate), None
