"""Token stores of pictures with captions: a document is a caption's words and visual tokens.

A source is a folder with images and `captions.jsonl`, whose lines are

    {"image": "a.png", "caption": "a three left of a seven"}

`write_captioned_store` adds to the manifest

    captions   the request, and the longest document as `longest`

and to the files of each split `images.txt`, the names of its images. Each document has two
sentences: the words, and the visual tokens of the picture, which are as many in all documents.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from data.corpus.json_lines import read_json_lines
from data.corpus.untrusted import read_bounded
from data.images.captioned_vocabulary import (
    CaptionedVocabulary,
    load_captioned_vocabulary,
    make_captioned_vocabulary,
)
from data.images.codebook import Codebook, Grid, fit_centroids
from data.images.encoding import SURROGATE
from data.images.image_files import MAX_FILE_BYTES, decode_image, make_pixels, resize_and_crop
from data.images.image_store import is_held_out
from data.rows import hashing
from data.source import SPLITS
from data.store.generations import check_new_store, replace_store
from data.store.reader import SalvagedStore, Store
from data.store.writer import StoreWriter

CAPTIONS_FILE = "captions.jsonl"
MAX_CAPTION = 2_000  # characters
SAMPLE = 100_000  # patches from which the centroids are computed
PART = 256  # pictures that are encoded at a time


@dataclasses.dataclass(frozen=True)
class CaptionRequest:
    """The options of a store of pictures with captions.

    source: a folder with images and `captions.jsonl`.
    grid: the size of a picture and of its patches. The center of an image is resized to it.
    clusters: the number of visual tokens.
    held_out: the share of the pictures in the held-out split, chosen by a hash of their bytes.
    """

    source: str
    grid: Grid
    clusters: int = 256
    held_out: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ValueError(f"--held-out {self.held_out}: a share between 0 and 1")


class CaptionedImage(NamedTuple):
    """A line of `captions.jsonl`: its place for messages, the path of the image, its caption."""

    place: str
    path: pathlib.Path
    caption: str


class CaptionedStore(Store):
    """A token store of pictures with captions."""

    @functools.cached_property
    def encoding(self) -> CaptionedVocabulary:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The words and the visual tokens; raises ValueError if their files have changed."""
        encoding = load_captioned_vocabulary(self.folder)
        if encoding != self.vocabulary:
            raise ValueError(f"{self.folder}: its vocabulary has changed; prepare the store again")
        return encoding

    def verify_or_salvage(self, on_corrupt: Literal["refuse", "skip"]) -> CaptionedStore:
        """Return this store, or one without damaged documents, as `Store.verify_or_salvage`."""
        found = super().verify_or_salvage(on_corrupt)
        return found if isinstance(found, CaptionedStore) else SalvagedCaptionedStore(found)


class SalvagedCaptionedStore(CaptionedStore, SalvagedStore):
    """A store of pictures with captions without the damaged ones."""


