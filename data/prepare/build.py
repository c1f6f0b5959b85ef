"""Build a token store from text: sample, train a vocabulary, encode on all cores, publish.

The same request and text give the same bytes, regardless of the number and kind of workers: local
processes (data/prepare/local_pool.py) or Apache Beam workers (data/prepare/beam_pool.py). Both run
the functions of data/prepare/jobs.py to sample and encode. This process trains the vocabulary and
joins the results. The store is written to a scratch folder and renamed at the end, so it is never
incomplete (data/store/atomic.py). Memory does not grow with the text, except that a document and
the training sample of the vocabulary have to fit.

A document is held out if its hash is in the lowest `held_out` share of all values. This depends on
its text alone, without case, accents and blanks (data/prepare/held_out.py), so texts that a
vocabulary reads alike are in the same split. If one split would be empty, it gets
the document with the lowest (held-out) or highest (train) hash. With validation sources, the
held-out split is all of their documents and nothing else.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import operator
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

from data.corpus import builtin, sources
from data.corpus.paths import is_remote
from data.members import call_later
from data.prepare.families import (
    check_families,
    check_members,
    identify_clusters,
    write_families,
)
from data.prepare.field_values import check_fields, list_more_fields
from data.prepare.held_out import HASHED
from data.prepare.job_report import NUM_HASHES, JobReport, format_notes, rank_characters
from data.prepare.local_pool import LocalPool, count_cores
from data.prepare.parts import PartStores, check_followed
from data.prepare.request import SPARSE_OPTIONS, PrepareRequest
from data.prepare.resume import explain_full_disk, open_existing, open_resume_folder
from data.prepare.store_builder import StoreBuilder
from data.source import SPLITS
from data.store import atomic, generations
from data.store.reader import Store
from data.store.writer import StoreWriter
from data.vocabulary.base import identify_encoding
from data.vocabulary.load import Vocabulary, read_vocabulary

identify_test_sets = call_later("data.prepare.cleaning_pass:identify_test_sets")
CleaningPass = call_later("data.prepare.cleaning_pass:CleaningPass")

MAX_WORKERS_PER_CORE = 64
JOB_BYTES = 4 << 20  # bytes of text in a job
MIN_PARALLEL_BYTES = (
    2 << 20
)  # bytes of text below which starting processes takes longer than the jobs
IGNORED_FILES = "files of other kinds in the folders"


@dataclasses.dataclass(frozen=True)
class PreparedStore:
    """The result of `prepare_store`.

    Attributes:
      existed: whether it had been prepared before.
    """

    store: Store
    existed: bool
    seconds: float = 0.0


def prepare_store(
    request: PrepareRequest,
    output: str | pathlib.Path,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    follow: bool = False,
    job_bytes: int = JOB_BYTES,
    report_progress: Callable[[str], None] = lambda line: None,
    console: Console | None = None,
    beam_runner: Callable[[pathlib.Path, Console | None], Any] | None = None,
) -> PreparedStore:
    """Prepare a token store, unless the same one exists.

    Processes are spawned, so a script that calls this needs `if __name__ == "__main__"`.

    Args:
      workers: number of processes; default: one a core, or this process alone for little text.
      follow: whether to publish parts of the store while the rest is read (data/prepare/parts.py).
      job_bytes: bytes of a job.
      beam_runner: makes a pool of Apache Beam workers (data/prepare/beam_runner.py), which replaces
        the local processes.

    Raises:
      ValueError: if the request or the text is not valid.
      FileExistsError: if there is something else at `output`.
      OSError: if the disk is full.
    """
    check_request(request, follow, beam_runner is not None)
    output = generations.resolve_output(pathlib.Path(output).absolute())
    resolved = resolve_sources(request)
    check_separate(resolved, len(request.sources))
    released = _read_released(request, report_progress)
    origin = _describe_origin(request, resolved, released)
    if (existing := open_existing(output, origin, overwrite)) is not None:
        return PreparedStore(existing, existed=True)
    parts = PartStores(output, origin, overwrite, report_progress) if follow else None
    total = sum(source.size for source in resolved)
    workers = choose_workers(workers, total, total // job_bytes + len(resolved))
    output.parent.mkdir(parents=True, exist_ok=True)
    make_pool = beam_runner or functools.partial(LocalPool, workers)
    resumes = not (beam_runner or request.clusters) and any(source.commit for source in resolved)
    with (
        explain_full_disk(output, total, resumes),
        atomic.open_scratch_folder(output) as folder,
        contextlib.ExitStack() as stack,
    ):
        resume = None
        if resumes:
            resume = stack.enter_context(open_resume_folder(output, origin, job_bytes))
        pool = stack.enter_context(make_pool(folder, console))
        builder = StoreBuilder(
            request, resolved, folder, pool, stack, job_bytes, total, report_progress, resume
        )
        if request.cleaning:
            places = pool.scratch / "cleaning", folder / "columns"
            builder.cleaning = CleaningPass(request.cleaning, *places, len(request.sources))
        seconds = _write_store(builder, released, origin, parts)
        generations.publish_generation(folder / "store", output, folder)
    return PreparedStore(Store.open(output), existed=False, seconds=seconds)


def check_request(request: PrepareRequest, follow: bool, on_beam: bool) -> None:
    """Raise ValueError for a request that is not valid, or cannot be followed or run on Beam."""
    request.check()
    check_families(request, on_beam)
    if follow:
        check_followed(request, on_beam)


def _read_released(
    request: PrepareRequest, report_progress: Callable[[str], None]
) -> Vocabulary | None:
    """Return the finished vocabulary of a request, if it has one, and report how it was read."""
    if request.vocabulary is None:
        return None
    released = read_vocabulary(request.vocabulary)
    if released.reading_note:
        report_progress(released.reading_note)
    return released


def resolve_sources(request: PrepareRequest) -> list[sources.ResolvedSource]:
    """Return the sources of a request with their files."""
    reading = request.document, request.field, request.file_format
    resolved = [
        dataclasses.replace(
            sources.resolve_source(name, *reading),
            skips_bad=request.on_bad_record == "skip",
            more_fields=list_more_fields(request),
            refuses_unknown=request.on_unknown == "refuse",
            keeps_case=request.soft_mask == "keep",
        )
        for name in request.list_sources()
    ]
    check_fields(request, resolved)
    return resolved


def check_separate(resolved: list[sources.ResolvedSource], num_training: int) -> None:
    """Raise ValueError if a file is in two sources, whatever names and links lead to it."""
    owners: dict[str, int] = {}
    for number, source in enumerate(resolved):
        is_local = not source.name.startswith("tfds:") and not is_remote(source.name)
        for path, *_ in source.files:
            first = owners.setdefault(os.path.realpath(path) if is_local else path, number)
            if first == number:
                continue
            if first < num_training <= number:
                raise ValueError(
                    f"{path} is in the source {resolved[first].name} and in --validation "
                    f"{source.name}: a model must not train on text that it is evaluated on; move "
                    "the file"
                )
            weight = "" if first >= num_training else ", and weight sources with --rates"
            raise ValueError(
                f"{path} is in two sources, {resolved[first].name} and {source.name}: its text "
                f"would count twice; name it once{weight}"
            )


def _describe_origin(
    request: PrepareRequest, resolved: list[sources.ResolvedSource], released: Vocabulary | None
) -> dict[str, Any]:
    """Return the options and inputs of a store as its manifest records them."""
    inputs = [source.identify_source() for source in resolved]
    if released:
        inputs.append({"name": "--vocabulary", **identify_encoding(released)})
    options = dataclasses.asdict(request)
    if request.cleaning:
        options["cleaning"] = request.cleaning.describe()
        inputs += identify_test_sets(request.cleaning)
    inputs += identify_clusters(request)
    for field in dataclasses.fields(request):
        if field.name in SPARSE_OPTIONS and options[field.name] == field.default:
            del options[field.name]
    return json.loads(json.dumps({"request": options, "inputs": inputs}))


def _write_store(
    builder: StoreBuilder,
    released: Vocabulary | None,
    origin: dict[str, Any],
    parts: PartStores | None,
) -> float:
    """Write the store to the scratch folder and return the seconds that encoding took."""
    resolved, pool = builder.resolved, builder.pool
    noted = collections.Counter({IGNORED_FILES: sum(len(source.ignored) for source in resolved)})
    if any(source.name == "builtin" for source in resolved):
        builder.report_step("collecting the built-in corpus from this Python's standard library")
        noted.update(builtin.write_builtin(pool.scratch / "builtin.jsonl"))
        builder.total_bytes += sources.get_file_size(pool.scratch / "builtin.jsonl")
    builder.families = write_families(builder.request, pool.scratch / "families")
    builder.find_drops(builder.first_threshold)
    vocabulary, sampled_bytes = builder.make_vocabulary(released)
    start = time.monotonic()
    entries = origin | {"sampled_bytes": sampled_bytes}
    finish = functools.partial(_finish_store, builder, noted, entries)
    publish = parts and functools.partial(parts.publish_if_due, finish=finish)
    encoded = builder.encode_documents(vocabulary, publish)
    seconds = time.monotonic() - start
    check_members(builder.request, builder.families)
    finish(*encoded)
    if parts:
        parts.report_none()
    return seconds


def _finish_store(
    builder: StoreBuilder,
    noted: collections.Counter[str],
    entries: dict[str, Any],
    writer: StoreWriter,
    report: JobReport,
    threshold: int,
    **more: Any,
) -> None:
    """Finish the store of what was read until now.

    Args:
      noted: counts of what was left out before it was read.
      entries: of the manifest, which do not depend on what was read.
      threshold: hash below which documents are held out.
      more: entries of the manifest, of this store alone.
    """
    writer.finish(
        # Sources for validation have no rate.
        builder.request.compute_rates(_count_training_tokens(builder.request, writer))
        + [0.0] * len(builder.request.validation or ()),
        **entries,
        **more,
        held_out={"below": threshold, "of": NUM_HASHES, "by": HASHED}
        | ({"files": list(validation)} if (validation := builder.request.validation) else {}),
        totals=dict(report.totals),
        text_by_source=_list_source_counts(builder, writer),
        **({"values_by_source": builder.values} if any(builder.values) else {}),
        sizes={
            split: {unit: report.sizes[f"{split} {unit}"] for unit in ("bytes", "words")}
            for split in SPLITS
        },
        **({"unknown_characters": unknown} if (unknown := rank_characters(report)) else {}),
        **({"dropped": builder.cleaning.describe_list(report)} if builder.cleaning else {}),
        noted=format_notes(report, noted),
    )


def _list_source_counts(builder: StoreBuilder, writer: StoreWriter) -> list[dict[str, int]]:
    """Return the tokens of each source, and of how much text they are, in both splits."""
    return [
        {
            "tokens": sum(
                stop - start for start, stop in (source[split]["tokens"] for split in SPLITS)
            )
        }
        | dict(counts)
        for source, counts in zip(writer.sources, builder.counts)
    ]


def choose_workers(workers: int | None, total: int, jobs: int) -> int:
    """Return the number of processes; 0 stands for this process alone.

    Args:
      total: bytes of text.
    """
    if workers is None:
        return count_cores() if total > MIN_PARALLEL_BYTES else 0
    if workers < 1:
        raise ValueError(f"--workers {workers}: at least one")
    if workers > (most := MAX_WORKERS_PER_CORE * count_cores()):
        raise ValueError(
            f"--workers {workers}: at most {most}, {MAX_WORKERS_PER_CORE} for each of the "
            f"{count_cores()} cores that this process may use; one a core is fastest"
        )
    return min(workers, max(jobs, count_cores()))


def _count_training_tokens(request: PrepareRequest, writer: StoreWriter) -> list[int]:
    """Return the number of training tokens of each source.

    Raises ValueError if a source with a rate has none, or a source for validation has no text.
    """
    sizes = []
    for source in writer.sources[len(request.sources) :]:
        if not operator.sub(*source["heldout"]["tokens"]):
            raise ValueError(f"--validation {source['name']}: there is no text in it")
    for source in writer.sources[: len(request.sources)]:
        train, heldout = (high - low for low, high in (source[split]["tokens"] for split in SPLITS))
        sizes.append(train)
        if not train and (request.rates or not heldout):
            reason = "all of its documents are held out" if heldout else "there is no text in it"
            raise ValueError(f"{source['name']} has nothing to train on: {reason}")
    return sizes
