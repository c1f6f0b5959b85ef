"""The jobs of `prepare`: read the documents of a chunk of the corpus, and sample or encode them.

A job is some consecutive chunks of one source. Its result depends on the job alone, so the number
of workers, and whether they are local processes (data/prepare/local_pool.py) or workers of Apache
Beam (data/prepare/beam_pool.py), does not matter. Memory is bounded by a batch of documents. Ids
and lengths go to three files a split, which data/prepare/build.py joins in the order of the jobs.
"""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.corpus import sources
from data.corpus.readers import BAD_RECORDS
from data.corpus.record_texts import FIELD_SEPARATOR, NUL_BYTES
from data.corpus.sentences import (
    DOCUMENT_SEPARATOR,
    WHITESPACE,
    cut_span,
    find_pair_spans,
    find_sentence_spans,
)
from data.members import call_later
from data.prepare.articles import WITHOUT_FIELD, encode_articles
from data.prepare.held_out import hash_document, hash_text
from data.prepare.job_report import NUM_HASHES, JobFiles, JobReport
from data.prepare.resume import find_report, find_sample, save_report, save_sample
from data.source import SPLITS
from data.store.writer import choose_token_dtype
from data.vocabulary.load import Vocabulary, load_vocabulary
from data.vocabulary.released import HIDDEN_MARK
from data.vocabulary.sentencepiece import SENTENCE_BREAK

Jobs = Iterable[
    tuple[int, tuple[sources.InputChunk, ...]]
]  # (number of the source, chunks) of each job

BATCH_BYTES = 1 << 20  # bytes of text that are split and encoded at once
SAMPLE_BYTES = 2048  # bytes of a unit of text that is sampled to train a vocabulary

EMPTY_DOCUMENTS = "empty documents"
TOKENLESS_DOCUMENTS = "documents of which the vocabulary makes no token"
TOKENLESS_PAIRS = "pairs of which the vocabulary makes no token on one side"
RESERVED_CHARACTER = "documents with U+FDD0, which no text may hold (replaced by U+FFFD)"
RESERVED_MARK = RESERVED_CHARACTER.replace("FDD0", "FDD1")
RESERVED = {SENTENCE_BREAK.encode(): RESERVED_CHARACTER, HIDDEN_MARK.encode(): RESERVED_MARK}
CUT_SENTENCES = "sentences cut because they were longer than 8192 bytes"
TOKENLESS_SENTENCES = "sentences of which the vocabulary makes no token"


@dataclasses.dataclass(frozen=True)
class Job:
    """Consecutive chunks of one source.

    Attributes:
      index: number of the job.
      source: number of the source.
      progress: file of int64 in which the worker records the bytes read; None: nowhere.
      slot: index of the job's number in that file.
    """

    index: int
    source: int
    chunks: tuple[sources.InputChunk, ...]
    progress: pathlib.Path | None = None
    slot: int = 0

    @property
    def size(self) -> int:
        """Number of bytes of all chunks."""
        return sum(piece.size for piece in self.chunks)


class JobDocument(NamedTuple):
    """A document of a job, with what decides whether it is dropped.

    Attributes:
      raw: its clean text, which is not empty.
      piece: the chunk that it is in.
      line: its first line in the chunk.
      chunk: number of the chunk in the job.
      number: number of the document in the chunk, from 1; empty documents count.
      values: fields of its record, see `data.corpus.readers.RawDocument`.
    """

    raw: bytes
    piece: sources.InputChunk
    line: int
    chunk: int
    number: int
    values: tuple[str | None, ...]


# (folder of the settings and decisions of `prepare`, job) -> what drops documents of the job
open_cleaner = call_later("data.prepare.cleaning:open_cleaner")


