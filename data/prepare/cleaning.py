"""Drop documents in the jobs of `prepare`, and scan the corpus for what to drop.

The main process writes a folder that all workers read (data/prepare/cleaning_pass.py):

    settings.json        the settings of data/cleaning/settings.py
    test_sets/NUMBER/    the runs of words of each test set (data/cleaning/contamination.py)
    drops/JOB.npy        the copies in a job, which a scan of the whole corpus has found

Axes: D documents, C columns, S runs of words.
"""

import array
import functools
import hashlib
import io
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.cleaning.contamination import RunTable
from data.cleaning.filters import DocumentFilter
from data.cleaning.minhash import (
    RUN_WORDS,
    choose_groups,
    compute_group_keys,
    compute_signatures,
)
from data.cleaning.settings import HELD_OUT, NEAR_THRESHOLD, CleaningSettings
from data.cleaning.word_hashes import find_words, hash_runs
from data.prepare.field_values import add_value
from data.prepare.held_out import fold_text, hash_document
from data.prepare.job_report import DROP_DTYPE, NUM_HASHES, JobReport
from data.prepare.jobs import BATCH_BYTES, EMPTY_DOCUMENTS, Job, JobDocument, read_all
from data.prepare.resume import find_result_path
from data.store.atomic import write_atomically

SETTINGS_FILE = "settings.json"
NOTE = "{} (dropped)"
DROP_COLUMNS = 5  # chunk of the job, document of the chunk, reason, copied file, copied document
NOBODY = (-1, -1)  # for the copied document, where a drop has no such
# Columns of a scanned document; those after them are keys of near copies.
SCAN_COLUMNS = ("chunk", "number", "hash", "copy_low", "copy_high")


class LoadedCleaning(NamedTuple):
    """What the jobs of a process share.

    Attributes:
      below: for each source, the hash below which a document is held out.
      test_sets: (number of the reason, table) of each test set.
    """

    settings: CleaningSettings
    below: tuple[int, ...]
    test_sets: list[tuple[int, RunTable]]


class ScannedJob(NamedTuple):
    """What the main process compares of a job's documents.

    Attributes:
      report: counts of the job.
      columns_CD: uint64, see SCAN_COLUMNS.
      runs_S: runs of words of the held-out documents.
      owners_S: the document of each of these runs.
    """

    report: JobReport
    columns_CD: np.ndarray
    runs_S: np.ndarray
    owners_S: np.ndarray


