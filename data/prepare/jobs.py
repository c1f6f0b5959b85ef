"""What each process of `prepare` does: read a job's documents, and either sample them or make their ids.

A job is some pieces of one source. Its result depends on nothing but the job, so the number of processes, and whose
they are (data/prepare/local_pool.py, data/prepare/beam_pool.py), changes nothing. Memory is bounded by a batch of documents; ids go to files at
once, three for each split, lengths instead of offsets, which data/prepare/build.py joins in the order of the jobs.
"""

import collections
import ctypes
import dataclasses
import functools
import hashlib
import json
import multiprocessing
import os
import pathlib
import signal
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from data.corpus import sources
from data.corpus.sentences import JOINT, WHITE, cut, pair_spans, sentence_spans
from data.store.writer import FILES, SPLITS, token_dtype
from data.vocabulary.load import Vocabulary, load_vocabulary
from data.vocabulary.sentencepiece import BREAK

BATCH = 1 << 20  # bytes of text that are split and encoded at once
SAMPLED = 2048  # bytes; the unit of text in which a vocabulary's sample is drawn
HASHES = 1 << 64
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h

EMPTY = "empty documents"
NO_TOKEN = "documents of which the vocabulary makes no token"
ONE_SIDED = "pairs of which the vocabulary makes no token on one side"
NUL = "documents with NUL bytes (replaced by blanks)"
RESERVED = "documents with U+FDD0, which no text may hold (replaced by U+FFFD)"
CUT = "sentences cut because they were longer than 8192 bytes"
SILENT = "sentences of which the vocabulary makes no token"


@dataclasses.dataclass(frozen=True)
class Job:
    """Consecutive pieces of one source, and where their process notes its progress (an int64 a slot), if anywhere."""

    index: int
    source: int
    pieces: tuple[sources.Piece, ...]
    progress: pathlib.Path | None = None
    slot: int = 0

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


@dataclasses.dataclass
class JobReport:
    """What a job found.

    totals: documents, bytes, and when encoding sentences, tokens, unknown. noted: reason -> documents (or sentences).
    first: reason -> (path, start, line) of the first such document. least, most: of the documents' hashes.
    """

    totals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    noted: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: dict[str, tuple[str, int, int]] = dataclasses.field(default_factory=dict)
    least: int = HASHES
    most: int = -1

    def note(self, reason: str, piece: sources.Piece, line: int) -> None:
        self.noted[reason] += 1
        self.first.setdefault(reason, (piece.path, piece.start or 0, line))

    def add(self, other: "JobReport") -> None:
        self.totals += other.totals
        self.noted += other.noted
        self.first = other.first | self.first
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "JobReport":
        fields = json.loads(text)
        counted = {name: collections.Counter(fields.pop(name)) for name in ("totals", "noted")}
        first = {reason: tuple(place) for reason, place in fields.pop("first").items()}
        return cls(**counted, first=first, **fields)


def sample_job(job: Job, thresholds: Sequence[int]) -> tuple[list[tuple[int, str]], JobReport]:
    """Parts of the job's text whose hash is below the threshold of its source, with the hash; all if that is HASHES."""
    report, chosen, threshold = JobReport(), [], thresholds[job.source]
    for raw, _, _ in _documents(job, report):
        for start, end in cut(raw, 0, len(raw), SAMPLED):
            part = raw[start:end]
            if (value := text_hash(part)) < threshold:
                chosen.append((value, part.decode()))
    return chosen, report


def encode_job(
    job: Job, vocabulary: pathlib.Path, threshold: int, folder: pathlib.Path
) -> JobReport:
    """Write the ids of the job's documents to `folder`; those whose hash is below `threshold` are held out."""
    report = JobReport()
    with PartFiles(folder, job.index, token_dtype(_vocabulary(vocabulary).size)) as files:
        for part in encode_parts(job, vocabulary, threshold, report):
            files.write(*part)
    return report