def sample_job(
    job: Job, thresholds: Sequence[int], cleaning: pathlib.Path | None = None
) -> tuple[list[tuple[int, str]], JobReport]:
    """Sample units of text by their hashes.

    Args:
      thresholds: for each source, the hash below which a unit is sampled.
      cleaning: folder that says which documents are dropped; None: none are.

    Returns:
      [(hash, text)] of the sampled units, and the job's report.
    """
    report, sample, threshold = JobReport(), [], thresholds[job.source]
    if (saved := find_sample(job.chunks, threshold)) is not None:
        return saved
    cleaner = None if cleaning is None else open_cleaner(cleaning, job)
    for raw, piece, _ in read_documents(job, report, cleaner):
        if piece.article_fields:
            raw = raw.replace(FIELD_SEPARATOR, b"\n")
        for start, end in cut_span(raw, 0, len(raw), SAMPLE_BYTES):
            unit = raw[start:end]
            if (value := hash_text(unit)) < threshold:
                sample.append((value, unit.decode()))
    save_sample(job.chunks, threshold, sample, report)
    return sample, report


def encode_job(
    job: Job,
    vocabulary: pathlib.Path,
    thresholds: Sequence[int],
    folder: pathlib.Path,
    cleaning: pathlib.Path | None = None,
) -> JobReport:
    """Encode the documents of a job and write their ids to files.

    Args:
      thresholds: for each source, the hash below which a document is held out.
      cleaning: folder that says which documents are dropped, which are then listed in a file of the
        job; None: none are.
    """
    if (saved := find_report(job.chunks, folder, job.index)) is not None:
        return saved
    report = JobReport()
    cleaner = None if cleaning is None else open_cleaner(cleaning, job)
    with JobFiles(
        folder, job.index, choose_token_dtype(_load_vocabulary_once(vocabulary))
    ) as files:
        for batch in encode_batches(job, vocabulary, thresholds, report, cleaner):
            files.write_documents(*batch)
            if cleaner is not None:
                files.write_drops(cleaner.take_drops())
        if cleaner is not None:
            files.write_drops(cleaner.take_drops())
    save_report(job.chunks, folder, job.index, report)
    return report


