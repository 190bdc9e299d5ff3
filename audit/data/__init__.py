"""Labelled image data: ids, labels, class names, a digest, and images read lazily, chunk by chunk.

| reference | what it is |
|---|---|
| `digits`, `digits:train`, `digits:test` | scikit-learn's digits, all or one half |
| a folder of class folders | PNG, JPEG, BMP, WebP, TIFF; classes are the sorted folder names |
| a folder of idx files | MNIST, Fashion-MNIST and the like; the test part, or with `#train` the training part |
| `...-images-idx3-ubyte[.gz]` | one idx file, its labels beside it |
| `file.npz` | NumPy arrays images/labels, x/y or x_test/y_test, or with `#train` x_train/y_train |
| a folder of `.npy` files, or `...images.npy`, `x....npy` | the same arrays, one per file, mapped; labels are beside the images |
| `file.parquet`, a folder of shards, a pattern such as `data/test-*.parquet` | encoded images, as Hugging Face stores them; \
`#train`, `#test`, `#validation` choose shards by the beginning of their names |
| `file.csv` | a manifest: path, label, and any further columns as slices; paths are relative to it |
| `runs:/RUN/PATH`, `mlflow-artifacts:/PATH` | an artefact of an MLflow run, in any of the forms above |
| `runs:/RUN#dataset`, `runs:/RUN#dataset=NAME` | the local source of a dataset logged with `mlflow.data` |

Columns of a table that are not found by themselves are named in the reference: `photos.parquet#image=photo,label=kind`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from audit.data import mlflow_artifacts
from audit.data.arrays import ArrayDataset
from audit.data.builtin import REFERENCES, load_digits
from audit.data.class_names import read_class_names
from audit.data.corrupted import CorruptedImages, load_corrupted
from audit.data.decode import SUFFIXES
from audit.data.files import check_regular, refused, shown
from audit.data.idx import is_idx_folder, load_idx_file, load_idx_folder
from audit.data.image_files import FileDataset
from audit.data.image_folder import load_folder
from audit.data.labels import numbered_names, with_names
from audit.data.manifest import load_manifest
from audit.data.npy import is_npy_folder, load_npy_file, load_npy_folder
from audit.data.npz import load_npz
from audit.data.options import Options
from audit.data.parquet import ParquetDataset, choose_part, load_parquet, shards_in
from audit.data.reference import Reference, read_reference
from audit.data.resize import Resize
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings
from audit.text import redact

__all__ = [
    "ACCEPTED", "Chunk", "CorruptedImages", "Dataset", "Resize", "load", "load_corrupted", "named_by_model", "read_class_names",
]  # fmt: skip

ACCEPTED = (
    "accepted are digits, digits:train, digits:test, a folder of class folders, a folder of MNIST-style idx files or one "
    "such images file, .npz, images.npy with labels.npy, .parquet files, a .csv manifest, and runs:/RUN/PATH"
)


class Dataset(Protocol):
    """A labelled image data set. All images have one shape (c, h, w), c in {1, 3}."""

    @property
    def reference(self) -> str:
        """The text the user gave, redacted."""

    @property
    def source(self) -> str:
        """One line in words: what it is, where it came from, and how it was resized, if it was."""

    @property
    def digest(self) -> str:
        """sha256 over the content of the source, whatever its images are resized to."""

    @property
    def ids(self) -> Strings:
        """One unique, stable id per example, (N,)."""

    @property
    def labels(self) -> Ints:
        """Class indices, (N,)."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names by class index; "0", "1", ... where the source has none."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(c, h, w)."""

    @property
    def slices(self) -> Mapping[str, Strings]:
        """Further columns of a manifest or Parquet table by name, (N,) each; empty for other sources."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader of the result must know about the data: images left out, for instance."""

    def images(self, indices: Sequence[int] | Ints) -> Images:
        """The images at `indices`, (n, c, h, w) float32 in [0, 1].

        Raises:
            DataError: an image cannot be read, or has another shape.
        """


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A run of consecutive sampled examples; `positions` (n,) are their places in the sample's canonical order.

    `corrupted` are the corrupted images of a folder, by example id; None where corruptions are made from the images.
    """

    positions: Ints
    ids: Strings
    labels: Ints
    images: Images
    corrupted: CorruptedImages | None = None


def load(
    ref: str,
    *,
    class_names: Sequence[str] | None = None,
    resize: Resize | None = None,
    skip_unreadable: bool = False,
    tracking_uri: str | None = None,
) -> Dataset:
    """The data set a reference stands for; the table at the top lists the forms. A built-in name wins over a folder of that name.

    Args:
        ref: the reference.
        class_names: the names by class index. Where the source has names of its own (class folders, names in a table), they say
            which index each of those has.
        resize: the size all images are brought to; None leaves them as they are, and they must then have one size.
        skip_unreadable: leave unreadable images out, with a caution, instead of refusing the data. Every image is then decoded
            once while loading.
        tracking_uri: the MLflow store of `runs:/` references; None takes MLflow's own setting.

    Raises:
        DataError: there is no such data, or it cannot be used; one sentence says why.
    """
    if class_names is not None and (not class_names or len(set(class_names)) != len(class_names)):
        raise DataError("the class names given are not all different, or there are none; give each class its own name")
    options = Options(
        class_names=None if class_names is None else tuple(class_names), resize=resize, skip_unreadable=skip_unreadable
    )
    if ref in REFERENCES:
        return _finished(load_digits(ref), options)
    if mlflow_artifacts.is_mlflow(ref):
        return _load_from_mlflow(ref, options, tracking_uri)
    return _load_path(ref, options)


def named_by_model(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """The data set with the class names of a model, its labels brought into the model's order; for data loaded without names given.

    Names of its own must be among the model's (the data may have fewer classes). Numbered classes are taken to be in the model's
    order, and only get its names. Where neither fits, the labels stay and a caution says so.
    """
    if dataset.class_names == tuple(names) or not isinstance(dataset, ArrayDataset | FileDataset | ParquetDataset):
        return dataset
    own = None if dataset.class_names == numbered_names(dataset.labels) else dataset.class_names
    try:
        labels, known = with_names(dataset.labels, own, names, shown(dataset.reference))
    except DataError:
        told = ", ".join(shown(name) for name in names[:3])
        caution = (
            f"The model names its classes ({told}, ...), but the data have other names or more: label k was taken for class k."
        )
        return replace(dataset, cautions=(*dataset.cautions, caution))
    renamed = replace(dataset, labels=labels, class_names=known)
    # Downloaded files are deleted with the data set they were loaded for: it lives on as long as this one does.
    weakref.finalize(renamed, lambda _: None, dataset)
    return renamed


def _load_from_mlflow(ref: str, options: Options, tracking_uri: str | None) -> Dataset:
    """Data downloaded into a folder that lives as long as the data set does."""
    folder = TemporaryDirectory(prefix="audit-data-", ignore_cleanup_errors=True)
    root = Path(folder.name).resolve()
    try:
        fetched = mlflow_artifacts.fetch(ref, root, tracking_uri=tracking_uri)
        found = _load_path(fetched.reference, options)
        if isinstance(found, FileDataset) and found.folder.resolve().is_relative_to(root):
            outside = next((file for file in found.files if not (found.folder / file).resolve().is_relative_to(root)), None)
            if outside is not None:
                raise DataError(f"{shown(ref)} lists {shown(outside)}, which is not among its files; log the images too")
    except DataError as error:
        folder.cleanup()
        raise DataError(str(error).replace(f"{root}/", "")) from None
    except BaseException:
        folder.cleanup()
        raise
    dataset = replace(found, reference=redact(ref), source=f"{fetched.words}: {found.source}")
    weakref.finalize(dataset, folder.cleanup)
    return dataset


def _load_path(text: str, options: Options) -> ArrayDataset | FileDataset | ParquetDataset:
    if not text.strip() or "\0" in text:
        raise DataError(f"the data reference is empty or holds a null character; {ACCEPTED}")
    if "://" in text:
        raise DataError(f"data at {shown(text)} cannot be fetched; download it and give the folder or file ({ACCEPTED})")
    ref = read_reference(text, names=REFERENCES)
    if ref.shards:
        return _load_pattern(ref, options)
    try:
        names = [entry.name for entry in ref.path.iterdir()] if ref.path.is_dir() else None
    except OSError as error:
        raise refused(ref.path, error) from None
    return _load_file(ref, options) if names is None else _load_folder(ref, names, options)


def _load_folder(ref: Reference, names: list[str], options: Options) -> ArrayDataset | FileDataset | ParquetDataset:
    if is_idx_folder(names):
        return _finished(load_idx_folder(ref.path, ref.text, train=ref.is_train("a folder of idx files")), options)
    if is_npy_folder(names):
        return _finished(load_npy_folder(ref.path, names, ref.text, train=ref.is_train("a folder of .npy files")), options)
    shards = shards_in(ref.path, names)
    if shards:
        chosen, part = choose_part(shards, ref.part, shown(ref.path))
        return load_parquet(ref, chosen, options, part)
    ref.refuse_part("a folder of class folders")
    return load_folder(ref.path, ref.text, options)


def _load_file(ref: Reference, options: Options) -> ArrayDataset | FileDataset | ParquetDataset:
    check_regular(ref.path)
    suffix = ref.path.suffix.lower()
    if suffix == ".npz":
        return _finished(load_npz(ref.path, ref.text, train=ref.is_train("an .npz file")), options)
    if ref.part is not None:
        raise DataError(f"{shown(ref.path)} is one file and has no parts; leave #{ref.part} out")
    if suffix == ".parquet":
        return load_parquet(ref, {ref.path.name: ref.path}, options)
    if suffix == ".csv":
        return load_manifest(ref, options)
    ref.refuse_columns("no table")
    if suffix == ".npy":
        return _finished(load_npy_file(ref.path, ref.text), options)
    if "idx" in ref.path.name or ref.path.name.removesuffix(".gz").endswith("ubyte"):
        return _finished(load_idx_file(ref.path, ref.text), options)
    if suffix in SUFFIXES:
        raise DataError(f"{shown(ref.path)} is a single image; give the folder that holds the class folders")
    raise DataError(f"{shown(ref.path)} is in no known data format; {ACCEPTED}")


def _load_pattern(ref: Reference, options: Options) -> ParquetDataset:
    other = next((path for path in ref.shards if path.suffix.lower() != ".parquet" or path.is_dir()), None)
    if other is not None:
        raise DataError(f"the pattern {shown(ref.path)} matches {shown(other)}, but patterns stand for .parquet files only")
    above = Path(os.path.commonpath([path.parent.absolute() for path in ref.shards]))
    shards = {str(path.absolute().relative_to(above)): path for path in ref.shards}
    if ref.part is not None:
        shards, _ = choose_part(shards, ref.part, shown(ref.path))
    return load_parquet(ref, shards, options, ref.part)


def _finished(dataset: ArrayDataset, options: Options) -> ArrayDataset:
    """With the names and the size asked for."""
    if options.class_names is not None:
        _, names = with_names(dataset.labels, None, options.class_names, shown(dataset.reference))
        dataset = replace(dataset, class_names=names)
    if options.resize is not None:
        dataset = replace(dataset, resize=options.resize, source=f"{dataset.source}, {options.resize}")
    return dataset
