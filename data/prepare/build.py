"""Text to a token store: sample, train a vocabulary, encode on all cores, put the store in its place.

The same request on the same text gives the same bytes, whatever the number of processes and wherever they are: a crew
here (data/prepare/local_pool.py) or the workers of a runner of Apache Beam (data/prepare/beam_pool.py). Both sample and encode by the functions
of data/prepare/jobs.py; the vocabulary is trained, and the store put together, in this process. The store appears whole or
not at all: it is written beside its place (data/store/atomic.py) and renamed in the end. Memory does not grow with the text,
but for two bounds: a document is held whole, and so is the sample that a vocabulary is trained on.

A document is held out if its hash falls into the lowest `held_out` of all values: that depends on its text alone, so
copies of a document are never on both sides. If so few documents leave one side empty, the one with the lowest (or
highest) hash goes there.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator

import numpy as np

from data.corpus import builtin, sources
from data.corpus.readers import line_number
from data.prepare import jobs
from data.prepare.jobs import HASHES, JobReport
from data.prepare.local_pool import Crew, cores
from data.prepare.request import Request
from data.store import atomic, generations
from data.store.reader import Store
from data.store.writer import FILES, MANIFEST, SPLITS, StoreWriter
from data.vocabulary.load import Vocabulary, read_vocabulary, train_vocabulary

JOB = 4 << 20  # bytes of text in a job
SMALL = 2 << 20  # bytes of text below which starting processes takes longer than the work
OTHER_FILES = "files of other kinds in the folders"
INFLATED = 4  # bytes of text that a byte of a gzipped file is taken for


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A store, whether it was there before, and the seconds that encoding took."""

    store: Store
    existed: bool
    seconds: float = 0.0


def prepare(
    request: Request,
    output: str | pathlib.Path,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    job: int = JOB,
    say: Callable[[str], None] = lambda line: None,
    console=None,
    fleet: Callable | None = None,
) -> Prepared:
    """Write the store `output`, unless it is there; ValueError and OSError say what is wrong with request or text.

    workers: processes, default one a core, or none (all is done here) for little text. job: bytes of a job. say: hears of each step.
    fleet: a data.prepare.beam_pool.Runner, whose workers do what processes here would do.
    A script that calls this needs the `if __name__ == "__main__"` that spawned processes do.
    """
    request.check()
    output = generations.find_place(pathlib.Path(output).absolute())
    found = [sources.resolve(name, request.document, request.field) for name in request.sources]
    inputs = [source.identity() for source in found]
    given = None if request.vocabulary is None else read_vocabulary(request.vocabulary)
    if given:
        inputs.append({"name": "--vocabulary", "fingerprint": given.fingerprint})
    asked = json.loads(json.dumps({"request": dataclasses.asdict(request), "inputs": inputs}))
    if (there := _existing(output, asked, overwrite)) is not None:
        return Prepared(there, existed=True)
    total = sum(source.size for source in found)
    workers = _choose_workers(workers, total)
    output.parent.mkdir(parents=True, exist_ok=True)
    gather = fleet or functools.partial(Crew, workers)
    with (
        atomic.open_scratch_folder(output) as folder,
        gather(folder, console) as crew,
        contextlib.ExitStack() as stack,
    ):
        (folder / "parts").mkdir()
        noted = collections.Counter({OTHER_FILES: sum(len(source.ignored) for source in found)})
        if any(source.name == "builtin" for source in found):
            say("collecting the built-in corpus from this Python's standard library")
            noted.update(builtin.write_builtin(crew.scratch / "builtin.jsonl"))
            total += sources.length(crew.scratch / "builtin.jsonl")
        work = _Work(request, found, folder, crew, stack, job, total, say)
        vocabulary, sampled = work.vocabulary(given)
        began = time.monotonic()
        writer, report, threshold = work.encode(vocabulary)
        seconds = time.monotonic() - began
        rates = request.shares(_sizes(request, writer))
        writer.finish(
            rates,
            **asked,
            sampled_bytes=sampled,
            held_out={"below": threshold, "of": HASHES},
            totals=dict(report.totals),
            noted=_described(report, noted),
        )
        generations.publish(folder / "store", output, folder)
    return Prepared(Store.open(output), existed=False, seconds=seconds)


def _choose_workers(asked: int | None, total: int) -> int:
    """Return how many processes prepare `total` bytes; 0 stands for this one alone."""
    if asked is None:
        return cores() if total > SMALL else 0
    if asked < 1:
        raise ValueError(f"--workers {asked}: at least one")
    return asked