def write_captioned_store(
    request: CaptionRequest,
    output: pathlib.Path,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> CaptionedStore:
    """Write a store of pictures with captions, and open it.

    The words and the centroids come from the training split.

    Raises:
      FileExistsError: there is something at `output`.
      FileNotFoundError: there is no `captions.jsonl`.
      ValueError: a caption is empty or has no image, an image cannot be decoded, a split is empty,
        or there are more clusters than distinct patches; the message names the line or the option.
    """
    check_new_store(output, overwrite)
    pairs = read_captions(pathlib.Path(request.source))
    report(f"reading {len(pairs):,} captions")
    splits, patches_MN = scan_images(request, pairs)
    check_splits(request, splits)
    report(f"clustering {len(patches_MN):,} patches")
    codebook = Codebook(request.grid, fit_centroids(patches_MN, request.clusters))
    captions = (pair.caption for pair, split in zip(pairs, splits) if split == "train")
    vocabulary, longest = make_captioned_vocabulary(captions, codebook), 0
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source(request.source)
        for split in SPLITS:
            own = [pair for pair, place in zip(pairs, splits) if place == split]
            for start in range(0, len(own), PART):
                added = add_pairs(writer, vocabulary, split, own[start : start + PART])
                longest = max(longest, added)
        writer.finish([1.0], captions=dataclasses.asdict(request) | {"longest": longest})
    return CaptionedStore.open(output)


def read_captions(folder: pathlib.Path) -> list[CaptionedImage]:
    """Return the lines of a folder's `captions.jsonl`."""
    file = folder / CAPTIONS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f'{file}: no such file; a line of it is {{"image": "a.png", "caption": "a text"}}'
        )
    found = []
    for place, record in read_json_lines(file):
        for key in ("image", "caption"):
            value = record.get(key)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{place}: {key} is {value!r:.80}; expected a text")
        name, caption = record["image"], record["caption"]
        if len(caption) > MAX_CAPTION:
            raise ValueError(
                f"{place}: a caption of {len(caption):,} characters; at most {MAX_CAPTION:,}"
            )
        if SURROGATE.search(caption):
            raise ValueError(f"{place}: half of a character is no text: {caption!r:.80}")
        path = pathlib.PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            raise ValueError(
                f"{place}: image {name!r:.80}; the images are in {folder} or below: give the path "
                "from there"
            )
        found.append(CaptionedImage(place, folder / path, caption))
    if not found:
        raise ValueError(f"{file}: has no captions")
    return found


def read_image(pair: CaptionedImage, grid: Grid) -> tuple[bytes, np.ndarray]:
    """Return the bytes of an image, and its pixels, uint8 [H, W, C], resized and cropped.

    Raises ValueError, which names the line and the file, if it is missing or cannot be decoded.
    """
    try:
        content = read_bounded(pair.path, MAX_FILE_BYTES)
        image = decode_image(content, grid.channels, str(pair.path))
    except FileNotFoundError:
        raise ValueError(f"{pair.place}: {pair.path}: no such image") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{pair.place}: {error}") from error
    return content, make_pixels(resize_and_crop(image, grid.size, 1.0))


def scan_images(
    request: CaptionRequest, pairs: list[CaptionedImage]
) -> tuple[list[str], np.ndarray]:
    """Return the split of each pair, and patches of a sample of the training pictures, [M, N]."""
    grid, key = request.grid, hashing.derive_keys(0)
    number = min(max(SAMPLE // grid.num_patches, 1), len(pairs))
    sampled = set(hashing.choose_subset(key, len(pairs), number)[0].tolist())
    splits, patches = [], [np.empty((0, grid.patch**2 * grid.channels), np.uint8)]
    for i, pair in enumerate(pairs):
        content, pixels = read_image(pair, grid)
        splits.append("heldout" if is_held_out(content, request.held_out) else "train")
        if i in sampled and splits[-1] == "train":
            patches.append(grid.cut_patches(pixels[None])[0])
    return splits, np.concatenate(patches)


def check_splits(request: CaptionRequest, splits: list[str]) -> None:
    """Raise ValueError unless both splits have pictures."""
    for split in SPLITS:
        if split not in splits:
            raise ValueError(
                f"of {len(splits):,} pictures of {request.source} none is in the {split} split: "
                f"take more pictures, or another share than --held-out {request.held_out:g}"
            )


def add_pairs(
    writer: StoreWriter, vocabulary: CaptionedVocabulary, split: str, pairs: list[CaptionedImage]
) -> int:
    """Append pairs to a split; return the number of tokens of the longest one."""
    grid = vocabulary.codebook.grid
    pixels = np.stack([read_image(pair, grid)[1] for pair in pairs])
    visual = vocabulary.encode_pixels(pixels)
    words = vocabulary.encode_batch([pair.caption for pair in pairs])
    for pair, ids in zip(pairs, words):
        if not ids:
            raise ValueError(f"{pair.place}: no words in the caption {pair.caption!r:.80}")
    tokens = np.concatenate([part for pair in zip(words, visual) for part in pair])
    lengths = np.array([[len(ids), grid.num_patches] for ids in words])
    writer.add_documents(split, tokens, lengths.sum(axis=1), lengths.ravel())
    writer.add_lines(split, "images.txt", [" ".join(str(pair.path).split()) for pair in pairs])
    return int(lengths.sum(axis=1).max())