def encode_parts(
    job: Job, vocabulary: pathlib.Path, threshold: int, report: JobReport
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """What PartFiles.write takes, for a batch of documents at a time; `report` is filled on the way."""
    words, batch, size = _vocabulary(vocabulary), [], 0
    pairs = job.pieces[0].pairs
    for document in _documents(job, report):
        batch.append(document)
        size += len(document[0])
        if size >= BATCH:
            yield from _encode(batch, words, threshold, report, pairs)
            batch, size = [], 0
    if batch:
        yield from _encode(batch, words, threshold, report, pairs)


def settle() -> None:
    """What a worker process does first: leave Ctrl-C to the main process, use one thread, end with the main process.

    Without the last, workers of a killed `prepare` would wait for jobs for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a worker process is settled"
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    if mallopt := getattr(
        ctypes.CDLL(None), "mallopt", None
    ):  # glibc; to give memory back and fault it in again
        mallopt(M_TRIM_THRESHOLD, 1 << 28)  # for every batch takes a twentieth of the time
        mallopt(M_MMAP_THRESHOLD, 1 << 25)


def text_hash(raw: bytes) -> int:
    """64 bits that depend on the text alone."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


def part_file(folder: pathlib.Path, job: int, split: str, file: str) -> pathlib.Path:
    """Where a job's ids or lengths of one split are."""
    return folder / f"{job}.{split}.{file}"


def _documents(job: Job, report: JobReport) -> Iterator[tuple[bytes, sources.Piece, int]]:
    """The job's documents that are not empty, cleaned, with piece and line; notes progress and the others."""
    progress, done = np.zeros(1, np.int64), 0
    if job.progress is not None:
        progress = np.asarray(np.memmap(job.progress, np.int64, mode="r+"))
    for piece in job.pieces:
        for raw, line, consumed, mended in sources.read(piece):
            if mended:
                report.note(mended, piece, line)
            raw = _clean(raw, piece, line, report)
            report.totals["documents"] += 1
            report.totals["bytes"] += len(raw)
            progress[job.slot] = done + min(max(consumed - (piece.start or 0), 0), piece.size)
            if raw:
                yield raw, piece, line
            else:
                report.note(EMPTY, piece, line)
        done += piece.size


def _clean(raw: bytes, piece: sources.Piece, line: int, report: JobReport) -> bytes:
    if b"\0" in raw:
        report.note(NUL, piece, line)
        raw = raw.replace(b"\0", b" ")
    reserved = BREAK.encode()
    if reserved[:1] in raw and reserved in raw:  # one byte is found much faster than three
        report.note(RESERVED, piece, line)
        raw = raw.replace(reserved, "\ufffd".encode())
    return raw.strip(WHITE)


def _encode(
    batch, vocabulary: Vocabulary, threshold: int, report: JobReport, pairs: bool
) -> Iterator[tuple]:
    """Split and encode a batch of documents: split, ids, tokens in each document, tokens in each sentence.

    A pair has two sentences, its sides, or is left out.
    """
    raws = [raw for raw, _, _ in batch]
    sizes = np.fromiter(map(len, raws), np.int64, len(raws))
    text, begins = JOINT.join(raws), np.cumsum(sizes + len(JOINT)) - sizes - len(JOINT)
    starts, ends, made = (pair_spans if pairs else sentence_spans)(text, begins)
    first = np.searchsorted(starts, begins)
    if (
        vocabulary.keeps_spaces and not pairs
    ):  # the blanks between two sentences belong to the second one
        inner = np.delete(np.arange(len(starts)), first)
        starts[inner] = ends[inner - 1]
    ids, lengths = vocabulary.encode_spans(text, starts, ends, first)
    documents = np.add.reduceat(lengths, first)
    hashes = np.array([text_hash(raw) for raw in raws], np.uint64)
    kept = (np.minimum if pairs else np.add).reduceat(lengths, first) > 0
    for i in np.flatnonzero(~kept):
        report.note(ONE_SIDED if pairs else NO_TOKEN, *batch[i][1:])
    for owner in np.searchsorted(begins, made, "right") - 1:
        report.note(CUT, *batch[owner][1:])
    if not pairs:
        _note_silent(batch, lengths, documents, first, report)
    report.totals += collections.Counter(
        tokens=len(ids),
        sentences=int((lengths > 0).sum()),
        kept=int(kept.sum()),
        unknown=int((ids == vocabulary.unk).sum()),
    )
    if kept.any():
        report.least = min(report.least, int(hashes[kept].min()))
        report.most = max(report.most, int(hashes[kept].max()))
    held = hashes < np.uint64(threshold) if threshold < HASHES else np.ones(len(hashes), np.bool_)
    owner = np.repeat(np.arange(len(raws)), np.diff(first, append=len(starts)))
    for split, chosen in zip(SPLITS, (~held & kept, held & kept)):
        if chosen.all():
            yield split, ids, documents, lengths[lengths > 0]
        elif chosen.any():
            mask = chosen[owner]
            yield (
                split,
                ids[np.repeat(mask, lengths)],
                documents[chosen],
                lengths[mask & (lengths > 0)],
            )


def _note_silent(batch, lengths, documents, first, report: JobReport) -> None:
    """Count sentences without a token in documents that have some."""
    silent = np.flatnonzero(lengths == 0)
    if len(silent):
        owners = np.searchsorted(first, silent, "right") - 1
        for owner in owners[documents[owners] > 0]:
            report.note(SILENT, *batch[owner][1:])


class PartFiles:
    """The files of a job, each opened when the first document arrives for it."""

    def __init__(self, folder: pathlib.Path, job: int, dtype: np.dtype):
        self._folder, self._job, self._dtype, self._open = folder, job, dtype, {}

    def write(
        self, split: str, ids: np.ndarray, documents: np.ndarray, sentences: np.ndarray
    ) -> None:
        """Append whole documents: their ids, tokens in each document, tokens in each sentence."""
        for file, array in zip(
            FILES, (ids.astype(self._dtype), documents.astype("<i8"), sentences.astype("<i8"))
        ):
            if (split, file) not in self._open:
                path = part_file(self._folder, self._job, split, file)
                self._open[split, file] = open(path, "wb")  # noqa: SIM115 - `__exit__` closes it
            self._open[split, file].write(array.data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self._open.values():
            file.close()


@functools.lru_cache(maxsize=1)
def _vocabulary(folder: pathlib.Path) -> Vocabulary:
    """Loaded once in each process."""
    return load_vocabulary(folder)
