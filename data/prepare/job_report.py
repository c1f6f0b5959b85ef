"""The files of a job of `prepare`, and its counts."""

import array as arrays
import collections
import dataclasses
import json
import pathlib
from typing import IO, Any, Self

import numpy as np

from data.corpus import sources
from data.corpus.lines import find_line_number
from data.store.manifest import OFFSET_DTYPE, SPLIT_FILES

DROP_DTYPE = np.dtype("<i8")
NAME_DTYPE = np.dtype("<u8")
NAMES = ("sequences", "names")  # of the file of a job
SAME_NAMES = "sequences with a name that an earlier one has (both are used)"


def get_job_path(folder: pathlib.Path, job: int, split: str, file: str) -> pathlib.Path:
    """Return the path of a job's file of ids or lengths of one split."""
    return folder / f"{job}.{split}.{file}"


class JobFiles:
    """The files of a job; each is created when its first document is written."""

    def __init__(self, folder: pathlib.Path, job: int, dtype: np.dtype) -> None:
        self._folder, self._job, self._dtype = folder, job, dtype
        self._open: dict[tuple[str, str], IO[bytes]] = {}

    def write_documents(
        self, split: str, ids: np.ndarray, documents: np.ndarray, sentences: np.ndarray
    ) -> None:
        """Append whole documents: their ids, tokens of each document, tokens of each sentence."""
        for file, array in zip(
            SPLIT_FILES,
            (
                ids.astype(self._dtype),
                documents.astype(OFFSET_DTYPE),
                sentences.astype(OFFSET_DTYPE),
            ),
        ):
            self._get_file(split, file).write(array.data)

    def write_drops(self, rows: np.ndarray) -> None:
        """Append the rows of dropped documents, see `data.prepare.cleaning.JobCleaner`."""
        if len(rows):
            self._get_file("cleaning", "drops").write(rows.astype(DROP_DTYPE).data)

    def write_names(self, hashes: arrays.array) -> None:
        """Write the hashes of the names of the sequences of a job."""
        if hashes:
            self._get_file(*NAMES).write(np.array(hashes, NAME_DTYPE).data)

    def _get_file(self, split: str, file: str) -> IO[bytes]:
        """Return the open file of this name, made if absent."""
        if (split, file) not in self._open:
            path = get_job_path(self._folder, self._job, split, file)
            self._open[split, file] = open(path, "wb")  # noqa: SIM115 - `__exit__` closes it
        return self._open[split, file]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()


MAX_UNKNOWN = 1000  # characters that a manifest lists
NUM_HASHES = 1 << 64  # number of different hashes of a text


@dataclasses.dataclass
class JobReport:
    """Counts of a job.

    Attributes:
      totals: number of documents and bytes; after encoding, also of sentences, tokens, unknown
        tokens and documents kept.
      sizes: number of bytes and words of the documents kept, "train bytes", "heldout words", ...
      unknown: {character that the vocabulary does not know: number of times}.
      noted: {reason: number of documents or sentences that were skipped or repaired for it}.
      first: {reason: (path, start, line) of the first such document}.
      chunk_documents: number of documents of each chunk, which gives dropped ones their numbers.
      values: values of the fields that `--count-values` names, see data/prepare/field_values.py.
      names: hashes of the names of sequences, which are not part of its JSON.
    """

    totals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    sizes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    unknown: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    noted: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: dict[str, tuple[str, int, int]] = dataclasses.field(default_factory=dict)
    chunk_documents: list[int] = dataclasses.field(default_factory=list)
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    least: int = NUM_HASHES
    most: int = -1
    names: arrays.array = dataclasses.field(default_factory=lambda: arrays.array("Q"))

    def add_note(self, reason: str, piece: sources.InputChunk, line: int) -> None:
        """Count a document that was skipped or repaired."""
        self.noted[reason] += 1
        self.first.setdefault(reason, (piece.path, piece.counted_from, line))

    def add_sizes(self, split: str, texts: list[bytes]) -> None:
        """Count the bytes and words of the documents of a split."""
        self.sizes[f"{split} bytes"] += sum(map(len, texts))
        self.sizes[f"{split} words"] += sum(len(text.split()) for text in texts)

    def merge_report(self, other: "JobReport") -> None:
        """Add the counts of a later job."""
        self.totals += other.totals
        self.sizes += other.sizes
        self.unknown += other.unknown
        self.noted += other.noted
        self.first = other.first | self.first
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps({key: value for key, value in vars(self).items() if key != "names"})

    @classmethod
    def from_json(cls, text: str | bytes) -> "JobReport":
        """Return the report that `to_json` wrote."""
        fields = json.loads(text)
        names = ("totals", "sizes", "unknown", "noted")
        counted = {name: collections.Counter(fields.pop(name)) for name in names}
        first = {reason: tuple(place) for reason, place in fields.pop("first").items()}
        return cls(**counted, first=first, **fields)


class NameCounter:
    """Counts the sequences whose name another one has, after all jobs.

    A sequence takes eight bytes of memory.
    """

    def __init__(self) -> None:
        self._hashes: list[np.ndarray] = []

    def take_job(self, folder: pathlib.Path, job: int) -> None:
        """Add the names of a job, and remove their file."""
        path = get_job_path(folder, job, *NAMES)
        if path.exists():
            self._hashes.append(np.fromfile(path, NAME_DTYPE))
            path.unlink()

    def count_same(self) -> int:
        """Return how many sequences have the name of an earlier one."""
        hashes = np.concatenate([np.zeros(0, NAME_DTYPE), *self._hashes])
        return len(hashes) - len(np.unique(hashes))


def rank_characters(report: JobReport) -> dict[str, int]:
    """Return {character that the vocabulary does not know: number}, the most frequent first."""
    ranked = sorted(report.unknown.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:MAX_UNKNOWN])


def format_notes(report: JobReport, noted: collections.Counter) -> dict[str, dict[str, Any]]:
    """Return {reason: count and first place} of what was skipped or repaired."""
    places = {reason: _locate_first(*first) for reason, first in report.first.items()}
    counts = {reason: count for reason, count in (noted + report.noted).items() if count}
    return {
        reason: {"count": count} | places.get(reason, {})
        for reason, count in sorted(counts.items())
    }


def _locate_first(path: str, start: int, line: int) -> dict[str, str]:
    """Return the place of a document, or {} if its file was temporary."""
    if pathlib.PurePath(path).parts[-2:] == ("scratch", "builtin.jsonl"):
        return {}
    return {"first": f"{path}, {find_line_number(path, start, line)}"}
