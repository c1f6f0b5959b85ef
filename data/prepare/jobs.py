"""The jobs of `prepare`: read the documents of a chunk of the corpus, and sample or encode them.

A job is some consecutive chunks of one source. Its result depends on the job alone, so the number
of workers, and whether they are local processes (data/prepare/local_pool.py) or those of Apache
Beam (data/prepare/beam_pool.py), does not matter. Memory is bounded by a batch of documents. Ids
and lengths go to three files a split, which data/prepare/build.py joins in the order of the jobs.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from data.corpus import sources
from data.corpus.sentences import JOINT, WHITE, cut, pair_spans, sentence_spans
from data.prepare.job_files import JobFiles
from data.store.writer import SPLITS, token_dtype
from data.vocabulary.load import Vocabulary, load_vocabulary
from data.vocabulary.sentencepiece import BREAK

Jobs = Iterable[tuple[int, tuple[sources.Piece, ...]]]  # (number of the source, chunks) of each job

BATCH = 1 << 20  # bytes of text that are split and encoded at once
SAMPLED = 2048  # bytes of a unit of text that is sampled to train a vocabulary
HASHES = 1 << 64  # number of different hashes of a text

EMPTY = "empty documents"
NO_TOKEN = "documents of which the vocabulary makes no token"
ONE_SIDED = "pairs of which the vocabulary makes no token on one side"
NUL = "documents with NUL bytes (replaced by blanks)"
RESERVED = "documents with U+FDD0, which no text may hold (replaced by U+FFFD)"
CUT = "sentences cut because they were longer than 8192 bytes"
SILENT = "sentences of which the vocabulary makes no token"


@dataclasses.dataclass(frozen=True)
class Job:
    """Consecutive chunks of one source.

    Attributes:
      index: number of the job.
      source: number of the source.
      pieces: the chunks.
      progress: file of int64 in which the worker records the bytes read; None: nowhere.
      slot: index of the job's number in that file.
    """

    index: int
    source: int
    pieces: tuple[sources.Piece, ...]
    progress: pathlib.Path | None = None
    slot: int = 0

    @property
    def size(self) -> int:
        """Number of bytes of all chunks."""
        return sum(piece.size for piece in self.pieces)


@dataclasses.dataclass
class JobReport:
    """Counts of a job.

    Attributes:
      totals: number of documents and bytes; after encoding, also of sentences, tokens, unknown
        tokens and documents kept.
      noted: {reason: number of documents or sentences that were skipped or repaired for it}.
      first: {reason: (path, start, line) of the first such document}.
      least: the lowest hash of a document.
      most: the highest hash of a document.
    """

    totals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    noted: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: dict[str, tuple[str, int, int]] = dataclasses.field(default_factory=dict)
    least: int = HASHES
    most: int = -1

    def note(self, reason: str, piece: sources.Piece, line: int) -> None:
        """Count a document that was skipped or repaired."""
        self.noted[reason] += 1
        self.first.setdefault(reason, (piece.path, piece.start or 0, line))

    def add(self, other: "JobReport") -> None:
        """Add the counts of a later job."""
        self.totals += other.totals
        self.noted += other.noted
        self.first = other.first | self.first
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "JobReport":
        """Return the report that `to_json` wrote."""
        fields = json.loads(text)
        counted = {name: collections.Counter(fields.pop(name)) for name in ("totals", "noted")}
        first = {reason: tuple(place) for reason, place in fields.pop("first").items()}
        return cls(**counted, first=first, **fields)


def sample_job(job: Job, thresholds: Sequence[int]) -> tuple[list[tuple[int, str]], JobReport]:
    """Sample units of text by their hashes.

    Args:
      job: the job.
      thresholds: for each source, the hash below which a unit is sampled.

    Returns:
      [(hash, text)] of the sampled units, and the job's report.
    """
    report, sample, threshold = JobReport(), [], thresholds[job.source]
    for raw, _, _ in _documents(job, report):
        for start, end in cut(raw, 0, len(raw), SAMPLED):
            unit = raw[start:end]
            if (value := text_hash(unit)) < threshold:
                sample.append((value, unit.decode()))
    return sample, report


def encode_job(
    job: Job, vocabulary: pathlib.Path, threshold: int, folder: pathlib.Path
) -> JobReport:
    """Encode the documents of a job and write their ids to files.

    Args:
      job: the job.
      vocabulary: folder of a saved vocabulary.
      threshold: hash below which a document is held out.
      folder: where the files are written.
    """
    report = JobReport()
    with JobFiles(folder, job.index, token_dtype(_vocabulary(vocabulary).size)) as files:
        for batch in encode_parts(job, vocabulary, threshold, report):
            files.write_documents(*batch)
    return report


def encode_parts(
    job: Job, vocabulary: pathlib.Path, threshold: int, report: JobReport
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Encode the documents of a job in batches, and fill `report`.

    Yields:
      (split, ids, tokens of each document, tokens of each sentence) of some documents.
    """
    loaded, batch, size = _vocabulary(vocabulary), [], 0
    has_pairs = job.pieces[0].pairs
    for document in _documents(job, report):
        batch.append(document)
        size += len(document[0])
        if size >= BATCH:
            yield from _encode(batch, loaded, threshold, report, has_pairs)
            batch, size = [], 0
    if batch:
        yield from _encode(batch, loaded, threshold, report, has_pairs)