class JobCleaner:
    """Drops documents of one job, and lists them."""

    def __init__(self, loaded: LoadedCleaning, decisions: np.ndarray, source: int) -> None:
        """Make a cleaner.

        Args:
          decisions: int64 [N, 5], the copies in the job; see DROP_COLUMNS.
          source: number of the job's source.
        """
        self._filter = DocumentFilter(loaded.settings)
        self._reasons = [NOTE.format(reason) for reason in loaded.settings.list_reasons()]
        self._decisions = {tuple(row[:2]): tuple(row[2:]) for row in decisions.tolist()}
        self._test_sets, self._below = loaded.test_sets, loaded.below[source]
        self._words = loaded.settings.test_words
        self._fields, self._counted = loaded.settings.list_fields(), loaded.settings.count_values
        self._drops = array.array("q")

    def drop_documents(
        self, documents: Iterable[JobDocument], report: JobReport
    ) -> Iterator[JobDocument]:
        """Yield the documents that stay, in their Unicode form; count the others in `report`."""
        for document in self._drop_all(documents, report):
            if self._counted:
                values = dict(zip(self._fields, document.values))  # a text file has none
                for field in self._counted:
                    add_value(report.values, field, values.get(field), len(document.raw))
            yield document

    def _drop_all(
        self, documents: Iterable[JobDocument], report: JobReport
    ) -> Iterator[JobDocument]:
        """Yield the documents that stay."""
        documents = self._drop_by_decision(documents, report)
        if not self._test_sets or self._below == NUM_HASHES:
            yield from documents
            return
        for batch in _make_batches(documents):
            yield from self._drop_contaminated(batch, report)

    def take_drops(self) -> np.ndarray:
        """Return int64 [N, 5], the documents that were dropped since the last call."""
        rows = np.array(self._drops, DROP_DTYPE).reshape(-1, DROP_COLUMNS)
        self._drops = array.array("q")
        return rows

    def filter_documents(
        self, documents: Iterable[JobDocument], report: JobReport
    ) -> Iterator[JobDocument]:
        """Yield the documents that no filter drops, in their Unicode form."""
        for document in documents:
            raw = self._filter.normalize_text(document.raw)
            if raw is not document.raw:
                document = document._replace(raw=raw)
            if not raw:
                report.add_note(EMPTY_DOCUMENTS, document.piece, document.line)
            elif (reason := self._filter.find_reason(raw, document.values)) is not None:
                self._drop(document, report, reason)
            else:
                yield document

    def _drop_by_decision(
        self, documents: Iterable[JobDocument], report: JobReport
    ) -> Iterator[JobDocument]:
        """Yield the documents that no filter drops and that are no copies."""
        for document in self.filter_documents(documents, report):
            if decision := self._decisions.get((document.chunk, document.number)):
                self._drop(document, report, *decision)
            else:
                yield document

    def _drop_contaminated(
        self, batch: list[JobDocument], report: JobReport
    ) -> Iterator[JobDocument]:
        """Yield the documents of a batch that share no run of words with a test set.

        Held-out documents stay.
        """
        hashes_S, first_D = hash_runs(find_words([one.raw for one in batch]), self._words)
        reasons_D = np.full(len(batch), -1)
        for reason, table in reversed(self._test_sets):
            reasons_D[table.find_documents(hashes_S, first_D)] = reason
        for document, reason in zip(batch, reasons_D.tolist()):
            if reason < 0 or hash_document(document.raw) < self._below:
                yield document
            else:
                self._drop(document, report, reason)

    def _drop(
        self,
        document: JobDocument,
        report: JobReport,
        reason: int,
        *copied: int,
    ) -> None:
        """Count and list a document."""
        report.add_note(self._reasons[reason], document.piece, document.line)
        self._drops.extend([document.chunk, document.number, reason, *(copied or NOBODY)])


def open_cleaner(folder: Any, job: Job) -> JobCleaner:
    """Return what drops documents of a job, according to the folder of the main process."""
    path = folder / "drops" / f"{name_job(job)}.npy"
    decisions = np.zeros((0, DROP_COLUMNS), DROP_DTYPE)
    if path.exists():
        decisions = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    text = (folder / SETTINGS_FILE).read_text()
    return JobCleaner(_load_once(folder, text), decisions, job.source)


def name_job(job: Job) -> str:
    """Return a name for a job that depends on its documents alone; its index differs by pass."""
    first = f"{job.chunks[0].file_format}\n{job.chunks[0].path}\n{job.chunks[0].start}"
    digest = hashlib.sha256(first.encode(errors="surrogateescape")).hexdigest()[:24]
    return f"{job.source}-{digest}"


def scan_job(job: Job, cleaning: Any) -> ScannedJob:
    """Return what has to be known of a job's documents to find copies and a held-out part."""
    text = (cleaning / SETTINGS_FILE).read_text()
    loaded = _load_once(cleaning, text)
    saved = find_result_path(job.chunks, f"scan {loaded.below[job.source]}")
    if saved is not None and saved.exists():
        with np.load(io.BytesIO(saved.read_bytes()), allow_pickle=False) as arrays:
            report = JobReport.from_json(arrays["report"].tobytes())
            return ScannedJob(report, *(arrays[name] for name in ScannedJob._fields[1:]))
    scanned = _scan_documents(job, loaded)
    if saved is not None:
        report = np.frombuffer(scanned.report.to_json().encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, **{**scanned._asdict(), "report": report})
        write_atomically(saved, file.getvalue())
    return scanned


