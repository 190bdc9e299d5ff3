"""Which examples an audit uses, and the chunks it reads them in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from audit.data import Chunk, Dataset
from audit.errors import DataError
from audit.evidence import Ints, Strings
from audit.result import ClassCount, DataIdentity
from audit.text import printable


def sample(dataset: Dataset, n: int, seed: int) -> Ints:
    """Positions (min(n, N),) of a simple random sample without replacement, in the order drawn.

    Examples are drawn in the order of sha256 of (seed, id). The order therefore depends on nothing but the seed and the ids, not on
    how the data set is sorted; and a smaller sample is the beginning of a larger one, so that any first part of it is itself a
    random sample. That order is the audit's canonical one.

    Raises:
        DataError: n is below 1.
    """
    if n < 1:
        raise DataError(f"a sample of {n} examples was asked for; it must be at least 1")
    keys = [hashlib.sha256(f"{seed}:{key}".encode()).digest() for key in dataset.ids]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__)[:n], dtype=np.int64)


def sample_digest(ids: Strings, labels: Ints) -> str:
    """sha256 over the sampled (id, label) pairs in order; ids are preceded by their length, so no two samples are written alike."""
    digest = hashlib.sha256()
    for key, label in zip(ids, labels, strict=True):
        encoded = str(key).encode()
        digest.update(b"%d:%s %d\n" % (len(encoded), encoded, int(label)))
    return digest.hexdigest()


def chunks(dataset: Dataset, indices: Sequence[int] | Ints, rows: int) -> Iterator[Chunk]:
    """The sampled examples in order, at most `rows` at a time; images are read when a chunk is asked for.

    Raises:
        DataError: an image cannot be read.
    """
    for start in range(0, len(indices), rows):
        yield chunk(dataset, indices, start, min(start + rows, len(indices)))


def chunk(dataset: Dataset, indices: Sequence[int] | Ints, start: int, stop: int) -> Chunk:
    """The sampled examples at positions [start, stop), with their images.

    Raises:
        DataError: an image cannot be read.
    """
    part = np.asarray(indices[start:stop], dtype=np.int64)
    return Chunk(
        positions=np.arange(start, stop, dtype=np.int64),
        ids=dataset.ids[part],
        labels=dataset.labels[part],
        images=dataset.images(part),
    )


def identity(dataset: Dataset, indices: Sequence[int] | Ints, seed: int) -> DataIdentity:
    """What the audit rests on: the source, its digest, and the sample drawn from it.

    Raises:
        DataError: a file cannot be read while its digest is computed.
    """
    indices = np.asarray(indices, dtype=np.int64)
    labels = dataset.labels[indices]
    total = len(dataset.labels)
    counts = np.bincount(labels, minlength=len(dataset.class_names))
    return DataIdentity(
        reference=dataset.reference,
        source=dataset.source,
        digest=dataset.digest,
        sample_digest=sample_digest(dataset.ids[indices], labels),
        total=total,
        samples=len(indices),
        sampling="all examples" if len(indices) == total else "simple random, without replacement",
        seed=seed,
        image_shape=dataset.image_shape,
        classes=tuple(ClassCount(name=name, count=int(count)) for name, count in zip(dataset.class_names, counts, strict=True)),
        cautions=(*_cautions(dataset.class_names, counts), *dataset.cautions),
    )


def _cautions(names: Sequence[str], counts: Ints) -> tuple[str, ...]:
    absent = [printable(name, 40) for name, count in zip(names, counts, strict=True) if count == 0]
    if not absent:
        return ()
    listed = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
    return (f"{len(absent)} of {len(names)} classes have no example in the sample: {listed}",)