def text_hash(raw: bytes) -> int:
    """Return a hash of 64 bits, the same on any machine."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


def _documents(job: Job, report: JobReport) -> Iterator[tuple[bytes, sources.Piece, int]]:
    """Yield (clean text, chunk, line) of the documents of a job that are not empty.

    Progress is recorded, and empty and repaired documents are counted in `report`.
    """
    progress, done = np.zeros(1, np.int64), 0
    if job.progress is not None:
        progress = np.asarray(np.memmap(job.progress, np.int64, mode="r+"))
    for piece in job.pieces:
        for raw, line, bytes_read, repair in sources.read(piece):
            if repair:
                report.note(repair, piece, line)
            raw = _clean(raw, piece, line, report)
            report.totals["documents"] += 1
            report.totals["bytes"] += len(raw)
            progress[job.slot] = done + min(max(bytes_read - (piece.start or 0), 0), piece.size)
            if raw:
                yield raw, piece, line
            else:
                report.note(EMPTY, piece, line)
        done += piece.size


def _clean(raw: bytes, piece: sources.Piece, line: int, report: JobReport) -> bytes:
    """Return a text without NUL, the sentence break and surrounding white space."""
    if b"\0" in raw:
        report.note(NUL, piece, line)
        raw = raw.replace(b"\0", b" ")
    reserved = BREAK.encode()
    if reserved[:1] in raw and reserved in raw:  # the search for one byte is much faster
        report.note(RESERVED, piece, line)
        raw = raw.replace(reserved, "\ufffd".encode())
    return raw.strip(WHITE)


def _encode(
    batch: list[tuple[bytes, sources.Piece, int]],
    vocabulary: Vocabulary,
    threshold: int,
    report: JobReport,
    pairs: bool,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Encode a batch of documents; yields what `encode_parts` does.

    The sentences of a pair are its two sides; a pair with a side without tokens is skipped.
    """
    raws = [raw for raw, _, _ in batch]
    sizes = np.fromiter(map(len, raws), np.int64, len(raws))
    text, begins = JOINT.join(raws), np.cumsum(sizes + len(JOINT)) - sizes - len(JOINT)
    starts, ends, cut_starts = (pair_spans if pairs else sentence_spans)(text, begins)
    first = np.searchsorted(starts, begins)
    if vocabulary.keeps_spaces and not pairs:
        # The spaces between two sentences belong to the second one.
        inner = np.delete(np.arange(len(starts)), first)
        starts[inner] = ends[inner - 1]
    ids, lengths = vocabulary.encode_spans(text, starts, ends, first)
    documents = np.add.reduceat(lengths, first)
    hashes = np.array([text_hash(raw) for raw in raws], np.uint64)
    has_tokens = (np.minimum if pairs else np.add).reduceat(lengths, first) > 0
    for i in np.flatnonzero(~has_tokens):
        report.note(ONE_SIDED if pairs else NO_TOKEN, *batch[i][1:])
    for owner in np.searchsorted(begins, cut_starts, "right") - 1:
        report.note(CUT, *batch[owner][1:])
    if not pairs:
        _note_silent(batch, lengths, documents, first, report)
    report.totals += collections.Counter(
        {
            "tokens": len(ids),
            "sentences": int((lengths > 0).sum()),
            "kept": int(has_tokens.sum()),
            "unknown": int((ids == vocabulary.unk).sum()),
        }
    )
    if has_tokens.any():
        report.least = min(report.least, int(hashes[has_tokens].min()))
        report.most = max(report.most, int(hashes[has_tokens].max()))
    heldout = np.ones(len(hashes), np.bool_)
    if threshold < HASHES:
        heldout = hashes < np.uint64(threshold)
    owner = np.repeat(np.arange(len(raws)), np.diff(first, append=len(starts)))
    for split, in_split in zip(SPLITS, (~heldout & has_tokens, heldout & has_tokens)):
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


def _note_silent(
    batch: list[tuple[bytes, sources.Piece, int]],
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
            report.note(SILENT, *batch[owner][1:])


@functools.lru_cache(maxsize=1)
def _vocabulary(folder: pathlib.Path) -> Vocabulary:
    """Load a vocabulary, once in each process."""
    return load_vocabulary(folder)
