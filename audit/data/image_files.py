"""Images in files of their own, read whenever they are asked for: class folders and manifests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from audit.data.decode import decode
from audit.data.files import digest_of, sha256_of_file, shown
from audit.data.options import Options
from audit.data.pixels import scaled
from audit.data.resize import Resize
from audit.data.survey import read_images, survey
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings
from audit.text import redact


@dataclass(frozen=True, kw_only=True, eq=False)
class FileDataset:
    """`files` (N) are relative to `folder`, in the order of `ids`; `manifest` is the file that lists them, where there is one."""

    folder: Path
    files: tuple[str, ...]
    reference: str
    source: str
    ids: Strings
    labels: Ints
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]
    resize: Resize | None
    slices: Mapping[str, Strings]
    cautions: tuple[str, ...]
    manifest: Path | None = None

    @cached_property
    def digest(self) -> str:
        """sha256 over the sorted (id, sha256 of the file's bytes) pairs, and the manifest's; reads every file once.

        Raises:
            DataError: a file cannot be read.
        """
        files = {str(key): self.folder / file for key, file in zip(self.ids, self.files, strict=True)}
        if self.manifest is not None:
            files[self.manifest.name] = self.manifest
        return digest_of({key: sha256_of_file(path) for key, path in files.items()})

    def images(self, indices: Sequence[int] | Ints) -> Images:
        """The images at `indices`, (n, c, h, w) float32 in [0, 1].

        Raises:
            DataError: images cannot be read, or have changed their shape since they were loaded.
        """
        paths = (self.folder / self.files[index] for index in indices)
        named = ((row, shown(path), path) for row, path in enumerate(paths))
        return read_images(named, len(indices), self.image_shape, self.resize)


def load_files(
    folder: Path,
    files: Sequence[str],
    labels: Ints,
    class_names: Sequence[str],
    options: Options,
    *,
    reference: str,
    source: str,
    left_out: str = "",
    slices: Mapping[str, Strings] | None = None,
    manifest: Path | None = None,
) -> FileDataset:
    """A data set of image files, all looked at; `source` and `left_out` begin and end the line in words.

    Raises:
        DataError: images cannot be read or differ in size, or names cannot be told apart.
    """
    ids = [unicode_name(file) for file in files]
    if len(set(ids)) != len(ids):
        raise DataError(f"{shown(folder)} holds file names that cannot be told apart once written as text; rename them")
    keys = np.array(ids)
    found = survey(((shown(folder / file), folder / file) for file in files), options)
    return FileDataset(
        folder=folder,
        files=tuple(files[place] for place in found.kept),
        reference=redact(reference),
        source=f"{source} with {len(found.kept)} images{found.notes}{left_out}",
        ids=keys[found.kept],
        labels=labels[found.kept],
        class_names=tuple(class_names),
        image_shape=found.image_shape,
        resize=options.resize,
        slices={name: cells[found.kept] for name, cells in (slices or {}).items()},
        cautions=found.cautions(keys),
        manifest=manifest,
    )


def read_image(path: Path) -> Images:
    """One image file as (c, h, w) float32 in [0, 1], c 1 for grey and 3 for colour.

    Raises:
        DataError: it cannot be read as one still image of a reasonable size.
    """
    return scaled(decode(shown(path), path))


def unicode_name(name: str) -> str:
    r"""A file name as text that can be stored anywhere: bytes that are no UTF-8 are written as \xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
