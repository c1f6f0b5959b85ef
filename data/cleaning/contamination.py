"""Training documents that share a run of words with a test set (Brown et al. 2020, appendix C).

A text of fewer words is one run, so it matches a document that has these words and no others.
"""

import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from data.cleaning.word_hashes import find_words, hash_runs
from data.corpus.json_lines import parse_object, read_all_lines

BATCH_BYTES = 1 << 20
FILTER_BITS = 16  # bits of the filter for each run, about: one run in 16 passes it by chance
MIN_FILTER = 10


class RunTable:
    """A set of runs of words, in memory that processes of one machine share.

    Attributes:
      runs: uint64, ascending.
    """

    def __init__(self, runs: np.ndarray, bits: np.ndarray) -> None:
        self.runs, self._bits = runs, bits
        self._shift = np.uint64(64 - (len(bits) * 8).bit_length() + 1)

    @classmethod
    def open(cls, path: pathlib.Path) -> "RunTable":
        """Open the table that `save_runs` wrote."""
        runs, bits = (_load_array(path / name) for name in ("runs.npy", "bits.npy"))
        return cls(runs, bits)

    def find_documents(self, hashes_S: np.ndarray, first_D: np.ndarray) -> np.ndarray:
        """Return bool [D], whether a document has a run of the set; see `hash_runs`."""
        places = hashes_S >> self._shift
        bits = self._bits[places >> np.uint64(3)] >> (places & np.uint64(7)).astype(np.uint8)
        candidates = np.flatnonzero(bits & np.uint8(1))
        found = np.zeros(len(first_D) - 1, bool)
        if len(candidates) and len(self.runs):
            wanted = hashes_S[candidates]
            at = np.minimum(np.searchsorted(self.runs, wanted), len(self.runs) - 1)
            hits = candidates[self.runs[at] == wanted]
            found[np.searchsorted(first_D, hits, "right") - 1] = True
        return found


def save_runs(runs: Iterable[np.ndarray], folder: Any) -> int:
    """Write the set of these runs of words, which `RunTable` reads; return their number."""
    parts = [*runs]
    table = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.uint64)
    power = max(MIN_FILTER, (len(table) * FILTER_BITS).bit_length())
    places = table >> np.uint64(64 - power)
    bits = np.zeros(1 << power >> 3, np.uint8)
    np.bitwise_or.at(
        bits, places >> np.uint64(3), np.uint8(1) << (places & np.uint64(7)).astype(np.uint8)
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("runs.npy", table), ("bits.npy", bits)):
        (folder / name).unlink(missing_ok=True)  # a process may have an earlier one in its memory
        with (folder / name).open("wb") as file:
            np.save(file, array)
    return len(table)


def read_test_runs(path: str, size: int) -> Iterator[np.ndarray]:
    """Yield the runs of `size` words of a test set: a file of text, or of JSON lines.

    Each text in a JSON record is one text. In a file of text, runs go on to the next blank line,
    and each line of fewer words is also a text by itself.

    Raises ValueError for a file that is neither, or without a word.
    """
    read = _read_records if path.removesuffix(".gz").endswith(".jsonl") else _read_blocks
    batch, length, has_words = [], 0, False
    for text in read(path):
        batch.append(text.encode(errors="replace"))
        length += len(batch[-1])
        if length >= BATCH_BYTES:
            runs, some = hash_texts(batch, size)
            has_words = has_words or some
            yield runs
            batch, length = [], 0
    runs, some = hash_texts(batch, size)
    yield runs
    if not has_words and not some:
        raise ValueError(f"--decontaminate {path}: there is no word in it")


def hash_texts(raws: Sequence[bytes], size: int) -> tuple[np.ndarray, bool]:
    """Return the runs of words of the texts that have a word, and whether there are any."""
    words = find_words(raws)
    hashes_S, first_D = hash_runs(words, size)
    counts_D = np.diff(words.first_D)
    return hashes_S[np.repeat(counts_D > 0, np.diff(first_D))], bool(counts_D.any())


def _read_records(path: str) -> Iterator[str]:
    """Yield the texts of the JSON records of a file."""
    for place, line in read_all_lines(path):
        if line.strip():
            yield from _list_texts(parse_object(line, place))


def _list_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, str):
        yield value
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _list_texts(item)


def _read_blocks(path: str) -> Iterator[str]:
    """Yield the blocks between blank lines of a file of text, and the lines of larger blocks."""
    block: list[str] = []
    for _, line in read_all_lines(path):
        if line.strip():
            block.append(line)
            continue
        yield from _cut_block(block)
        block = []
    yield from _cut_block(block)


def _cut_block(block: list[str]) -> Iterator[str]:
    if block:
        yield "\n".join(block)
    if len(block) > 1:
        yield from block


def _load_array(path: Any) -> np.ndarray:
    """Load an array, without a copy where the file is on this machine."""
    if isinstance(path, pathlib.Path):
        return np.load(path, mmap_mode="r", allow_pickle=False)
    with path.open("rb") as file:  # of a bucket
        return np.load(file, allow_pickle=False)