def _scan_documents(job: Job, loaded: LoadedCleaning) -> ScannedJob:
    """Read and scan the documents of a job."""
    report = JobReport()
    nothing = np.zeros((0, DROP_COLUMNS), DROP_DTYPE)
    cleaner = JobCleaner(loaded, nothing, job.source)
    columns, runs, owners, count = [], [], [], 0
    for batch in _make_batches(cleaner.filter_documents(read_all(job, report), report)):
        columns_CD, runs_S, owners_S = _scan_batch(batch, loaded, loaded.below[job.source])
        columns.append(columns_CD)
        runs.append(runs_S)
        owners.append(owners_S + count)
        count += len(batch)
    width = len(SCAN_COLUMNS) + count_groups(loaded.settings)
    return ScannedJob(
        report,
        np.concatenate([np.zeros((width, 0), np.uint64), *columns], axis=1),
        np.concatenate([np.zeros(0, np.uint64), *runs]),
        np.concatenate([np.zeros(0, np.int64), *owners]),
    )


def count_groups(settings: CleaningSettings) -> int:
    """Return the number of keys of near copies that a document has."""
    if settings.drop_duplicates != "near":
        return 0
    return choose_groups(settings.near_threshold or NEAR_THRESHOLD)[0]


def _scan_batch(
    batch: Sequence[JobDocument], loaded: LoadedCleaning, below: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the columns of some documents, and the runs of the held-out ones with their owners."""
    settings = loaded.settings
    hashes = np.array([hash_document(one.raw) for one in batch], np.uint64)
    digests = b"".join(
        hashlib.blake2b(fold_text(one.raw) or one.raw, digest_size=16).digest() for one in batch
    )
    columns = [
        np.array([one.chunk for one in batch], np.uint64),
        np.array([one.number for one in batch], np.uint64),
        hashes,
        *np.frombuffer(digests, "<u8").reshape(-1, 2).T,
    ]
    is_heldout = hashes < np.uint64(below) if below < NUM_HASHES else np.ones(len(batch), bool)
    needs_runs = HELD_OUT in settings.decontaminate and bool(is_heldout.any())
    runs_S, owners_S = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    if settings.drop_duplicates == "near" or needs_runs:
        words = find_words([one.raw for one in batch])
        if settings.drop_duplicates == "near":
            near_S, first_D = hash_runs(words, RUN_WORDS)
            _separate_wordless(near_S, first_D, words.first_D, hashes)
            groups, size = choose_groups(settings.near_threshold or NEAR_THRESHOLD)
            columns += [*compute_group_keys(compute_signatures(near_S, first_D), groups, size).T]
        if needs_runs:
            all_S, first_D = hash_runs(words, settings.test_words)
            owner_S = np.repeat(np.arange(len(batch)), np.diff(first_D))
            wanted_S = (is_heldout & (np.diff(words.first_D) > 0))[owner_S]
            runs_S, owners_S = all_S[wanted_S], owner_S[wanted_S]
    return np.stack(columns), runs_S, owners_S


def _separate_wordless(
    hashes_S: np.ndarray, first_D: np.ndarray, words_D: np.ndarray, hashes_D: np.ndarray
) -> None:
    """Give a document without a word the hash of its text, in place: only its copies are near."""
    wordless = np.flatnonzero(np.diff(words_D) == 0)
    hashes_S[first_D[wordless]] = hashes_D[wordless]


def _make_batches(documents: Iterable[JobDocument]) -> Iterator[list[JobDocument]]:
    """Yield the documents in batches of about a megabyte."""
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += len(document.raw)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@functools.lru_cache(maxsize=1)
def _load_once(folder: pathlib.Path, text: str) -> LoadedCleaning:
    """Read settings and test sets, once in each process."""
    saved = json.loads(text)
    settings = CleaningSettings.from_description(saved["settings"])
    reasons = settings.list_reasons()
    test_sets: list[tuple[int, RunTable]] = []
    if not saved["scanned"]:
        return LoadedCleaning(settings, tuple(saved["below"]), test_sets)
    for i, name in enumerate(settings.decontaminate):
        path = folder / "test_sets" / str(i)
        if (path / "runs.npy").exists():
            number = reasons.index(settings.name_contamination(name))
            test_sets.append((number, RunTable.open(path)))
    return LoadedCleaning(settings, tuple(saved["below"]), test_sets)
