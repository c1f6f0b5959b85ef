"""Images with their labels: folders by class, arrays, and datasets of TFDS.

FOLDER/CLASS/.../IMAGE   the class of an image is the folder below FOLDER that it is in
FILE.npz                 arrays `x` or `images`, uint8 [N, H, W] or [N, H, W, C], and `y` or
                         `labels`, whole numbers [N]; the classes are the numbers
tfds:NAME[:SPLIT]        a dataset of TFDS with the features `image` and `label`
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from data.corpus.paths import TFDS_NAME
from data.corpus.tfds_source import import_tfds, open_builder
from data.corpus.untrusted import read_bounded
from data.images.encoding import MAX_CLASSES
from data.images.image_files import ENDINGS, MAX_FILE_BYTES, MODES, encode_pixels

TFDS = "tfds:"
MAX_ARRAY_BYTES = 8 << 30  # of a file of arrays, which is read into the memory
NAMES = (("x", "y"), ("images", "labels"))  # of the arrays in a file


@dataclasses.dataclass(frozen=True)
class LabelledImage:
    """An image as a file: its name for messages, a function that reads its bytes, its class."""

    name: str
    read: Callable[[], bytes]
    label: str


@dataclasses.dataclass(frozen=True)
class ImageSource:
    """Images, and the names of their classes in order."""

    name: str
    classes: tuple[str, ...]
    images: Callable[[], Iterator[LabelledImage]]


def open_image_source(name: str) -> ImageSource:
    """Return the images of a folder, a file of arrays, or a dataset of TFDS.

    Raises:
      FileNotFoundError: there is nothing of that name.
      ValueError: a folder has no classes, or a class no images; arrays do not fit together.
    """
    if name.startswith(TFDS):
        return open_tfds(name)
    path = pathlib.Path(name)
    if path.is_dir():
        return open_class_folders(path)
    if path.suffix == ".npz" and path.is_file():
        return open_arrays(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{name}: no such folder or file; a source is FOLDER with one folder for each class, "
            f"FILE.npz, or {TFDS}NAME[:SPLIT]"
        )
    raise ValueError(f"{name}: a source is a folder, FILE.npz, or {TFDS}NAME[:SPLIT]")


def open_class_folders(root: pathlib.Path) -> ImageSource:
    """Return the images of a folder with one folder for each class.

    Hidden folders and files are left out. A class may be a link to a folder; other links are not
    followed.
    """
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and entry.name[0] != ".")
    loose = sorted(
        entry.name for entry in root.iterdir() if is_image_file(entry) and entry.name[0] != "."
    )
    if not folders or loose:
        found = f"the image {loose[0]}" if loose else "no folder"
        raise ValueError(
            f"{root}: expected one folder for each class, which has its images; there is {found}"
        )
    files = {folder.name: sorted(list_visible_images(folder)) for folder in folders}
    if empty := [name for name in files if not files[name]]:
        raise ValueError(
            f"{root / empty[0]}: a class without images ({', '.join(ENDINGS)}); remove the folder"
        )

    def read_images() -> Iterator[LabelledImage]:
        for label, paths in files.items():
            for path in paths:
                yield LabelledImage(
                    str(path), lambda path=path: read_bounded(path, MAX_FILE_BYTES), label
                )

    return ImageSource(str(root), tuple(files), read_images)


def list_visible_images(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the images below a folder that are not hidden, nor in a hidden folder."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if is_image_file(path) and not any(part.startswith(".") for part in parts):
            yield path


def is_image_file(path: pathlib.Path) -> bool:
    """Return whether a path is a file with the ending of an image, and no link."""
    return path.suffix.lower() in ENDINGS and path.is_file() and not path.is_symlink()


def open_arrays(path: pathlib.Path) -> ImageSource:
    """Return the images of a file of arrays. No code of the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if (
                size := sum(member.file_size for member in arrays.zip.infolist())
            ) > MAX_ARRAY_BYTES:
                raise ValueError(f"its arrays have {size:,} bytes; at most {MAX_ARRAY_BYTES:,}")
            names = next((pair for pair in NAMES if {*pair} <= {*arrays.files}), None)
            if names is None:
                raise ValueError(
                    f"it has {', '.join(arrays.files) or 'no arrays'}, expected x and y, or images "
                    "and labels"
                )
            pixels, labels = (arrays[name] for name in names)
    except Exception as error:
        raise ValueError(f"{path}: {error!s:.200}") from error
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or not pixels.size:
        shape = f"{pixels.dtype}{list(pixels.shape)}"
        raise ValueError(f"{path}: images are uint8 [N, H, W] or [N, H, W, C], not {shape}")
    if pixels.ndim == 4 and pixels.shape[-1] not in MODES:
        raise ValueError(
            f"{path}: images of {pixels.shape[-1]} channels; they have 1 of brightness, or 3 of "
            "red, green and blue"
        )
    if labels.shape != pixels.shape[:1] or labels.dtype.kind not in "iu" or labels.min() < 0:
        shape = f"{labels.dtype}{list(labels.shape)}"
        raise ValueError(f"{path}: labels are whole numbers from 0 for each image, not {shape}")
    if (largest := int(labels.max())) >= MAX_CLASSES:
        raise ValueError(
            f"{path}: label {largest:,}; a label is the number of a class, below {MAX_CLASSES:,}"
        )

    def read_images() -> Iterator[LabelledImage]:
        for i, (image, label) in enumerate(zip(pixels, labels.tolist())):
            yield LabelledImage(
                f"{path}, image {i}", lambda image=image: encode_pixels(image), str(label)
            )

    classes = tuple(map(str, range(largest + 1)))
    return ImageSource(str(path), classes, read_images)


def open_tfds(name: str) -> ImageSource:
    """Return the images of a dataset of TFDS, which downloads it unless it is on disk."""
    tfds, match = import_tfds(name), TFDS_NAME.fullmatch(name)
    if not match:
        raise ValueError(f"{name}: a dataset is named tfds:NAME[/CONFIG][:VERSION][:SPLIT]")
    builder, split = open_builder(match["name"]), match["split"] or "train"
    features: Any = builder.info.features or {}
    if not {"image", "label"} <= {*features}:
        raise ValueError(
            f"{name}: expected the features image and label, it has {', '.join(sorted(features))}"
        )
    if split not in builder.info.splits:
        splits = ", ".join(sorted(builder.info.splits))
        raise ValueError(f"{name}: no split {split!r}; it has {splits}")
    classes = tuple(features["label"].names)

    def read_images() -> Iterator[LabelledImage]:
        rows = builder.as_dataset(
            split=split,
            decoders={"image": tfds.decode.SkipDecoding()},
            read_config=tfds.ReadConfig(try_autocache=False, interleave_cycle_length=1),
            shuffle_files=False,
        )
        for i, row in enumerate(rows.as_numpy_iterator()):
            content, label, place = bytes(row["image"]), int(row["label"]), f"{name}, image {i}"
            if label < 0:
                raise ValueError(f"{place}: it has no label; take another split")
            yield LabelledImage(place, lambda content=content: content, classes[label])

    return ImageSource(name, classes, read_images)
