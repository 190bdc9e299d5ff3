"""A folder of class folders: `folder/cat/1.png`, `folder/dog/2.jpg`.

Classes are the class folders' names sorted by code point (as torchvision's ImageFolder sorts them): "10" comes before "2". Images
may lie deeper inside a class folder. Names starting with a dot are left out, as are links that lead back to where they came from.
Grey images among colour ones get three equal channels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from audit.data.decode import SUFFIXES
from audit.data.files import refused, shown
from audit.data.image_files import FileDataset, load_files, unicode_name
from audit.data.options import Options
from audit.errors import DataError

_SPLITS = frozenset({"train", "training", "test", "val", "valid", "validation"})


def load_folder(folder: Path, reference: str, options: Options) -> FileDataset:
    """List a folder of class folders; the class names given, if any, say which index each folder name has.

    Raises:
        DataError: there are no class folders or no images, images cannot be read, or they differ in size.
    """
    folders, loose = _class_folders(folder)
    names = tuple(unicode_name(name) for name in folders)
    given = options.class_names or names
    order = {name: index for index, name in enumerate(given)}
    for name in names:
        if name not in order:
            raise DataError(f"class folder {shown(name)} of {shown(folder)} is not among the class names given")
    files: list[str] = []
    labels: list[int] = []
    others = 0
    for raw, name in zip(folders, names, strict=True):
        for file in sorted(_files(folder, raw)):
            if Path(file).suffix.lower() in SUFFIXES:
                files.append(file)
                labels.append(order[name])
            else:
                others += 1
    if not files:
        raise DataError(f"the class folders of {shown(folder)} hold no images; accepted are {', '.join(SUFFIXES)}")
    return load_files(
        folder,
        files,
        np.array(labels, dtype=np.int64),
        given,
        options,
        reference=reference,
        source=f"folder of {len(folders)} class folders",
        left_out=f", {others + loose} other files left out" if others + loose else "",
    )


def _class_folders(folder: Path) -> tuple[list[str], int]:
    """The names of the class folders, sorted, and the number of files beside them."""
    try:
        with os.scandir(folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
        above = {_identity(parent) for parent in (folder.resolve(), *folder.resolve().parents)}
        folders = [entry.name for entry in visible if entry.is_dir() and _identity(Path(entry.path)) not in above]
    except OSError as error:
        raise refused(folder, error) from None
    if not visible:
        raise DataError(f"folder {shown(folder)} is empty; it should hold one folder of images per class")
    if not folders:
        raise DataError(f"folder {shown(folder)} holds no class folders; put the images of each class into a folder with its name")
    if all(name.lower() in _SPLITS for name in folders):
        raise DataError(
            f"folder {shown(folder)} holds parts, not classes; give one of them, for example {shown(folder / folders[0])}"
        )
    return sorted(folders), sum(not entry.is_dir() for entry in visible)


def _files(folder: Path, class_folder: str) -> Iterator[str]:
    """Paths of all files under a class folder, relative to `folder` with forward slashes; each real folder is entered once."""
    entered: set[tuple[int, int]] = set()
    waiting = [class_folder]
    while waiting:
        relative = waiting.pop()
        try:
            identity = _identity(folder / relative)
            if identity in entered:
                continue
            entered.add(identity)
            with os.scandir(folder / relative) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    path = f"{relative}/{entry.name}"
                    if entry.is_dir():
                        waiting.append(path)
                    else:
                        yield path
        except OSError as error:
            raise refused(folder / relative, error) from None


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
