"""What is left of a damaged token store (`data.on_corrupt=skip`): all documents but those that the damaged bytes lie in.

Each file of ids or offsets has checksums of its blocks (data/store/writer.py), so damage is known to BLOCK bytes. Where a block of ids is
damaged, the documents are lost that have an id in it; where a block of offsets is, those that begin, end or are cut into sentences there.
Offsets are counted anew without them, in memory, and ids are read past the gaps: rows, windows and pairs of the documents that are left are
those of a store that never had the others. What is lost is a function of the bytes alone, so hosts and restarts agree as long as these do.

T tokens   D documents   S sentences   G gaps: runs of lost tokens
"""

import dataclasses
import hashlib
from typing import cast

import google_crc32c
import numpy as np

from data.store.split import Split
from data.store.writer import (
    BLOCK,
    EXAMPLE_ENTRIES,
    FILES,
    OFFSETS,
    SPLITS,
    checksums_of,
    file_checksum,
)


def leave_out_damaged(folder, manifest, read_split):
    """Return ({split: what is left of it}, {split: numbers of the documents that are left out, int64}) of a store in a folder.

    read_split: name -> `Split`. Raises ValueError where it cannot be told which documents are damaged.
    """
    bad = {
        name: entry
        for name, entry in manifest["files"].items()
        if file_checksum(folder / name) != entry["crc32c"]
    }
    for name in bad:
        if name.startswith("vocabulary/"):
            raise ValueError(
                f"{folder / name}: its bytes have changed since it was written; without it no document can be read"
            )
    if EXAMPLE_ENTRIES & manifest.keys():
        raise ValueError(
            f"{folder}: a store of examples to fine-tune on is made whole or not at all: remove it, and `finetune` makes it again"
        )
    splits, left_out = {}, {}
    for split in SPLITS:
        runs = {file: damaged_blocks(folder, f"{split}/{file}.bin", bad) for file in FILES}
        splits[split], left_out[split] = without(read_split(split), runs)
    return splits, left_out


def told(store):
    """What is left out of a store, in words that are the same for the same documents."""
    left_out = getattr(store, "left_out", {})
    counts = [
        f"{len(documents):,} of {split}" for split, documents in left_out.items() if len(documents)
    ]
    if not counts:
        return "no documents"
    digest = hashlib.sha256(
        b"".join(left_out[split].tobytes() + b"|" for split in SPLITS)
    ).hexdigest()[:8]
    return f"{' and '.join(counts)} documents ({digest})"


def damaged_blocks(folder, name, bad):
    """[(lo, hi)] byte ranges of a file that are not what was written; `bad`: names of the files that are not, as a whole.

    Raises ValueError where that cannot be told.
    """
    if name not in bad:
        return []
    sums = folder / checksums_of(name)
    if not sums.exists() or checksums_of(name) in bad:
        why = "are damaged too" if sums.exists() else "were not kept when it was prepared"
        raise ValueError(
            f"{folder / name}: its bytes have changed, and which of them cannot be told, for the checksums of its blocks {why}: copy it again"
        )
    expected, runs = np.fromfile(sums, "<u4"), []
    with open(folder / name, "rb") as file:
        for i, right in enumerate(expected.tolist()):
            if google_crc32c.value(file.read(BLOCK)) != right:
                runs.append((i * BLOCK, (i + 1) * BLOCK))
    return runs


def without(split, runs):
    """(the split without its damaged documents, their numbers). runs: {file: byte ranges that are damaged}."""
    total = len(split.tokens)
    starts_D, known_D, _ = _known(split.document_starts, runs["documents"], total)
    starts_S, known_S, between_S = _known(split.sentence_starts, runs["sentences"], total)
    lost_T = merged([*_elements(runs["tokens"], split.tokens.dtype.itemsize, total), *between_S])
    border = np.flatnonzero(
        known_D
    )  # what lies between two is a document, or several whose borders are not known
    low, high = starts_D[border[:-1]], starts_D[border[1:]]
    bad = _meets(lost_T, low, high) | (np.diff(border) > 1)
    kept_D = np.repeat(~bad, np.diff(border))
    gaps = np.array(merged(zip(low[bad].tolist(), high[bad].tolist())), np.int64).reshape(-1, 2)
    tokens = Spliced(split.tokens, gaps)
    sentences = starts_S[:-1][known_S[:-1]]
    sentences = sentences[~_meets(gaps.tolist(), sentences, sentences + 1)]
    before_D = np.concatenate([[0], np.cumsum(kept_D)])
    left = Split(
        cast(np.ndarray, tokens),  # it is read as one is
        np.concatenate([[0], np.cumsum((high - low)[~bad])]).astype(OFFSETS),
        np.append(tokens.place(sentences), len(tokens)).astype(OFFSETS),
        tuple(
            dataclasses.replace(one, documents=tuple(int(before_D[edge]) for edge in one.documents))
            for one in split.sources
        ),
    )
    return left, np.flatnonzero(~kept_D).astype(np.int64)


def merged(ranges):
    """Ascending disjoint ranges [(lo, hi)] that cover the same numbers."""
    out = []
    for lo, hi in sorted((lo, hi) for lo, hi in ranges if lo < hi):
        if out and lo <= out[-1][1]:
            out[-1] = (out[-1][0], max(hi, out[-1][1]))
        else:
            out.append((lo, hi))
    return out


def _elements(runs, size, count):
    """Ranges of elements of `size` bytes that have a byte in the ranges of bytes given."""
    return merged([(lo // size, min(-(-hi // size), count)) for lo, hi in runs])


def _known(starts, runs, total):
    """(offsets, which of them are what was written, for each run of others the tokens between its neighbours). Both ends are always known."""
    starts, known = np.array(starts), np.ones(len(starts), bool)
    for lo, hi in _elements(runs, OFFSETS.itemsize, len(starts)):
        known[lo:hi] = False
    starts[0], starts[-1], known[[0, -1]] = 0, total, True
    at = np.flatnonzero(known)
    wide = np.diff(at) > 1
    return starts, known, list(zip(starts[at[:-1][wide]].tolist(), starts[at[1:][wide]].tolist()))


def _meets(ranges, low, high):
    """Whether each [low, high) has a number in common with one of the ascending ranges."""
    lo, hi = np.array(ranges, np.int64).reshape(-1, 2).T
    next_one = np.searchsorted(hi, low, side="right")
    return np.append(lo, np.iinfo(np.int64).max)[next_one] < high


class Spliced:
    """The tokens of a split as if those in the gaps [G, 2] had never been there."""

    def __init__(self, tokens, gaps):
        self.tokens, self.dtype = tokens, tokens.dtype
        self.shift = np.concatenate([[0], np.cumsum(gaps[:, 1] - gaps[:, 0])])
        self.gaps, self.cuts = gaps, gaps[:, 0] - self.shift[:-1]

    def __len__(self):
        return len(self.tokens) - int(self.shift[-1])

    def take(self, index, axis=None, out=None, mode="clip"):
        """As NumPy's; an index beyond the end reads the last token."""
        index = np.clip(index, 0, len(self) - 1)
        return np.take(
            self.tokens, index + self.shift[np.searchsorted(self.cuts, index, side="right")]
        )

    def __getitem__(self, which):
        return self.take(np.arange(len(self))[which])

    def place(self, index):
        """Where tokens that are left, given by their places in the file, stand now."""
        return index - self.shift[np.searchsorted(self.gaps[:, 0], index, side="right")]
