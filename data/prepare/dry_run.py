"""What a `prepare` will take: tokens, time and disk, estimated from a sample of the sources.

The sample is of ranges of the files at even distances, so the same files give the same numbers but
for the times. What it finds for a byte of a source is multiplied by the source's bytes.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from data.corpus import builtin, readers, sources
from data.corpus.byte_files import PACKED
from data.corpus.paths import DATASETS
from data.prepare.batches import BatchDocument, encode_batch
from data.prepare.build import check_separate, choose_workers, resolve_sources
from data.prepare.fertility import compute_fertility, format_fertility
from data.prepare.job_report import JobReport
from data.prepare.jobs import BATCH_BYTES, Job, read_documents
from data.prepare.request import PrepareRequest
from data.source import SPLITS
from data.store.manifest import BLOCK_BYTES, OFFSET_DTYPE
from data.store.writer import choose_token_dtype
from data.vocabulary.field_vocabulary import add_field_tokens
from data.vocabulary.load import Vocabulary, read_vocabulary, train_vocabulary

SAMPLE_BYTES = 8 << 20  # of all sources
RANGE_BYTES = 1 << 16  # of a range of a file that can be cut
PART_BYTES = 1 << 20  # of text that is read of any other file
MAX_RANGES = 4096  # of a source, of which some are read

Documents = list[BatchDocument]


class SourceEstimate(NamedTuple):
    """What a source will be, from a sample of it.

    Attributes:
      name: SOURCE of the command line.
      sampled: bytes of its files that were read.
      size: bytes of its files.
      counts: documents, sentences, tokens, unknown, bytes and words of the sample.
    """

    name: str
    sampled: int
    size: int
    counts: collections.Counter[str]

    def scale_up(self, unit: str) -> int:
        """Return the estimated number of a unit in the whole source."""
        return round(self.counts[unit] * self.size / max(self.sampled, 1))


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a `prepare` will take.

    Attributes:
      sources: one of each source, those for validation last.
      store_bytes: bytes of the store.
      workers: number of processes that the times are for.
      seconds: {part of the work: seconds}.
    """

    sources: list[SourceEstimate]
    store_bytes: int
    workers: int
    seconds: dict[str, float]

    def count_all(self, unit: str) -> int:
        """Return the estimated number of a unit in all sources."""
        return sum(source.scale_up(unit) for source in self.sources)


