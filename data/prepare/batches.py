"""Encode a batch of documents: ids, sentences, which split each is in, and what is noted on them.

The ids of many texts are computed at once, and then divided among the documents.
"""

import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from data.corpus import sources
from data.corpus.lines import find_line_number
from data.corpus.sentences import (
    DOCUMENT_SEPARATOR,
    find_pair_spans,
    find_sentence_spans,
    find_whole_spans,
)
from data.prepare.articles import WITHOUT_FIELD, encode_articles
from data.prepare.held_out import hash_document
from data.prepare.job_report import NUM_HASHES, JobReport
from data.source import SPLITS
from data.vocabulary.characters import format_characters
from data.vocabulary.load import Vocabulary

TOKENLESS_DOCUMENTS = "documents of which the vocabulary makes no token"
TOKENLESS_PAIRS = "pairs of which the vocabulary makes no token on one side"
CUT_SENTENCES = "sentences cut because they were longer than 8192 bytes"
TOKENLESS_SENTENCES = "sentences of which the vocabulary makes no token"


class BatchDocument(NamedTuple):
    """A document of a batch that is encoded.

    Attributes:
      raw: its clean text, which is not empty.
      piece: the chunk that it is in.
      line: its first line in the chunk.
      family: the last of its `JobDocument.values`; None: it has none.
    """

    raw: bytes
    piece: sources.InputChunk
    line: int
    family: str | None = None

    @property
    def place(self) -> tuple[sources.InputChunk, int]:
        """The arguments of a note on it."""
        return self.piece, self.line


def encode_batch(
    batch: list[BatchDocument],
    vocabulary: Vocabulary,
    threshold: int,
    report: JobReport,
    families: Any = None,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Encode a batch of documents; yields what `encode_batches` does.

    The sentences of a pair are its two sides; a pair with a side without tokens is skipped. Those
    of an article are its fields.

    Args:
      families: a `data.prepare.families.Families`; None: the text decides what is held out.
    """
    pairs, fields = batch[0].piece.has_pairs, batch[0].piece.article_fields
    raws = [document.raw for document in batch]
    sizes = np.fromiter(map(len, raws), np.int64, len(raws)) + len(DOCUMENT_SEPARATOR)
    text, begins = DOCUMENT_SEPARATOR.join(raws), np.cumsum(sizes) - sizes
    if fields:
        ids, lengths, first, missing_DF = encode_articles(text, begins, vocabulary, fields)
        cut_starts = np.zeros(0, np.int64)
        for i, field in np.argwhere(missing_DF):
            report.add_note(WITHOUT_FIELD.format(fields[field]), *batch[i].place)
    else:
        ids, lengths, first, cut_starts = _encode_sentences(text, begins, vocabulary, pairs)
    documents, is_unknown = np.add.reduceat(lengths, first), ids == vocabulary.unk
    has_tokens = (np.minimum if pairs else np.add).reduceat(lengths, first) > 0
    for i in np.flatnonzero(~has_tokens):
        report.add_note(TOKENLESS_PAIRS if pairs else TOKENLESS_DOCUMENTS, *batch[i].place)
    for owner in np.searchsorted(begins, cut_starts, "right") - 1:
        report.add_note(CUT_SENTENCES, *batch[owner].place)
    if not pairs:
        _note_tokenless_sentences(batch, lengths, documents, first, report)
    report.totals += collections.Counter(
        {
            "tokens": len(ids),
            "sentences": int((lengths > 0).sum()),
            "kept": int(has_tokens.sum()),
            "unknown": int(is_unknown.sum()),
        }
    )
    for i in np.unique(np.searchsorted(np.cumsum(documents), np.flatnonzero(is_unknown), "right")):
        report.unknown += _find_unknown(batch[i], vocabulary)
    heldout = _choose_held_out(batch, has_tokens, threshold, report, families)
    owner = np.repeat(np.arange(len(raws)), np.diff(first, append=len(lengths)))
    for split, in_split in zip(SPLITS, (~heldout & has_tokens, heldout & has_tokens)):
        report.add_sizes(split, [raws[i] for i in np.flatnonzero(in_split)])
        if in_split.all():
            yield split, ids, documents, lengths[lengths > 0]
        elif in_split.any():
            mask = in_split[owner]
            yield (
                split,
                ids[np.repeat(mask, lengths)],
                documents[in_split],
                lengths[mask & (lengths > 0)],
            )


def _choose_held_out(
    batch: list[BatchDocument],
    has_tokens: np.ndarray,
    threshold: int,
    report: JobReport,
    families: Any,
) -> np.ndarray:
    """Return whether each document is held out, bool; arguments: as for `encode_batch`."""
    if families is None:
        hashes = np.array([hash_document(document.raw) for document in batch], np.uint64)
    else:
        hashes = families.hash_documents(batch, report)
    if has_tokens.any():
        report.least = min(report.least, int(hashes[has_tokens].min()))
        report.most = max(report.most, int(hashes[has_tokens].max()))
    if threshold < NUM_HASHES:
        return hashes < np.uint64(threshold)
    return np.ones(len(hashes), np.bool_)


def _find_unknown(document: BatchDocument, vocabulary: Vocabulary) -> collections.Counter[str]:
    """Return how often each character without an id occurs; raise ValueError if that is refused."""
    unknown = vocabulary.find_unknown_characters(document.raw.decode())
    if not document.piece.refuses_unknown:
        return unknown
    line = find_line_number(document.piece.path, document.piece.counted_from, document.line)
    named = format_characters([*unknown], unknown)
    raise ValueError(
        f"{document.piece.path}, line {line}: the vocabulary has no id for {named}; correct the "
        "text, or leave --on-unknown refuse out, which counts them as unknown"
    )


def _encode_sentences(
    text: bytes, begins: np.ndarray, vocabulary: Vocabulary, pairs: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Encode the sentences or sides of documents that begin at the offsets `begins`.

    Returns:
      The ids, the ids of each sentence, the first sentence of each document, and the offsets at
      which sentences are cut for their length.
    """
    find_spans = find_sentence_spans if vocabulary.cuts_sentences else find_whole_spans
    starts, ends, cut_starts = (find_pair_spans if pairs else find_spans)(text, begins)
    first = np.searchsorted(starts, begins)
    if vocabulary.keeps_spaces and not pairs:
        # The spaces between two sentences belong to the second one.
        inner = np.delete(np.arange(len(starts)), first)
        starts[inner] = ends[inner - 1]
    return *vocabulary.encode_spans(text, starts, ends, first), first, cut_starts


def _note_tokenless_sentences(
    batch: list[BatchDocument],
    lengths: np.ndarray,
    documents: np.ndarray,
    first: np.ndarray,
    report: JobReport,
) -> None:
    """Count the sentences without tokens in documents with tokens."""
    tokenless = np.flatnonzero(lengths == 0)
    if len(tokenless):
        owners = np.searchsorted(first, tokenless, "right") - 1
        for owner in owners[documents[owners] > 0]:
            report.add_note(TOKENLESS_SENTENCES, *batch[owner].place)