@dataclasses.dataclass
class _Work:
    """One run of prepare: what its passes over the text share."""

    request: Request
    found: list[sources.Found]
    folder: pathlib.Path
    crew: Crew  # or a data.prepare.beam_pool.Fleet
    stack: contextlib.ExitStack  # closes what is open in the end
    job: int
    total: int
    say: Callable[[str], None]

    def vocabulary(self, given: Vocabulary | None) -> tuple[Vocabulary, int]:
        """The vocabulary, trained if none is given, saved for the processes, and the bytes it was trained on."""
        request, vocabulary, size = self.request, given, 0
        if vocabulary is None:
            texts = self._sample()
            size = sum(len(text.encode()) for text in texts)
            self.say(
                f"training a {request.algorithm} vocabulary of {request.vocab_size:,} ids on {size:,} bytes"
            )
            vocabulary = train_vocabulary(
                texts, request.vocab_size, request.layout, request.algorithm, request.lowercase
            )
        vocabulary.save(self.crew.scratch / "vocabulary")
        return vocabulary, size

    def encode(self, vocabulary: Vocabulary) -> tuple[StoreWriter, JobReport, int]:
        """Write the store's files. Goes over the text again if the first time left one side empty."""
        threshold = round(self.request.held_out * HASHES)
        while True:
            writer, report = self._encode(vocabulary, threshold)
            kept = report.totals["kept"]
            if not kept:
                raise ValueError(
                    f"no text in {' '.join(self.request.sources)}: all {report.totals['documents']} documents are empty"
                )
            held = writer.totals["heldout"]["documents"]
            if (held or not threshold) and held < kept:
                return writer, report, threshold
            if report.least == report.most:
                raise ValueError(
                    f"the text is a single document ({kept} of the same contents), no part of which can be held out: "
                    "cut it into more documents (--document block or record), or ask for --held-out 0"
                )
            threshold = report.least + 1 if not held else report.most
            self.say("too few documents for the held-out share: taking one by its hash")

    def _sample(self) -> list[str]:
        """Parts of the text up to the sample's size, evenly from all of it, in an order that depends on them alone."""
        size = self.request.sample_size
        guesses = [max(self._guess(source), 1) for source in self.found]
        shares = self.request.shares(guesses)
        thresholds = [
            min(HASHES, int(1.5 * size * share / guess * HASHES))
            for share, guess in zip(shares, guesses)
        ]
        chosen, sizes = [[] for _ in self.found], [0] * len(self.found)
        for job, (parts, report) in self.crew.sample(self._pieces(), self.total, thresholds):
            chosen[job.source] += parts
            sizes[job.source] += report.totals["bytes"]
        shares = self.request.shares(sizes)
        within = [_smallest(parts, size * share) for parts, share in zip(chosen, shares)]
        return [text for _, text in sorted(part for parts in within for part in parts)]

    def _guess(self, source: sources.Found) -> int:
        if source.name == "builtin":
            return sources.length(self.crew.scratch / "builtin.jsonl")
        return sum(
            size * (INFLATED if path.endswith(".gz") else 1) for path, size, _ in source.files
        )

    def _encode(self, vocabulary: Vocabulary, threshold: int) -> tuple[StoreWriter, JobReport]:
        folder, parts, saved = (
            self.folder / "store",
            self.folder / "parts",
            self.crew.scratch / "vocabulary",
        )
        shutil.rmtree(folder, ignore_errors=True)
        report = JobReport()
        writer = self.stack.enter_context(StoreWriter(folder, vocabulary))
        for job, done in self.crew.encode(self._pieces(), self.total, saved, threshold, parts):
            if job.source == len(writer.sources):
                writer.begin_source(self.found[job.source].name)
            for split in SPLITS:
                files = [jobs.part_file(parts, job.index, split, file) for file in FILES]
                if files[0].exists():
                    writer.add_files(split, *files)
                    for file in files:
                        file.unlink()
            report.add(done)
        return writer, report

    def _pieces(self) -> Iterator[tuple[int, tuple[sources.Piece, ...]]]:
        for index, source in enumerate(self.found):
            group, size = [], 0
            for piece in sources.pieces(source, self.job, self.crew.scratch):
                if group and size + piece.size > self.job:
                    yield index, tuple(group)
                    group, size = [], 0
                group.append(piece)
                size += piece.size
            yield index, tuple(group)


def _existing(output: pathlib.Path, asked: dict, overwrite: bool) -> Store | None:
    """The store at `output` if it is what is asked for; None if there is none, or one to overwrite."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    if not (output / MANIFEST).exists():
        raise FileExistsError(
            f"{output} exists and is not a token store; it will not be overwritten"
        )
    if overwrite:
        return None
    store = Store.open(output)
    differ = [
        f"{key}: {there.get(key)!r} in the store, {here.get(key)!r} asked for"
        for there, here in _pairs(store.manifest, asked)
        for key in here
        if there.get(key) != here[key]
    ]
    if differ:
        raise FileExistsError(
            f"{output} is a store of something else ({'; '.join(differ)}); --overwrite replaces it"
        )
    return store


def _pairs(manifest: dict, asked: dict) -> Iterator[tuple[dict, dict]]:
    yield manifest.get("request", {}), asked["request"]
    there = {entry["name"]: entry for entry in manifest.get("inputs", ())}
    yield from ((there.get(entry["name"], {}), entry) for entry in asked["inputs"])


def _sizes(request: Request, writer: StoreWriter) -> list[int]:
    """Training tokens of each source; ValueError if one that is to be drawn has none."""
    sizes = []
    for source in writer.sources:
        train, held = (high - low for low, high in (source[split]["tokens"] for split in SPLITS))
        sizes.append(train)
        if not train and (request.rates or not held):
            where = "all of its documents are held out" if held else "there is no text in it"
            raise ValueError(f"{source['name']} has nothing to train on: {where}")
    return sizes


def _smallest(parts: list[tuple[int, str]], size: float) -> list[tuple[int, str]]:
    """The parts with the lowest hashes that fit into `size` bytes, at least one; what occurs often counts once."""
    parts = sorted(set(parts))
    ends = np.cumsum([len(text.encode()) for _, text in parts])
    return parts[: max(1, int(np.searchsorted(ends, size, "right")))]


def _described(report: JobReport, noted: collections.Counter) -> dict[str, dict]:
    """What was left out or mended: reason -> how many, and where the first one is."""
    places = {reason: _place(*first) for reason, first in report.first.items()}
    counts = {reason: count for reason, count in (noted + report.noted).items() if count}
    return {
        reason: {"count": count} | places.get(reason, {})
        for reason, count in sorted(counts.items())
    }


def _place(path: str, start: int, line: int) -> dict[str, str]:
    if pathlib.PurePath(path).parts[-2:] == ("scratch", "builtin.jsonl"):  # which is gone by now
        return {}
    number = line if pathlib.Path(path).is_dir() else line_number(path, start, line)
    return {"first": f"{path}, {number}"}
