"""Skip the damaged documents of a token store (`data.on_corrupt=skip`).

Each file of ids or offsets has checksums of its blocks (data/store/writer.py), which locate damage
to 4 KiB. A damaged block of ids makes the documents with an id in it unusable. A damaged block of
offsets does so for the documents that begin, end or are split into sentences there.

New offsets without these documents are computed in memory, and ids are read around the gaps. So the
rows, windows and pairs are as in a store that never had the damaged documents. The result
depends on the bytes alone, so all hosts and restarts agree.

Axes: T tokens, D documents, S sentences, G gaps (ranges of skipped tokens).
"""

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast

import google_crc32c
import numpy as np

from data.source import SPLITS
from data.store.checksums import compute_checksum
from data.store.manifest import (
    BLOCK_BYTES,
    EXAMPLE_ENTRIES,
    OFFSET_DTYPE,
    SPLIT_FILES,
    get_checksums_name,
)
from data.store.split import Split, check_offsets

Ranges = list[tuple[int, int]]  # ascending, disjoint [start, stop)


def skip_damaged_documents(
    folder: pathlib.Path, manifest: dict[str, Any], read_split: Callable[[str], Split]
) -> tuple[dict[str, Split], dict[str, np.ndarray]]:
    """Skip the damaged documents of a store.

    Args:
      read_split: opens a split by its name.

    Returns:
      {split: the split without its damaged documents}, and {split: int64, their numbers}.

    Raises:
      ValueError: if the vocabulary is damaged, the damaged documents cannot be identified, or the
        store has fine-tuning examples.
    """
    bad = {
        name: entry
        for name, entry in manifest["files"].items()
        if compute_checksum(folder / name) != entry["crc32c"]
    }
    for name in bad:
        if name.startswith(("vocabulary/", "images/")):
            raise ValueError(
                f"{folder / name}: its bytes have changed since it was written; "
                "without it no document can be read"
            )
    if EXAMPLE_ENTRIES & manifest.keys():
        raise ValueError(
            f"{folder}: a store of fine-tuning examples has to be complete: "
            "remove it, and `finetune` makes it again"
        )
    if damaged := [name for name in bad if name.endswith("/labels.bin")]:
        raise ValueError(
            f"{folder / damaged[0]}: its bytes have changed since it was written; "
            "without it no label is known: prepare the store again"
        )
    splits, left_out = {}, {}
    for split in SPLITS:
        runs = {
            file: find_damaged_blocks(folder, f"{split}/{file}.bin", bad) for file in SPLIT_FILES
        }
        splits[split], left_out[split] = drop_damaged_documents(read_split(split), runs)
    return splits, left_out


def find_damaged_blocks(folder: pathlib.Path, name: str, bad: Collection[str]) -> Ranges:
    """Return the damaged byte ranges of a file.

    Args:
      bad: names of all damaged files.
    """
    if name not in bad:
        return []
    sums = folder / get_checksums_name(name)
    if not sums.is_file() or get_checksums_name(name) in bad:
        reason = "are damaged, too" if sums.is_file() else "are missing"
        raise ValueError(
            f"{folder / name}: its bytes have changed, and the damage cannot be located, since the "
            f"checksums of its blocks {reason}: copy it again"
        )
    expected, runs = np.fromfile(sums, "<u4"), []
    with open(folder / name, "rb") as file:
        for i, checksum in enumerate(expected.tolist()):
            if google_crc32c.value(file.read(BLOCK_BYTES)) != checksum:
                runs.append((i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES))
    return runs