def encode_batches(
    job: Job,
    vocabulary: pathlib.Path,
    thresholds: Sequence[int],
    report: JobReport,
    cleaner: Any = None,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Encode the documents of a job in batches, and fill `report`.

    Args:
      cleaner: a `data.prepare.cleaning.JobCleaner`, or None.

    Yields:
      (split, ids, tokens of each document, tokens of each sentence) of some documents.
    """
    loaded, batch, size = _load_vocabulary_once(vocabulary), [], 0
    threshold = thresholds[job.source]
    for document in read_documents(job, report, cleaner):
        batch.append(document)
        size += len(document[0])
        if size >= BATCH_BYTES:
            yield from encode_batch(batch, loaded, threshold, report)
            batch, size = [], 0
    if batch:
        yield from encode_batch(batch, loaded, threshold, report)


def read_documents(
    job: Job, report: JobReport, cleaner: Any = None
) -> Iterator[tuple[bytes, sources.InputChunk, int]]:
    """Yield (clean text, chunk, line) of the documents of a job that are not empty or dropped.

    They are counted in `report`, as in `read_all`.
    """
    documents = read_all(job, report)
    for document in documents if cleaner is None else cleaner.drop_documents(documents, report):
        yield document[:3]


def read_all(job: Job, report: JobReport) -> Iterator[JobDocument]:
    """Yield the documents of a job that are not empty.

    Progress is recorded, and empty and repaired documents are counted in `report`.
    """
    progress, done = np.zeros(1, np.int64), 0
    if job.progress is not None:
        progress = np.asarray(np.memmap(job.progress, np.int64, mode="r+"))
    for chunk, piece in enumerate(job.chunks):
        number = 0
        for raw, line, bytes_read, repair, values in sources.read_chunk(piece):
            number += 1
            if repair:
                report.add_note(repair, piece, line)
            raw = _clean_text(raw, piece, line, report)
            report.totals["documents"] += 1
            report.totals["bytes"] += len(raw)
            progress[job.slot] = done + min(max(bytes_read - (piece.start or 0), 0), piece.size)
            if raw:
                yield JobDocument(raw, piece, line, chunk, number, values)
            elif repair != BAD_RECORDS:  # of which a note was added
                report.add_note(EMPTY_DOCUMENTS, piece, line)
        report.chunk_documents.append(number)
        done += piece.size


def _clean_text(raw: bytes, piece: sources.InputChunk, line: int, report: JobReport) -> bytes:
    """Return a text without NUL, reserved characters and surrounding white space.

    The NULs of an article separate its fields, and remain.
    """
    fields = piece.article_fields
    if b"\0" in raw and not fields:
        report.add_note(NUL_BYTES, piece, line)
        raw = raw.replace(b"\0", b" ")
    for reserved, reason in RESERVED.items():
        if reserved[:1] in raw and reserved in raw:  # the search for one byte is much faster
            report.add_note(reason, piece, line)
            raw = raw.replace(reserved, "\ufffd".encode())
    return raw if fields else raw.strip(WHITESPACE)


def encode_batch(
    batch: list[tuple[bytes, sources.InputChunk, int]],
    vocabulary: Vocabulary,
    threshold: int,
    report: JobReport,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Encode a batch of documents; yields what `encode_batches` does.

    The sentences of a pair are its two sides; a pair with a side without tokens is skipped. Those
    of an article are its fields.
    """
    pairs, fields = batch[0][1].has_pairs, batch[0][1].article_fields
    raws = [raw for raw, _, _ in batch]
    sizes = np.fromiter(map(len, raws), np.int64, len(raws)) + len(DOCUMENT_SEPARATOR)
    text, begins = DOCUMENT_SEPARATOR.join(raws), np.cumsum(sizes) - sizes
    if fields:
        ids, lengths, first, missing_DF = encode_articles(text, begins, vocabulary, fields)
        cut_starts = np.zeros(0, np.int64)
        for i, field in np.argwhere(missing_DF):
            report.add_note(WITHOUT_FIELD.format(fields[field]), *batch[i][1:])
    else:
        ids, lengths, first, cut_starts = _encode_sentences(text, begins, vocabulary, pairs)
    documents, is_unknown = np.add.reduceat(lengths, first), ids == vocabulary.unk
    hashes = np.array([hash_document(raw) for raw in raws], np.uint64)
    has_tokens = (np.minimum if pairs else np.add).reduceat(lengths, first) > 0
    for i in np.flatnonzero(~has_tokens):
        report.add_note(TOKENLESS_PAIRS if pairs else TOKENLESS_DOCUMENTS, *batch[i][1:])
    for owner in np.searchsorted(begins, cut_starts, "right") - 1:
        report.add_note(CUT_SENTENCES, *batch[owner][1:])
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
        report.unknown += vocabulary.find_unknown_characters(raws[i].decode())
    if has_tokens.any():
        report.least = min(report.least, int(hashes[has_tokens].min()))
        report.most = max(report.most, int(hashes[has_tokens].max()))
    heldout = np.ones(len(hashes), np.bool_)
    if threshold < NUM_HASHES:
        heldout = hashes < np.uint64(threshold)
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


def _encode_sentences(
    text: bytes, begins: np.ndarray, vocabulary: Vocabulary, pairs: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Encode the sentences or sides of documents that begin at the offsets `begins`.

    Returns:
      The ids, the ids of each sentence, the first sentence of each document, and the offsets at
      which sentences are cut for their length.
    """
    starts, ends, cut_starts = (find_pair_spans if pairs else find_sentence_spans)(text, begins)
    first = np.searchsorted(starts, begins)
    if vocabulary.keeps_spaces and not pairs:
        # The spaces between two sentences belong to the second one.
        inner = np.delete(np.arange(len(starts)), first)
        starts[inner] = ends[inner - 1]
    return *vocabulary.encode_spans(text, starts, ends, first), first, cut_starts


def _note_tokenless_sentences(
    batch: list[tuple[bytes, sources.InputChunk, int]],
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
            report.add_note(TOKENLESS_SENTENCES, *batch[owner][1:])


@functools.lru_cache(maxsize=1)
def _load_vocabulary_once(folder: pathlib.Path) -> Vocabulary:
    """Load a vocabulary, once in each process."""
    return load_vocabulary(folder)
