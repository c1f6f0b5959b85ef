"""Stores of images: a token store whose documents are the files of images, byte by byte.

`write_image_store` writes one. So images have what texts have: checksums, damage that is located,
generations, splits and mixtures. It has the classes of `ImageEncoding` instead of a vocabulary,
the label of each image in `labels.bin`, and adds to the manifest

    images   {"sources": ..., "held_out": share, "skipped": {reason: {"count", "first"}}}
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from data.corpus.paths import check_distinct
from data.images.encoding import FOLDER, ImageEncoding, load_image_encoding
from data.images.image_files import decode_image
from data.images.image_sources import ImageSource, LabelledImage, open_image_source
from data.source import SPLITS, RowSet
from data.store.generations import check_new_store, replace_store
from data.store.reader import SalvagedStore, Store
from data.store.writer import StoreWriter

NUM_BUCKETS = 1 << 32
PART_BYTES = 32 << 20  # of images that are written at once


@dataclasses.dataclass(frozen=True)
class ImageRequest:
    """The options of a store of images.

    sources: as `open_image_source` reads them.
    validation: sources of the held-out split; (): a share of the images.
    held_out: that share, chosen by a hash of an image's bytes, so that equal images are in one
      split.
    classes: the order of the classes; (): as in the sources.
    on_bad_image: "refuse" raises an error for an image that cannot be decoded; "skip" leaves it
      out, and counts it.
    """

    sources: tuple[str, ...]
    validation: tuple[str, ...] = ()
    held_out: float = 0.1
    classes: tuple[str, ...] = ()
    on_bad_image: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ValueError(f"--held-out {self.held_out}: a share between 0 and 1")
        check_distinct((*self.sources, *self.validation))


class ImageStore(Store):
    """A store of images with labels."""

    @functools.cached_property
    def encoding(self) -> ImageEncoding:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The classes of the labels; raises ValueError if their file has changed."""
        encoding = load_image_encoding(self.folder / FOLDER)
        if encoding.fingerprint != self.manifest["vocabulary"]["fingerprint"]:
            raise ValueError(
                f"{self.folder / FOLDER}: fingerprint {encoding.fingerprint}, the store was "
                f"written with {self.manifest['vocabulary']['fingerprint']}"
            )
        return encoding

    @property
    def num_classes(self) -> int:
        """The number of classes of the labels."""
        return len(self.encoding.classes)

    @property
    def vocabulary(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Raises ValueError: images have no vocabulary."""
        raise ValueError(f"{self.path} is a store of images, which has no vocabulary")

    def open_rows(self, split: str, objective: Any) -> RowSet:
        """Return the images of a split; augment training images.

        Raises:
          ValueError: the objective reads texts, or the split is empty.
        """
        if not objective.reads_images:
            raise ValueError(
                f"{self.path} is a store of images, and {type(objective).__name__} reads texts: "
                "choose an objective of images (docs/pictures.md)"
            )
        part = self.open_split(split)
        if not len(part.tokens):
            raise ValueError(f"the {split} split of {self.path} is empty: prepare more images")
        objective.check_settings()
        table, build = objective.make_image_rows(part, is_training=split == "train")
        _, build_plain = objective.make_image_rows(part, is_training=False)
        return RowSet(table, build, part.sources, split=part, build_plain=build_plain)

    def verify_or_salvage(self, on_corrupt: Literal["refuse", "skip"]) -> ImageStore:
        """Return this store, or one without the damaged images, as `Store.verify_or_salvage`."""
        found = super().verify_or_salvage(on_corrupt)
        return found if isinstance(found, ImageStore) else SalvagedImageStore(found)


class SalvagedImageStore(ImageStore, SalvagedStore):
    """A store of images without its damaged ones."""


def write_image_store(
    request: ImageRequest,
    output: pathlib.Path,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> ImageStore:
    """Write a store of images, and open it. Each image is decoded once, to know that it can be.

    Raises:
      FileExistsError: there is something at `output`.
      FileNotFoundError: a source does not exist.
      ValueError: an image cannot be decoded, a source has a class that the others lack, or a split
        has no image; the message names the file or the class.
    """
    check_new_store(output, overwrite)
    sources = [open_image_source(name) for name in request.sources]
    others = [open_image_source(name) for name in request.validation]
    encoding = ImageEncoding(merge_classes(request.classes, [*sources, *others]))
    skipped: collections.Counter[str] = collections.Counter()
    first: dict[str, str] = {}
    with replace_store(output) as folder, StoreWriter(folder, encoding) as writer:
        numbers = {name: i for i, name in enumerate(encoding.classes)}
        parts = [(source, None) for source in sources] + [(source, "heldout") for source in others]
        for source, fixed in parts:
            if fixed is None:
                writer.begin_source(source.name)
            report(f"reading {source.name}")
            images = read_sound_images(source, request.on_bad_image, skipped, first)
            choose = functools.partial(choose_split, request, fixed)
            count = add_images(writer, images, numbers, choose)
            report(f"{source.name}: {count:,} images of {len(source.classes):,} classes")
        check_splits(writer, request)
        counts = [np.diff(entry["train"]["documents"])[0] for entry in writer.sources]
        writer.finish(
            [float(count / sum(counts)) for count in counts],
            images={
                "sources": request.sources,
                "validation": request.validation,
                "held_out": 0.0 if request.validation else request.held_out,
                "skipped": {
                    key: {"count": skipped[key], "first": first[key]} for key in sorted(skipped)
                },
            },
        )
    return ImageStore.open(output)


def merge_classes(given: tuple[str, ...], sources: list[ImageSource]) -> tuple[str, ...]:
    """Return the given classes, or the classes of the first source.

    Raises ValueError if a source has another class.
    """
    classes = given or sources[0].classes
    for source in sources:
        if unknown := [name for name in source.classes if name not in classes]:
            origin = "--classes has" if given else f"{sources[0].name} has"
            raise ValueError(
                f"{source.name} has images of the class {unknown[0]!r}, which {origin} not"
            )
    return classes


def read_sound_images(
    source: ImageSource, on_bad_image: str, skipped: collections.Counter[str], first: dict[str, str]
) -> Iterator[tuple[bytes, LabelledImage]]:
    """Yield (content, image) of the images that can be decoded; count the others by reason."""
    for image in source.images():
        try:
            content = image.read()
            decode_image(content, 3, image.name)
        except (OSError, ValueError) as error:
            if on_bad_image == "refuse":
                raise ValueError(
                    f"{error}; or leave such images out with --on-bad-image skip"
                ) from error
            reason = str(error).removeprefix(f"{image.name}: ").partition(" (")[0]
            skipped[reason] += 1
            first.setdefault(reason, image.name)
            continue
        yield content, image


def choose_split(request: ImageRequest, fixed: str | None, content: bytes) -> str:
    """Return the split of an image: `fixed`, or by a hash of its bytes."""
    if fixed or request.validation:
        return fixed or "train"
    return "heldout" if is_held_out(content, request.held_out) else "train"


def is_held_out(content: bytes, share: float) -> bool:
    """Return whether an image is in the held-out split, by a hash of its bytes."""
    number = int.from_bytes(hashlib.sha256(content).digest()[:4], "little")
    return number < share * NUM_BUCKETS


def add_images(
    writer: StoreWriter,
    images: Iterator[tuple[bytes, LabelledImage]],
    numbers: dict[str, int],
    choose: Callable[[bytes], str],
) -> int:
    """Append images to the splits that `choose` names; return their number."""
    waiting: dict[str, list[tuple[bytes, LabelledImage]]] = {split: [] for split in SPLITS}
    count = size = 0

    def write() -> None:
        for split, part in waiting.items():
            if part:
                lengths = np.array([len(content) for content, _ in part])
                tokens = np.frombuffer(b"".join(content for content, _ in part), np.uint8)
                writer.add_documents(split, tokens, lengths, lengths)
                labels = np.array([numbers[image.label] for _, image in part])
                writer.add_labels(split, labels)
                names = [" ".join(image.name.split()) for _, image in part]
                writer.add_lines(split, "names.txt", names)
                part.clear()

    for content, image in images:
        waiting[choose(content)].append((content, image))
        count, size = count + 1, size + len(content)
        if size > PART_BYTES:
            write()
            size = 0
    write()
    return count


def check_splits(writer: StoreWriter, request: ImageRequest) -> None:
    """Raise ValueError unless both splits have images."""
    for split in SPLITS:
        if not writer.totals[split]["documents"]:
            count = sum(total["documents"] for total in writer.totals.values())
            raise ValueError(
                f"of {count:,} images of {', '.join(request.sources)} none is in the {split} "
                "split: take more images, --validation SOURCE, or another share than --held-out "
                f"{request.held_out:g}"
            )
