"""The arrays of one split of a token store, and the check of their numbers.

Offsets locate the rows, so a wrong one would make rows of other texts, or rows without end.
Checksums do not show it: a program that changes a file can change its checksum too. The files are
read in blocks. A large store is read once, as long as its files do not change.

Axes: D documents, S sentences, T tokens.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

from data.store.user_cache import check_once

BLOCK_NUMBERS = 1 << 20  # numbers that are checked at a time
REMEDY = "prepare it again (--overwrite)"

CHECKED_FILES = ("documents.bin", "sentences.bin", "labels.bin", "tags.bin")
FEW_NUMBERS = 1 << 18  # offsets that are checked each time, within a few milliseconds
VERSION = 1  # of the rules of `check_split`, for the results that are remembered


@dataclasses.dataclass(frozen=True)
class MixtureSource:
    """One source of the mixture of a split.

    Attributes:
      name: SOURCE of the command line.
      documents: range [start, stop) of its documents in the split.
      rate: its share of the rows; the shares of all sources sum to 1.
    """

    name: str
    documents: tuple[int, int]
    rate: float


@dataclasses.dataclass(frozen=True)
class Split:
    """The train or held-out split of a store. The arrays are read-only and memory-mapped.

    Attributes:
      tokens: uint16 or uint32 [T], the ids.
      document_starts: int64 [D + 1], offsets of the documents into the tokens; the last is T.
      sentence_starts: int64 [S + 1], offsets of the sentences into the tokens; the last is T.
      labels: float32 [D], the number of a class or a score, or [D, W], a vector; None in a store
        without labels.
      tags: float32 [S], the number of a word's tag; None in a store without tags.
      folder: folder of the split's files; data/examples/qa_store.py and text2text.py add others.
      mapped_folder: folder of the files that the arrays map (data/store/mapped.py).
      generation_lock: lock that prevents the removal of the files (data/store/generations.py).
    """

    tokens: np.ndarray
    document_starts: np.ndarray
    sentence_starts: np.ndarray
    sources: tuple[MixtureSource, ...]
    labels: np.ndarray | None = None
    tags: np.ndarray | None = None
    folder: pathlib.Path | None = None
    mapped_folder: pathlib.Path | None = None
    generation_lock: object = None


def check_split_once(
    folder: pathlib.Path, name: str, files: dict[str, Any], split: Split, num_classes: int
) -> None:
    """Check a split as `check_split`, unless it is large and its files have passed.

    Args:
      name: train or heldout.
      files: {name: entry of the manifest} of the store's files.
      num_classes: number of classes of its labels or tags; 0 for scores.
    """
    check = functools.partial(check_split, folder / name, split, num_classes)
    if len(split.document_starts) + len(split.sentence_starts) < FEW_NUMBERS:
        check()
        return
    read = {key: files[key] for file in CHECKED_FILES if (key := f"{name}/{file}") in files}
    check_once("offsets", folder, read, [VERSION, read, len(split.tokens), num_classes], check)


def check_split(folder: pathlib.Path, split: Split, num_classes: int) -> None:
    """Check the offsets and the labels of a split.

    Args:
      num_classes: number of classes of its labels or tags; 0 for scores.

    Raises:
      ValueError: if a number is wrong; the message names the file and the number.
    """
    documents, sentences = folder / "documents.bin", folder / "sentences.bin"
    check_offsets(documents, split.document_starts, len(split.tokens))
    check_offsets(sentences, split.sentence_starts, len(split.tokens))
    _check_document_starts(documents, split.document_starts, split.sentence_starts)
    for name, labels in (("labels", split.labels), ("tags", split.tags)):
        if labels is not None:
            _check_labels(folder / f"{name}.bin", labels.reshape(-1), num_classes)


def check_offsets(path: str | os.PathLike[str], starts: np.ndarray, total: int) -> None:
    """Raise ValueError unless offsets begin with 0, never decrease, and end with `total`."""
    if starts[0] != 0:
        raise ValueError(f"{path}: its first offset is {starts[0]:,}, not 0: {REMEDY}")
    if starts[-1] != total:
        raise ValueError(
            f"{path}: its last offset is {starts[-1]:,}, but the split has {total:,} tokens: "
            f"{REMEDY}"
        )
    for begin in range(0, len(starts) - 1, BLOCK_NUMBERS):
        block = np.asarray(starts[begin : begin + BLOCK_NUMBERS + 1])
        is_less = block[1:] < block[:-1]
        if is_less.any():
            i = int(is_less.argmax())
            raise ValueError(
                f"{path}: offset {begin + i + 1:,} is {block[i + 1]:,}, less than the one before "
                f"it, {block[i]:,}: {REMEDY}"
            )


def _check_document_starts(
    path: pathlib.Path, documents: np.ndarray, sentences: np.ndarray
) -> None:
    """Raise ValueError unless each document begins a sentence. Both are sound offsets."""
    for begin in range(0, len(documents), BLOCK_NUMBERS):
        block = np.asarray(documents[begin : begin + BLOCK_NUMBERS])
        low, high = np.searchsorted(sentences, block[[0, -1]])
        near = sentences[low : high + 1]
        is_other = near[np.searchsorted(near, block)] != block
        if is_other.any():
            i = int(is_other.argmax())
            raise ValueError(
                f"{path}: offset {begin + i:,} is {block[i]:,}, where no sentence of sentences.bin "
                f"begins: {REMEDY}"
            )


def _check_labels(path: pathlib.Path, labels: np.ndarray, num_classes: int) -> None:
    """Raise ValueError for a label that is not finite, or is not the number of a class."""
    for begin in range(0, len(labels), BLOCK_NUMBERS):
        block = np.asarray(labels[begin : begin + BLOCK_NUMBERS])
        is_wrong = ~np.isfinite(block)
        if num_classes:
            is_wrong |= ~((0 <= block) & (block < num_classes) & (block == np.floor(block)))
        if is_wrong.any():
            i, expected = int(is_wrong.argmax()), "a finite score"
            if num_classes:
                expected = f"a whole number below {num_classes:,}, the number of classes"
            raise ValueError(
                f"{path}: label {begin + i:,} is {block[i]:g}; expected {expected}: {REMEDY}"
            )
