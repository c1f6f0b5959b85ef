"""What the main process of `prepare` does to clean a corpus: compare all documents, list the drops.

Copies and the held-out part are known only after the whole corpus was read, so it is read once
more, before the vocabulary is trained. For each document, temporary files have 64 bytes, and 8 for
each group of hashes (near copies: 14 groups, 176 bytes in all). While one key after the other is
compared, about 60 bytes a document are in memory, and then 150 for each document in a group.

Of a group of copies, the document with the least hash of its text stays (data/prepare/held_out.py),
so that the held-out part keeps its texts; documents of --validation go first, and equal texts are
ordered by file and place. So the result depends neither on the workers nor on the order of sources.

Axes: D documents, C columns, S runs of words.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from data.cleaning.contamination import read_test_runs, save_runs
from data.cleaning.duplicates import choose_remaining, group_documents
from data.cleaning.settings import COPY, HELD_OUT, NEAR_COPY, CleaningSettings
from data.corpus import sources
from data.prepare.cleaning import (
    DROP_COLUMNS,
    NOTE,
    SCAN_COLUMNS,
    SETTINGS_FILE,
    ScannedJob,
    count_groups,
    name_job,
)
from data.prepare.job_report import DROP_DTYPE, JobReport, get_job_path
from data.prepare.jobs import Job, Jobs
from data.store.atomic import sync_to_disk
from data.store.writer import StoreWriter

LIST_FOLDER, LIST_FILE = "dropped", "documents.jsonl"  # of a generation of the store
LINES = 10_000  # lines of the list that are in memory


@dataclasses.dataclass
class CleaningPass:
    """The cleaning of one `prepare`.

    Attributes:
      folder: what the workers read, see data/prepare/cleaning.py; perhaps in a bucket.
      work: temporary folder on this machine.
      num_training: number of the sources for training; those for validation follow.
      files: {name of a file: its number in drops}.
    """

    settings: CleaningSettings
    folder: Any
    work: pathlib.Path
    num_training: int
    files: dict[str, int] = dataclasses.field(default_factory=dict)
    _counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    _below: Sequence[int] | None = None

    def prepare_drops(self, pool: Any, jobs: Jobs, total: int, below: Sequence[int]) -> None:
        """Write what the workers need to drop documents; read the corpus if that is necessary.

        Args:
          jobs: (number of the source, chunks) of each job.
          total: bytes of all jobs.
          below: for each source, the hash below which a document is held out.
        """
        first, self._below = self._below is None, below
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_settings(below, False)
        for i, name in enumerate(self.settings.decontaminate):
            if first and name != HELD_OUT:
                runs = read_test_runs(name, self.settings.test_words)
                save_runs(runs, self.folder / "test_sets" / str(i))
        if self.settings.needs_scan:
            self._scan(pool.scan_jobs(jobs, total, self.folder))
        self._write_settings(below, True)

    def _write_settings(self, below: Sequence[int], is_scanned: bool) -> None:
        """Write the settings; a worker reads the test sets again where these have changed."""
        described = self.settings.describe()
        saved = {"settings": described, "below": list(below), "scanned": is_scanned}
        (self.folder / SETTINGS_FILE).write_text(json.dumps(saved))

    def begin_list(self, writer: StoreWriter) -> None:
        """Begin the list of dropped documents in a new store."""
        self._counts.clear()
        (writer.folder / LIST_FOLDER).mkdir()
        writer.add_lines(LIST_FOLDER, LIST_FILE, [])
        sync_to_disk(writer.folder / LIST_FOLDER)

    def list_drops(
        self, writer: StoreWriter, job: Job, documents: Sequence[int], parts: pathlib.Path
    ) -> None:
        """Add the documents that a job dropped to the list.

        Args:
          documents: number of documents of each chunk.
          parts: folder with the job's files.
        """
        files, before = self._locate_chunks(job.chunks, documents)
        path = get_job_path(parts, job.index, "cleaning", "drops")
        if path.exists():
            rows = np.fromfile(path, DROP_DTYPE).reshape(-1, DROP_COLUMNS)
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            names, reasons = [*self.files], self.settings.list_reasons()
            for i in range(0, len(rows), LINES):
                lines = []
                for chunk, number, reason, copied_file, copied in rows[i : i + LINES].tolist():
                    line = {"file": names[files[chunk]], "document": before[chunk] + number}
                    line["reason"] = reasons[reason]
                    if copied_file >= 0:
                        line["copy_of"] = {"file": names[copied_file], "document": copied}
                    lines.append(json.dumps(line))
                writer.add_lines(LIST_FOLDER, LIST_FILE, lines)
            path.unlink()

    def describe_list(self, report: JobReport) -> dict[str, Any]:
        """Return the entry of the manifest."""
        total = sum(self._count_reasons(report).values())
        return {"documents": total, "list": f"{LIST_FOLDER}/{LIST_FILE}"}

    def explain(self, report: JobReport) -> str:
        """Return why documents were dropped, with their numbers."""
        counts = self._count_reasons(report).items()
        return ", ".join(f"{count:,} {reason}" for reason, count in counts if count)

    def _count_reasons(self, report: JobReport) -> dict[str, int]:
        """Return {reason: number of documents that were dropped for it}."""
        reasons = self.settings.list_reasons()
        return {reason: report.noted[NOTE.format(reason)] for reason in reasons}

    def _locate_chunks(
        self, chunks: Sequence[sources.InputChunk], documents: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Return for each chunk the number of its file, and the documents before it in the file.

        The chunks of all jobs have to come in order.
        """
        files, before = [], []
        for chunk, count in zip(chunks, documents, strict=True):
            name = _name_file(chunk)
            files.append(self.files.setdefault(name, len(self.files)))
            before.append(self._counts[name])
            self._counts[name] += count
        return files, before

    def _scan(self, scanned: Iterable[tuple[Job, ScannedJob]]) -> None:
        """Compare all documents and write the decisions."""
        self._counts.clear()
        width = len(SCAN_COLUMNS) + count_groups(self.settings)
        jobs, starts, runs = [], [0], []
        with _ColumnFiles(self.work, 3 + width) as columns:
            for job, result in scanned:
                files, before = self._locate_chunks(job.chunks, result.report.chunk_documents)
                columns_CD = result.columns_CD.reshape(width, -1).view(np.uint64)
                chunk_D = columns_CD[0].astype(np.int64)
                number_D = columns_CD[1] + np.array(before, np.uint64)[chunk_D]
                file_D = np.array(files, np.uint64)[chunk_D]
                source_D = np.full(len(chunk_D), job.source >= self.num_training, np.uint64)
                placed_D = np.stack([source_D, file_D, number_D])
                columns.append(np.concatenate([placed_D, columns_CD]))
                runs.append((result.runs_S, result.owners_S + starts[-1]))
                jobs.append(name_job(job))
                starts.append(starts[-1] + len(chunk_D))
        remaining_D = self._decide_copies(columns, jobs, np.array(starts))
        for i, name in enumerate(self.settings.decontaminate):
            if name == HELD_OUT:
                parts = (runs_S[remaining_D[owners_S] == owners_S] for runs_S, owners_S in runs)
                save_runs(parts, self.folder / "test_sets" / str(i))
        columns.remove()

    def _decide_copies(
        self, columns: "_ColumnFiles", jobs: list[str], starts: np.ndarray
    ) -> np.ndarray:
        """Write which documents of each job are copies; return for each the document that stays.

        Args:
          jobs: names of the jobs.
          starts: the first document of each job, and the number of documents.
        """
        count = int(starts[-1])
        remaining_D = np.arange(count)
        if not self.settings.drop_duplicates:
            return remaining_D
        first = 3 + len(SCAN_COLUMNS)
        keys = ([first - 2, first - 1], *([i] for i in range(first, columns.width)))
        loaded = ([columns.read(i) for i in key] for key in keys)
        groups_D = group_documents(loaded, count)
        members = np.flatnonzero(np.bincount(groups_D, minlength=count)[groups_D] > 1)
        is_training, file, number, chunk, place, text, low, high = (
            columns.read(i)[members] for i in range(first)
        )
        is_training = 1 - is_training  # documents for validation stay
        # The numbers of files follow the order of sources; their names do not.
        order = {self.files[name]: i for i, name in enumerate(sorted(self.files))}
        rank = np.array([order[i] for i in range(len(order))], np.int64)[file.astype(np.int64)]
        ranks = (is_training, text, low, high, rank, number)
        copied = choose_remaining(groups_D[members], ranks)
        dropped = np.flatnonzero(copied != np.arange(len(copied)))
        remaining_D[members] = members[copied]
        same = (low == low[copied]) & (high == high[copied])
        reasons = self.settings.list_reasons()
        copy = reasons.index(COPY)
        near = reasons.index(NEAR_COPY) if NEAR_COPY in reasons else copy
        rows = np.stack([chunk, place, np.where(same, copy, near), file[copied], number[copied]], 1)
        rows = rows.astype(DROP_DTYPE)[dropped]
        folder = self.folder / "drops"
        folder.mkdir(exist_ok=True)
        job_D = np.searchsorted(starts, members[dropped], "right") - 1
        for job, first_row, stop in _split_runs(job_D):
            with (folder / f"{jobs[job]}.npy").open("wb") as saved:
                np.save(saved, rows[first_row:stop])
        return remaining_D