def drop_damaged_documents(split: Split, runs: dict[str, Ranges]) -> tuple[Split, np.ndarray]:
    """Return a split without its damaged documents, and int64, the numbers of these.

    Args:
      runs: {file: its damaged byte ranges}.
    """
    total = len(split.tokens)
    folder = split.folder or pathlib.Path()
    starts_D, known_D, _ = _find_known_offsets(
        folder / "documents.bin", split.document_starts, runs["documents"], total
    )
    starts_S, known_S, between_S = _find_known_offsets(
        folder / "sentences.bin", split.sentence_starts, runs["sentences"], total
    )
    lost_T = merge_ranges(
        [*_bytes_to_elements(runs["tokens"], split.tokens.dtype.itemsize, total), *between_S]
    )
    # Between two known offsets is one document, or several with unknown borders.
    border = np.flatnonzero(known_D)
    low, high = starts_D[border[:-1]], starts_D[border[1:]]
    bad = _has_overlap(lost_T, low, high) | (np.diff(border) > 1)
    intact_D = np.repeat(~bad, np.diff(border))
    gaps = np.array(merge_ranges(zip(low[bad].tolist(), high[bad].tolist())), np.int64).reshape(
        -1, 2
    )
    tokens = SplicedTokens(split.tokens, gaps)
    sentences = starts_S[:-1][known_S[:-1]]
    sentences = sentences[~_has_overlap(gaps, sentences, sentences + 1)]
    num_before_D = np.concatenate([[0], np.cumsum(intact_D)])
    intact = Split(
        cast(np.ndarray, tokens),  # supports the operations that rows use
        np.concatenate([[0], np.cumsum((high - low)[~bad])]).astype(OFFSET_DTYPE),
        np.append(tokens.map_to_remaining(sentences), len(tokens)).astype(OFFSET_DTYPE),
        tuple(
            dataclasses.replace(
                source, documents=tuple(int(num_before_D[edge]) for edge in source.documents)
            )
            for source in split.sources
        ),
        labels=None if split.labels is None else np.asarray(split.labels)[intact_D],
        mapped_folder=split.mapped_folder,
    )
    return intact, np.flatnonzero(~intact_D).astype(np.int64)


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ascending disjoint ranges that cover the same numbers as the given ones."""
    merged_ranges = []
    for start, stop in sorted((start, stop) for start, stop in ranges if start < stop):
        if merged_ranges and start <= merged_ranges[-1][1]:
            merged_ranges[-1] = (merged_ranges[-1][0], max(stop, merged_ranges[-1][1]))
        else:
            merged_ranges.append((start, stop))
    return merged_ranges


def _bytes_to_elements(runs: Ranges, size: int, count: int) -> Ranges:
    """Return the ranges of elements, of `size` bytes each, that overlap ranges of bytes."""
    return merge_ranges((start // size, min(-(-stop // size), count)) for start, stop in runs)


def _find_known_offsets(
    path: pathlib.Path, starts: np.ndarray, runs: Ranges, total: int
) -> tuple[np.ndarray, np.ndarray, Ranges]:
    """Find the offsets that are not damaged; the first and the last one are always known.

    Args:
      starts: the offsets as read.
      total: number of tokens, the last offset.

    Returns:
      The offsets, each unknown one like the one before it, bool for each whether it is known, and
      the token ranges between the known neighbours of unknown offsets.

    Raises ValueError if an offset that is not damaged is wrong.
    """
    starts, known = np.array(starts), np.ones(len(starts), bool)
    for start, stop in _bytes_to_elements(runs, OFFSET_DTYPE.itemsize, len(starts)):
        known[start:stop] = False
    starts[0], starts[-1], known[[0, -1]] = 0, total, True
    starts = starts[np.maximum.accumulate(np.where(known, np.arange(len(starts)), 0))]
    check_offsets(path, starts, total)
    indices = np.flatnonzero(known)
    wide = np.diff(indices) > 1
    low, high = starts[indices[:-1][wide]], starts[indices[1:][wide]]
    return starts, known, list(zip(low.tolist(), high.tolist()))


def _has_overlap(ranges: Ranges | np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return for each [low, high) whether it overlaps one of the ascending ranges."""
    starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
    following = np.searchsorted(stops, low, side="right")
    return np.append(starts, np.iinfo(np.int64).max)[following] < high


class SplicedTokens:
    """The tokens of a split without those in gaps."""

    def __init__(self, tokens: Any, gaps: np.ndarray) -> None:
        """Initialize the array.

        Args:
          tokens: the ids, an array or another class with `take`.
          gaps: int64 [G, 2], ranges of skipped tokens, ascending and disjoint.
        """
        self.tokens, self.dtype = tokens, tokens.dtype
        self.shift = np.concatenate([[0], np.cumsum(gaps[:, 1] - gaps[:, 0])])
        self.gaps, self.cuts = gaps, gaps[:, 0] - self.shift[:-1]

    def __len__(self) -> int:
        return len(self.tokens) - int(self.shift[-1])

    def take(self, index: Any, axis: None = None, out: None = None, mode: str = "clip") -> Any:
        """Return the tokens at indices of any shape, as np.take with mode "clip"."""
        index = np.clip(index, 0, len(self) - 1)
        return np.take(
            self.tokens, index + self.shift[np.searchsorted(self.cuts, index, side="right")]
        )

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):  # not by the indices of all tokens
            return self.take(np.arange(*index.indices(len(self))))
        return self.take(np.arange(len(self))[index])

    def map_to_remaining(self, index: np.ndarray) -> np.ndarray:
        """Return the new indices of remaining tokens, given their indices in the file."""
        return index - self.shift[np.searchsorted(self.gaps[:, 0], index, side="right")]
