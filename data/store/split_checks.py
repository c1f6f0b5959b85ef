"""Check the numbers of a split: its offsets against its tokens, and its labels against its classes.

The offsets locate the rows, so a wrong one would make rows of other texts, or rows without end.
Checksums do not show it: a program that changes a file can change its checksum too. The files are
read in blocks. A large store is read once, as long as its files do not change.

Axes: D documents, S sentences, T tokens.
"""

import functools
import os
import pathlib
from typing import Any

import numpy as np

from data.store.marks import check_once
from data.store.split import Split

BLOCK_NUMBERS = 1 << 20  # numbers that are checked at a time
REMEDY = "prepare it again (--overwrite)"

CHECKED_FILES = ("documents.bin", "sentences.bin", "labels.bin", "tags.bin")
FEW_NUMBERS = 1 << 18  # offsets that are checked each time, within a few milliseconds
VERSION = 1  # of the rules of `check_split`, for the results that are remembered


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
    read = {key: files[key] for one in CHECKED_FILES if (key := f"{name}/{one}") in files}
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
            _check_labels(folder / f"{name}.bin", labels, num_classes)


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