class _ColumnFiles(contextlib.AbstractContextManager):
    """Columns of 64-bit numbers in files, which can be read after the block."""

    def __init__(self, folder: pathlib.Path, width: int) -> None:
        folder.mkdir(exist_ok=True)
        self.width, self.paths = width, [folder / f"column{i}" for i in range(width)]
        self._files = [open(path, "wb") for path in self.paths]  # noqa: SIM115 - until `close`

    def append(self, rows: np.ndarray) -> None:
        """Append [columns, documents]."""
        for file, column in zip(self._files, rows, strict=True):
            file.write(np.ascontiguousarray(column, np.uint64).data)

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def read(self, column: int) -> np.ndarray:
        """Return a column."""
        return np.fromfile(self.paths[column], np.uint64)

    def remove(self) -> None:
        """Remove the files."""
        for path in self.paths:
            path.unlink()


def identify_test_sets(settings: CleaningSettings) -> list[dict[str, Any]]:
    """Return the name, size and digest of each file of a test set, as a manifest records them."""
    entries = []
    for name in settings.decontaminate:
        if name != HELD_OUT:
            with open(name, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
                entry = {"name": f"--decontaminate {name}", "bytes": file.tell(), "digest": digest}
            entries.append(entry)
    return entries


def _name_file(chunk: sources.InputChunk) -> str:
    """Return the name of a chunk's file in the list."""
    if chunk.file_format.startswith("tfds:"):
        return f"{chunk.path} {chunk.file_format}"
    if pathlib.PurePath(chunk.path).parts[-2:] == ("scratch", "builtin.jsonl"):
        return "builtin"
    return chunk.path


def _split_runs(numbers: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, stop) of each run of equal numbers."""
    if len(numbers):
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        for start, stop in zip(starts, [*starts[1:], len(numbers)]):
            yield int(numbers[start]), int(start), int(stop)