def estimate_store(
    request: PrepareRequest, workers: int | None = None, sample_bytes: int = SAMPLE_BYTES
) -> Estimate:
    """Return what `prepare_store` will take for a request; nothing that it writes remains.

    A vocabulary that the request would train is trained on the sample.

    Raises the exceptions of `prepare_store`.
    """
    request.check()
    resolved = resolve_sources(request)
    check_separate(resolved, len(request.sources))
    released = None if request.vocabulary is None else read_vocabulary(request.vocabulary)
    with tempfile.TemporaryDirectory(prefix="cloze-dry-run-") as folder:
        scratch = pathlib.Path(folder)
        if any(source.name == "builtin" for source in resolved):
            builtin.write_builtin(scratch / "builtin.jsonl")
        sizes = [
            source.size or sources.get_file_size(scratch / "builtin.jsonl") for source in resolved
        ]
        began = time.monotonic()
        samples = [
            read_sample(source, size, sample_bytes * size // max(sum(sizes), 1), scratch)
            for source, size in zip(resolved, sizes)
        ]
        read = time.monotonic()
        vocabulary = released or train_on_sample(request, [documents for documents, _ in samples])
        if request.article_fields:
            vocabulary = add_field_tokens(vocabulary, request.article_fields)
        trained = time.monotonic()
        estimates = [
            SourceEstimate(source.name, sampled, size, count_documents(documents, vocabulary))
            for source, size, (documents, sampled) in zip(resolved, sizes, samples)
        ]
        encoded = time.monotonic()
        vocabulary.save(scratch / "vocabulary")
        saved = sum(path.stat().st_size for path in (scratch / "vocabulary").iterdir())
    if not sum(estimate.counts["documents"] for estimate in estimates):
        raise ValueError(f"no text in the sample of {' '.join(request.list_sources())}")
    total = sum(sizes)
    workers = max(choose_workers(workers, total, len(resolved) + total // (4 << 20)), 1)
    scale = total / max(sum(sampled for _, sampled in samples), 1) / workers
    seconds = {"encoding": (encoded - trained + read - began) * scale}
    if released is None:
        seconds = {
            "sampling": (read - began) * scale,
            "training the vocabulary": trained - read,
        } | seconds
    plain = Estimate(estimates, saved, workers, seconds)
    return dataclasses.replace(plain, store_bytes=saved + _count_store_bytes(plain, vocabulary))


def read_sample(
    source: sources.ResolvedSource, size: int, budget: int, scratch: pathlib.Path
) -> tuple[Documents, int]:
    """Return documents of a source, and the bytes of its files that they were read from.

    Args:
      size: bytes of the source.
      budget: bytes to read, more or less; at least one range is read.
    """
    ranges = list(list_ranges(source, size, scratch))
    mean = sum(min(piece.size, PART_BYTES) for piece in ranges) / len(ranges)
    count = min(len(ranges), max(1, round(budget / max(mean, 1))))
    documents, sampled = [], 0
    for number in (2 * np.arange(count) + 1) * len(ranges) // (2 * count):
        piece = ranges[number]
        progress, read = scratch / "progress", 0
        np.zeros(1, np.int64).tofile(progress)
        for document in read_documents(Job(0, 0, (piece,), progress), JobReport()):
            documents.append(document)
            read += len(document.raw)
            if read >= PART_BYTES:
                sampled += int(np.fromfile(progress, np.int64)[0])
                break
        else:
            sampled += piece.size
    return documents, sampled


def list_ranges(
    source: sources.ResolvedSource, size: int, scratch: pathlib.Path
) -> Iterator[sources.InputChunk]:
    """Yield ranges of a source's files at even distances; a file that cannot be cut is one.

    Args:
      size: bytes of the source.
    """
    step = max(RANGE_BYTES, -(-size // MAX_RANGES))
    for piece in sources.split_source(source, max(size, 1), scratch):
        is_whole = piece.file_format in readers.TABLE_READERS or piece.file_format == "file"
        is_far = piece.file_format.startswith("tfds:") or piece.path.startswith(DATASETS)
        if is_whole or is_far or piece.path.endswith(PACKED):
            yield piece
            continue
        for start in range(0, max(piece.size, 1), step):
            stop = min(start + min(step, RANGE_BYTES), piece.size)
            yield dataclasses.replace(piece, start=start, stop=stop, size=stop - start)


def train_on_sample(request: PrepareRequest, samples: list[Documents]) -> Vocabulary:
    """Return the vocabulary that a request trains, of the sample of the sources for training."""
    training = samples[: len(request.sources)]
    sizes = [sum(len(one.raw) for one in documents) for documents in training]
    limits = [request.sample_size * share for share in request.compute_rates(sizes)]
    texts = []
    for documents, limit in zip(training, limits):
        ends = np.cumsum([len(one.raw) for one in documents])
        whole = int(np.searchsorted(ends, limit, "right"))
        texts += [one.raw.replace(b"\0", b"\n").decode() for one in documents[: max(whole, 1)]]
    return train_vocabulary(
        texts,
        request.vocab_size,
        request.layout,
        request.algorithm,
        request.lowercase,
        reserved=2 * len(request.article_fields),
        **request.list_training(),
    )


def count_documents(documents: Documents, vocabulary: Vocabulary) -> collections.Counter[str]:
    """Return the documents, sentences, tokens, unknown tokens, bytes and words of documents."""
    report, batch, size = JobReport(), [], 0
    for number, document in enumerate(documents, 1):
        batch.append(document)
        size += len(document.raw)
        if size >= BATCH_BYTES or number == len(documents):
            collections.deque(encode_batch(batch, vocabulary, 0, report), 0)
            batch, size = [], 0
    counts = collections.Counter(
        {unit: report.totals[unit] for unit in ("sentences", "tokens", "unknown")}
    )
    counts["documents"] = report.totals["kept"]
    for unit in ("bytes", "words"):
        counts[unit] = sum(report.sizes[f"{split} {unit}"] for split in SPLITS)
    return counts


def _count_store_bytes(estimate: Estimate, vocabulary: Vocabulary) -> int:
    """Return the bytes of the arrays of a store, with the checksums of their blocks."""
    offsets = estimate.count_all("documents") + estimate.count_all("sentences") + 2 * len(SPLITS)
    arrays = estimate.count_all("tokens") * choose_token_dtype(vocabulary).itemsize
    arrays += offsets * OFFSET_DTYPE.itemsize
    return arrays + 4 * -(-arrays // BLOCK_BYTES)


def format_estimate(estimate: Estimate) -> list[str]:
    """Return the lines that `prepare --dry-run` prints."""
    lines = []
    for source in estimate.sources:
        fertility = compute_fertility(source.name, source.counts)
        lines += [
            f"source   {source.name}: about {source.scale_up('documents'):,} documents, "
            f"{source.scale_up('tokens'):,} tokens (read: {source.sampled:,} of {source.size:,} "
            f"bytes, {source.counts['documents']:,} documents)",
            f"words    {source.name}: {format_fertility(fertility)}",
        ]
    parts = ", ".join(f"{part} {value:,.1f} s" for part, value in estimate.seconds.items())
    return [
        *lines,
        f"tokens   about {estimate.count_all('tokens'):,}",
        f"disk     about {estimate.store_bytes:,} bytes",
        f"time     about {sum(estimate.seconds.values()):,.0f} s with {estimate.workers} "
        f"{'process' if estimate.workers == 1 else 'processes'}: {parts}",
        "nothing was written: leave --dry-run out to prepare the store",
    ]
