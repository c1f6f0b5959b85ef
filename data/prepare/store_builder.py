"""The passes of `prepare` over the text: sample and train a vocabulary, then encode."""

import collections
import contextlib
import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from data.corpus import sources
from data.corpus.byte_files import PACKED
from data.corpus.paths import strip_query
from data.prepare import resume
from data.prepare.articles import WITHOUT_FIELD
from data.prepare.field_values import ValueCounts, merge_values
from data.prepare.job_report import (
    NUM_HASHES,
    SAME_NAMES,
    JobReport,
    NameCounter,
    get_job_path,
)
from data.prepare.request import PrepareRequest
from data.source import SPLITS
from data.store.manifest import SPLIT_FILES
from data.store.writer import StoreWriter
from data.vocabulary.field_vocabulary import add_field_tokens
from data.vocabulary.load import Vocabulary, train_vocabulary

# (jobs done, their writer, their report, hash below which documents are held out) -> None
Publish = Callable[[int, StoreWriter, JobReport, int], None]
PACKED_RATIO = 4  # estimated bytes of text of a byte of a packed file


@dataclasses.dataclass
class StoreBuilder:
    """The state that the passes of one `prepare` over the text share.

    Attributes:
      resolved: the resolved sources, those for validation after those for training.
      pool: the pool of local processes or Beam workers.
      job_bytes: bytes of a job.
      total_bytes: bytes of all sources.
      resume: the folder of the results that a killed process left; None: they are not saved.
      counts: of each source, the bytes, words and unknown tokens of its documents, the words of
        those for training, and the bytes of its text on which the vocabulary was trained.
      cleaning: the `data.prepare.cleaning_pass.CleaningPass`; None: no document is dropped.
      families: folder that says which documents are held out together; None: copies of a text.
    """

    request: PrepareRequest
    resolved: list[sources.ResolvedSource]
    folder: pathlib.Path
    pool: Any
    stack: contextlib.ExitStack
    job_bytes: int
    total_bytes: int
    report_step: Callable[[str], None]
    resume: pathlib.Path | None = None
    counts: list[collections.Counter[str]] = dataclasses.field(default_factory=list)
    values: list[ValueCounts] = dataclasses.field(default_factory=list)
    cleaning: Any = None
    families: pathlib.Path | None = None

    def __post_init__(self) -> None:
        self.counts = [collections.Counter() for _ in self.resolved]
        self.values = [{} for _ in self.resolved]

    def find_drops(self, threshold: int) -> None:
        """Write down for the workers which documents are dropped, if the request cleans the text.

        Args:
          threshold: hash below which documents of the sources for training are held out.
        """
        if self.cleaning is not None:
            jobs, below = self._group_chunks(self.resolved), self._list_thresholds(threshold)
            self.cleaning.prepare_drops(self.pool, jobs, self.total_bytes, below)

    def make_vocabulary(self, released: Vocabulary | None) -> tuple[Vocabulary, int]:
        """Save the vocabulary for the workers, and train it unless one is given.

        The tokens of an article's fields are added to it. They count in the size of a trained one.

        Returns:
          The vocabulary, and the bytes of text on which it was trained here.
        """
        request, vocabulary, size = self.request, released, 0
        saved = resume.load_trained(self.resume) if self.resume else None
        if saved is not None:
            vocabulary, sizes = saved
            self._record_sample(sizes)
            size = sum(sizes)
            self.report_step("going on with the vocabulary that was trained before")
        elif vocabulary is None:
            texts = self._draw_sample()
            size = sum(len(text.encode()) for text in texts)
            self.report_step(
                f"training a {request.algorithm} vocabulary of {request.vocab_size:,} ids "
                f"on {size:,} bytes"
            )
            vocabulary = train_vocabulary(
                texts,
                request.vocab_size,
                request.layout,
                request.algorithm,
                request.lowercase,
                reserved=2 * len(request.article_fields),
                report=self.report_step,
                **request.list_training(),
            )
            if self.resume:
                sizes = [counts["sampled_bytes"] for counts in self._training_counts]
                resume.save_trained(self.resume, vocabulary, sizes)
        if request.article_fields:
            vocabulary = add_field_tokens(vocabulary, request.article_fields)
        vocabulary.save(self.pool.scratch / "vocabulary")
        return vocabulary, size

    @property
    def first_threshold(self) -> int:
        """The hash below which documents are held out, unless that leaves a split empty."""
        return round(self.request.held_out * NUM_HASHES)

    def _list_thresholds(self, threshold: int) -> list[int]:
        """Return for each source the hash below which a document is held out.

        All documents of the sources for validation are.
        """
        num_validation = len(self.request.validation or ())
        return [threshold] * len(self.request.sources) + [NUM_HASHES] * num_validation

    def encode_documents(
        self, vocabulary: Vocabulary, publish: Publish | None = None
    ) -> tuple[StoreWriter, JobReport, int]:
        """Write the files of the store, in a second pass if the first one left a split empty.

        Args:
          publish: called after each job, to publish what was written until then.

        Returns:
          The open writer, the report of all jobs, and the hash below which documents of a source
          for training are held out.
        """
        threshold = self.first_threshold
        for attempt in itertools.count():
            writer, report = self._encode_once(vocabulary, threshold, publish)
            num_documents = report.totals["kept"]
            if not num_documents:
                dropped = f" or dropped ({self.cleaning.explain(report)})" if self.cleaning else ""
                raise ValueError(
                    f"no text in {' '.join(self.request.sources)}: "
                    f"all {report.totals['documents']} documents are empty{dropped}"
                )
            self._check_fields(report)
            num_heldout = writer.totals["heldout"]["documents"]
            is_split = (num_heldout or not threshold) and num_heldout < num_documents
            if is_split or self.request.validation:
                return writer, report, threshold
            if attempt and self.cleaning:
                raise ValueError(
                    "nothing is left to train on, because every document that is not held out is "
                    f"dropped ({self.cleaning.explain(report)}); give more text, or drop less"
                )
            if report.least == report.most:
                raise ValueError(
                    f"the text is a single document ({num_documents} of the same contents), "
                    "no part of which can be held out: cut it into more documents "
                    "(--document block or record), or use --held-out 0"
                )
            threshold = report.least + 1 if not num_heldout else report.most
            self.report_step("too few documents for the held-out share: taking one by its hash")
            self.find_drops(threshold)
        raise AssertionError("the loop has no end")

    def _check_fields(self, report: JobReport) -> None:
        """Raise ValueError for a field of articles that none of them has, such as a wrong name."""
        for field in self.request.article_fields:
            if report.noted[WITHOUT_FIELD.format(field)] >= report.totals["kept"]:
                raise ValueError(
                    f"no article in {' '.join(self.request.sources)} has a text in its field "
                    f"`{field}`; --field names the fields that the articles have"
                )

    def _draw_sample(self) -> list[str]:
        """Return a sample of the text that is spread evenly, in an order that depends on it alone.

        The workers sample more than enough by an estimate of the sources' sizes, and the units with
        the lowest hashes remain. Where it was not enough, as with packed files or long records with
        short texts, they sample again: neither the form of the files nor the estimate matters.
        """
        size, training = self.request.sample_size, self.resolved[: len(self.request.sources)]
        sizes = [max(self._estimate_bytes(source), 1) for source in training]
        shares = self.request.compute_rates(sizes)
        thresholds = [
            min(NUM_HASHES, int(1.5 * size * share / estimate * NUM_HASHES))
            for share, estimate in zip(shares, sizes)
        ]
        samples: list[set[tuple[int, str]]] = [set() for _ in training]
        missing = set(range(len(training)))
        while missing:
            for index in missing:
                samples[index], sizes[index] = set(), 0
            jobs = (job for job in self._group_chunks(training) if job[0] in missing)
            others = (source for i, source in enumerate(self.resolved) if i not in missing)
            total = self.total_bytes - sum(source.size for source in others)
            folder = self.cleaning and self.cleaning.folder
            sampled = self.pool.sample_jobs(jobs, total, thresholds, folder)
            for job, (sample, report) in sampled:
                samples[job.source].update(sample)
                sizes[job.source] += report.totals["bytes"]
            shares = self.request.compute_rates(sizes)
            missing = {
                index
                for index, sample in enumerate(samples)
                if thresholds[index] < NUM_HASHES and _count_bytes(sample) < size * shares[index]
            }
            for index in missing:
                wanted = int(1.5 * size * shares[index] / max(sizes[index], 1) * NUM_HASHES)
                thresholds[index] = min(NUM_HASHES, max(wanted, 2 * thresholds[index], 1))
        smallest = [
            _select_smallest(sample, size * share) for sample, share in zip(samples, shares)
        ]
        self._record_sample([_count_bytes(sample) for sample in smallest])
        return [text for _, text in sorted(unit for sample in smallest for unit in sample)]

    @property
    def _training_counts(self) -> list[collections.Counter[str]]:
        """Return the counts of the sources for training."""
        return self.counts[: len(self.request.sources)]

    def _record_sample(self, sizes: Sequence[int]) -> None:
        """Record the bytes of each source's text on which the vocabulary is trained."""
        for counts, size in zip(self._training_counts, sizes):
            counts["sampled_bytes"] = size

    def _estimate_bytes(self, source: sources.ResolvedSource) -> int:
        """Return the estimated bytes of a source's text."""
        if source.name == "builtin":
            return sources.get_file_size(self.pool.scratch / "builtin.jsonl")
        return sum(
            size * (PACKED_RATIO if strip_query(path).endswith((*PACKED, ".parquet")) else 1)
            for path, size, _ in source.files
        )

    def _encode_once(
        self, vocabulary: Vocabulary, threshold: int, publish: Publish | None
    ) -> tuple[StoreWriter, JobReport]:
        """Write the files of the store in one pass over the text."""
        folder = self.folder / "store"
        job_folder = (self.resume or self.folder) / f"parts-{threshold:x}"
        saved = self.pool.scratch / "vocabulary"
        job_folder.mkdir(exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        report = JobReport()
        thresholds, cleaning = self._list_thresholds(threshold), self.cleaning
        for counts, values in zip(self.counts, self.values):  # a second pass counts again
            for unit in ("bytes", "words", "train_words", "unknown"):
                counts[unit] = 0
            values.clear()
        writer = self.stack.enter_context(StoreWriter(folder, vocabulary))
        if cleaning is not None:
            cleaning.begin_list(writer)
        names = NameCounter()
        results = self.pool.encode_jobs(
            self._group_chunks(self.resolved),
            self.total_bytes,
            saved,
            thresholds,
            job_folder,
            cleaning and cleaning.folder,
            self.families,
        )
        # Files that a later process may need are joined last, so that a kill loses few of them.
        # Parts cannot wait so long.
        for job, job_report in list(results) if self.resume and not publish else results:
            if job.source == len(writer.sources):
                writer.begin_source(self.resolved[job.source].name)
            resume.get_report_path(job_folder, job.index).unlink(missing_ok=True)
            for split in SPLITS:
                files = [get_job_path(job_folder, job.index, split, file) for file in SPLIT_FILES]
                if files[0].exists():
                    writer.add_document_files(split, *files)
                    for file in files:
                        file.unlink()
            names.take_job(job_folder, job.index)
            if cleaning is not None:
                cleaning.list_drops(writer, job, job_report.chunk_documents, job_folder)
            report.merge_report(job_report)
            self._count_text(job.source, job_report)
            if publish:
                publish(job.index + 1, writer, report, threshold)
        report.noted[SAME_NAMES] += names.count_same()
        return writer, report

    def _count_text(self, source: int, report: JobReport) -> None:
        """Add the text of a job to the counts of its source."""
        counts = self.counts[source]
        counts["unknown"] += report.totals["unknown"]
        for unit in ("bytes", "words"):
            counts[unit] += sum(report.sizes[f"{split} {unit}"] for split in SPLITS)
        counts["train_words"] += report.sizes["train words"]
        merge_values(self.values[source], report.values)

    def _group_chunks(
        self, resolved: list[sources.ResolvedSource]
    ) -> Iterator[tuple[int, tuple[sources.InputChunk, ...]]]:
        """Yield (number of the source, chunks) of each job."""
        downloads = self.resume / resume.DOWNLOADS_FOLDER if self.resume else None
        for index, source in enumerate(resolved):
            group, size = [], 0
            chunks = sources.split_source(source, self.job_bytes, self.pool.scratch, downloads)
            for chunk in chunks:
                if group and size + chunk.size > self.job_bytes:
                    yield index, tuple(group)
                    group, size = [], 0
                group.append(chunk)
                size += chunk.size
            yield index, tuple(group)


def _count_bytes(units: Iterable[tuple[int, str]]) -> int:
    """Return the bytes of the texts of units."""
    return sum(len(text.encode()) for _, text in units)


def _select_smallest(units: Iterable[tuple[int, str]], size: float) -> list[tuple[int, str]]:
    """Return the (hash, text) with the lowest hashes of at most `size` bytes, or one."""
    units = sorted(units)
    ends = np.cumsum([len(text.encode()) for _, text in units])
    return units[: max(1, int(np.searchsorted(ends, size, "right")))]
