"""The jobs of `prepare`: read the documents of a chunk of the corpus, and sample or encode them.

A job is some consecutive chunks of one source. Its result depends on the job alone, so the number
of workers, and whether they are local processes (data/prepare/local_pool.py) or workers of Apache
Beam (data/prepare/beam_pool.py), does not matter. Memory is bounded by a batch of documents. Ids
and lengths go to three files a split, which data/prepare/build.py joins in the order of the jobs.
"""

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
    WHITESPACE,
    cut_span,
)
from data.members import call_later
from data.prepare.batches import BatchDocument, encode_batch
from data.prepare.held_out import hash_text
from data.prepare.job_report import JobFiles, JobReport
from data.prepare.resume import find_report, find_sample, save_report, save_sample
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
RESERVED_CHARACTER = "documents with U+FDD0, which no text may hold (replaced by U+FFFD)"
RESERVED_MARK = RESERVED_CHARACTER.replace("FDD0", "FDD1")
RESERVED = {SENTENCE_BREAK.encode(): RESERVED_CHARACTER, HIDDEN_MARK.encode(): RESERVED_MARK}


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
# folder that `write_families` wrote -> `data.prepare.families.Families`
open_families = call_later("data.prepare.families:open_families")


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
    for raw, piece, *_ in read_documents(job, report, cleaner):
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
    families: pathlib.Path | None = None,
) -> JobReport:
    """Encode the documents of a job and write their ids to files.

    Args:
      thresholds: for each source, the hash below which a document is held out.
      cleaning: folder that says which documents are dropped, which are then listed in a file of the
        job; None: none are.
      families: folder that says which are held out together; None: copies of a text are.
    """
    if (saved := find_report(job.chunks, folder, job.index)) is not None:
        return saved
    report = JobReport()
    cleaner = None if cleaning is None else open_cleaner(cleaning, job)
    with JobFiles(
        folder, job.index, choose_token_dtype(_load_vocabulary_once(vocabulary))
    ) as files:
        for batch in encode_batches(job, vocabulary, thresholds, report, cleaner, families):
            files.write_documents(*batch)
            if cleaner is not None:
                files.write_drops(cleaner.take_drops())
        if cleaner is not None:
            files.write_drops(cleaner.take_drops())
        files.write_names(report.names)
    save_report(job.chunks, folder, job.index, report)
    return report


def encode_batches(
    job: Job,
    vocabulary: pathlib.Path,
    thresholds: Sequence[int],
    report: JobReport,
    cleaner: Any = None,
    families: pathlib.Path | None = None,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Encode the documents of a job in batches, and fill `report`.

    Args:
      cleaner: a `data.prepare.cleaning.JobCleaner`, or None.
      families: as for `encode_job`.

    Yields:
      (split, ids, tokens of each document, tokens of each sentence) of some documents.
    """
    loaded, batch, size = _load_vocabulary_once(vocabulary), [], 0
    hold = thresholds[job.source], report, None if families is None else open_families(families)
    for document in read_documents(job, report, cleaner):
        batch.append(document)
        size += len(document.raw)
        if size >= BATCH_BYTES:
            yield from encode_batch(batch, loaded, *hold)
            batch, size = [], 0
    if batch:
        yield from encode_batch(batch, loaded, *hold)


def read_documents(job: Job, report: JobReport, cleaner: Any = None) -> Iterator[BatchDocument]:
    """Yield the documents of a job that are not empty or dropped.

    They are counted in `report`, as in `read_all`.
    """
    documents = read_all(job, report)
    for document in documents if cleaner is None else cleaner.drop_documents(documents, report):
        family = document.values[-1] if document.values else None
        yield BatchDocument(document.raw, document.piece, document.line, family)


def read_all(job: Job, report: JobReport) -> Iterator[JobDocument]:
    """Yield the documents of a job that are not empty.

    Progress is recorded, and empty and repaired documents are counted in `report`.
    """
    progress, done = np.zeros(1, np.int64), 0
    if job.progress is not None:
        progress = np.asarray(np.memmap(job.progress, np.int64, mode="r+"))
    for chunk, piece in enumerate(job.chunks):
        number = 0
        for raw, line, bytes_read, repair, values, name in sources.read_chunk(piece):
            number += 1
            if name:
                report.names.append(hash_text(name))
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


@functools.lru_cache(maxsize=1)
def _load_vocabulary_once(folder: pathlib.Path) -> Vocabulary:
    """Load a vocabulary, once in each process."""
    return load_vocabulary(folder)
