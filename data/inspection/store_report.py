"""What a token store holds: sources, lengths, how its vocabulary serves them, and repeated texts.

Counts are of the whole split. Sentences and phrases are counted in a sample: documents at even
distances, the first tokens of each, so the same store gives the same report and memory is bounded.

Axes: D documents, W words of the sample.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from data.prepare.fertility import list_fertility
from data.prepare.field_values import ValueCounts, merge_values, rank_values
from data.store.reader import Store
from data.store.split import Split
from data.vocabulary.base import Vocabulary

MAX_LENGTHS = 1_000_000  # documents whose lengths are read
MAX_TOKENS = 2_000_000  # of the sample
MAX_DOCUMENTS = 100_000  # of the sample
QUANTILES = (0, 5, 25, 50, 75, 95, 100)  # percent
PHRASE_WORDS = 8  # words of the shortest phrase
MAX_PHRASE = 64  # words of the longest phrase
SHOWN = 10  # sentences and phrases
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of the hash of a phrase, an odd number


def describe_store(store: Store, split: str, documents: int) -> dict[str, Any]:
    """Return a report on one split of a store, a JSON value.

    Args:
      store: a store of texts.
      split: train or heldout.
      documents: number of documents in the sample.

    Raises:
      ValueError: the split is empty, the store has no texts, or `documents` is out of range.
    """
    if not 1 <= documents <= MAX_DOCUMENTS:
        raise ValueError(f"--documents {documents}: from 1 to {MAX_DOCUMENTS:,}")
    if not isinstance(store.encoding, Vocabulary):
        raise ValueError(f"{store.path} holds no texts; `inspect CONFIG` shows its batches")
    opened, vocabulary = store.open_split(split), store.vocabulary
    if not len(opened.tokens):
        raise ValueError(f"the {split} split of {store.path} is empty; name the other --split")
    lengths = read_lengths(opened)
    sample = DocumentSample(opened, vocabulary, documents)
    return {
        "store": str(store.path),
        "split": split,
        "vocabulary": {"kind": vocabulary.kind, "size": vocabulary.size},
        "documents": len(opened.document_starts) - 1,
        "tokens": len(opened.tokens),
        "sources": list_sources(store.manifest, split),
        "values": list_values(store.manifest),
        "lengths": {
            "documents": len(lengths),
            "mean": float(lengths.mean()),
            "quantiles": {
                f"{q}%": int(np.percentile(lengths, q, method="lower")) for q in QUANTILES
            },
        },
        "sample": {"documents": len(sample.chosen_N), "tokens_of_each": sample.most},
        "sentences": [
            {"count": count, "text": text} for count, text in sample.find_frequent_sentences(SHOWN)
        ],
        "phrases": [
            {"count": count, "words": words, "text": text}
            for count, words, text in find_phrases(sample.list_words(), SHOWN)
        ],
    }


def choose_evenly(total: int, count: int) -> np.ndarray:
    """Return `count` of the numbers from 0 to total - 1, or all, at even distances, int64."""
    count = min(total, count)
    return (2 * np.arange(count, dtype=np.int64) + 1) * total // (2 * max(count, 1))


def read_lengths(split: Split) -> np.ndarray:
    """Return the tokens of each document, int64; of at most `MAX_LENGTHS`, at even distances."""
    chosen_D = choose_evenly(len(split.document_starts) - 1, MAX_LENGTHS)
    return np.asarray(split.document_starts[chosen_D + 1] - split.document_starts[chosen_D])


def list_sources(manifest: Mapping[str, Any], split: str) -> list[dict[str, Any]]:
    """Return a row for each source: its documents and tokens in a split, and its fertility.

    The three measures of fertility are of both splits, and None where a manifest lacks them.
    """
    total = max(manifest["splits"][split]["tokens"], 1)
    fertility = list_fertility(manifest)
    rows = []
    for source, row in itertools.zip_longest(manifest["sources"], fertility):
        documents, tokens = (
            stop - start for start, stop in (source[split][u] for u in ("documents", "tokens"))
        )
        rows.append(
            {
                "name": source["name"],
                "rate": source["rate"],
                "documents": documents,
                "tokens": tokens,
                "share": tokens / total,
                "tokens_per_word": row and row.tokens_per_word,
                "bytes_per_token": row and row.bytes_per_token,
                "unknown_share": row and row.unknown_share,
            }
        )
    return rows


def list_values(manifest: Mapping[str, Any]) -> dict[str, list[dict[str, Any]] | None]:
    """Return the values of the fields that `prepare --count-values` named, of all sources."""
    counts: ValueCounts = {}
    for of_source in manifest.get("values_by_source", ()):
        merge_values(counts, of_source)
    return rank_values(counts)


@dataclasses.dataclass
class DocumentSample:
    """Documents of a split at even distances, the first tokens of each.

    Attributes:
      documents: how many are asked for.
      chosen_N: int64 [N], their numbers.
      most: tokens that are read of each.
    """

    split: Split
    vocabulary: Vocabulary
    documents: int

    def __post_init__(self) -> None:
        self.chosen_N = choose_evenly(len(self.split.document_starts) - 1, self.documents)
        self.most = MAX_TOKENS // len(self.chosen_N)

    def list_spans(self) -> Iterator[tuple[int, int]]:
        """Yield the range of tokens of each document that is read."""
        for number in self.chosen_N.tolist():
            start, stop = map(int, self.split.document_starts[number : number + 2])
            yield start, min(stop, start + self.most)

    def list_words(self) -> Iterator[list[str]]:
        """Yield the words of each document, as blanks separate them."""
        for start, stop in self.list_spans():
            yield self.vocabulary.decode(self.split.tokens[start:stop].tolist()).split()

    def find_frequent_sentences(self, limit: int) -> list[tuple[int, str]]:
        """Return (count, text) of the sentences that occur more than once, the most frequent first.

        A line is a sentence, unless the text is hard-wrapped (data/corpus/sentences.py).
        """
        counts: collections.Counter[bytes] = collections.Counter()
        ends = self.split.sentence_starts
        for start, stop in self.list_spans():
            first, last = np.searchsorted(ends, (start, stop))
            tokens = np.asarray(self.split.tokens[start:stop])
            bounds = np.asarray(ends[first : last + 1]) - start
            for begin, end in itertools.pairwise(bounds[bounds <= stop - start].tolist()):
                counts[tokens[begin:end].tobytes()] += 1
        dtype = self.split.tokens.dtype
        return [
            (count, self.vocabulary.decode(np.frombuffer(ids, dtype).tolist()).strip())
            for ids, count in counts.most_common(limit)
            if count > 1
        ]


def find_phrases(
    documents: Iterable[list[str]], limit: int, length: int = PHRASE_WORDS
) -> list[tuple[int, int, str]]:
    """Return (count, words, text) of the phrases that occur more than once, most frequent first.

    A phrase has `length` words, and the words after it as far as all its places agree. No two
    phrases share a word of the sample.

    Args:
      documents: the words of each document. A phrase is within one document.
      limit: most phrases to return.
      length: words of the shortest phrase.
    """
    numbers: dict[str, int] = {}
    parts = [
        np.fromiter(
            (numbers.setdefault(word, len(numbers)) for word in words), np.int64, len(words)
        )
        for words in documents
    ]
    ids_W = np.concatenate([np.zeros(0, np.int64), *parts])
    owner_W = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    words, found, is_taken_W = list(numbers), [], np.zeros(len(ids_W), np.bool_)
    hashes = hash_windows(ids_W, owner_W, length)
    count_W = count_equal(hashes)
    repeated = np.flatnonzero(count_W > 1)
    for begin in repeated[np.lexsort((repeated, -count_W[repeated]))].tolist():
        if len(found) == limit:
            break
        if is_taken_W[begin : begin + length].any():
            continue
        places = np.flatnonzero(hashes == hashes[begin])
        size = extend_phrase(ids_W, owner_W, places, length)
        for i in range(size):
            is_taken_W[places + i] = True
        text = " ".join(words[i] for i in ids_W[begin : begin + size].tolist())
        found.append((len(places), size, text))
    return found


def hash_windows(ids_W: np.ndarray, owner_W: np.ndarray, length: int) -> np.ndarray:
    """Return a hash of the `length` words from each place on, uint64; 0 where a document ends."""
    size = max(len(ids_W) - length + 1, 0)
    mixed_W = (ids_W.astype(np.uint64) + np.uint64(1)) * FACTOR
    mixed_W ^= mixed_W >> np.uint64(29)
    hashes = np.zeros(size, np.uint64)
    for i in range(length):
        hashes = hashes * FACTOR + mixed_W[i : i + size]
    return np.where(owner_W[:size] == owner_W[length - 1 :][:size], hashes, np.uint64(0))


def count_equal(hashes: np.ndarray) -> np.ndarray:
    """Return how often each hash occurs, int64; 0 for a hash of 0."""
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return np.where(hashes == 0, 0, counts[inverse]) if len(hashes) else np.zeros(0, np.int64)


def extend_phrase(ids_W: np.ndarray, owner_W: np.ndarray, places: np.ndarray, size: int) -> int:
    """Return the words up to which all places of a phrase of `size` words agree."""
    while size < MAX_PHRASE:
        after = places + size
        if after[-1] >= len(ids_W) or (owner_W[after] != owner_W[places]).any():
            break
        if (ids_W[after] != ids_W[after[0]]).any():
            break
        size += 1
    return size
