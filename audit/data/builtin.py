"""The data set that needs no download: scikit-learn's digits, 1797 grey images of 8 x 8 pixels.

`digits:train` and `digits:test` are the two halves of a fixed split, stratified by class: within each class the images are ordered
by the sha256 of their id, and every other one goes to training. It depends on no random generator, so it never changes.
"""

from __future__ import annotations

import hashlib

import numpy as np

from audit.data.arrays import ArrayDataset
from audit.evidence import Ints, Strings

REFERENCES = ("digits", "digits:train", "digits:test")
_PARTS = {"digits": "all images", "digits:train": "the training half", "digits:test": "the test half"}


def load_digits(reference: str) -> ArrayDataset:
    """One of REFERENCES; pixels are the stored counts 0 to 16 divided by 16, ids `digits-17` number the whole set."""
    from sklearn.datasets import load_digits as read

    bundle = read()
    pixels = bundle.images.astype(np.float32)[:, None] / np.float32(16)
    labels = bundle.target.astype(np.int64)
    ids = np.array([f"digits-{index}" for index in range(len(labels))])
    if reference != "digits":
        train = _training_half(ids, labels)
        kept = np.flatnonzero(train if reference == "digits:train" else ~train)
        pixels, labels, ids = pixels[kept], labels[kept], ids[kept]
    content = hashlib.sha256((pixels * 16).astype(np.uint8).tobytes() + labels.astype("<i8").tobytes())
    return ArrayDataset(
        reference=reference,
        source=f"scikit-learn digits, {_PARTS[reference]}",
        digest=content.hexdigest(),
        ids=ids,
        labels=labels,
        class_names=tuple(str(digit) for digit in range(10)),
        pixels=pixels,
    )


def _training_half(ids: Strings, labels: Ints) -> np.typing.NDArray[np.bool_]:
    keys = np.array([hashlib.sha256(str(key).encode()).hexdigest() for key in ids])
    train = np.zeros(len(ids), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        train[members[np.argsort(keys[members])][::2]] = True
    return train
