"""What a run checks, writes and prints before its first step."""

import dataclasses

import jax
import numpy as np

from data.examples.example_store import open_source
from data.mixed_stream import MixedStream, open_stream, split_stream
from data.pipeline import Stream
from data.source import Source
from data.store.atomic import replace_folder, write_atomically
from data.store.salvage import told
from pretrain.config import Run, to_json
from pretrain.distributed import malloc_advice
from pretrain.distributed.device_feed import local_rows
from pretrain.distributed.preflight import preflight_source
from pretrain.distributed.sharding import kept_whole
from pretrain.evaluation.model_fit import check_fit
from pretrain.training import truncation_report
from pretrain.training.continuation import check_workdir, describe_rows, describe_schedule
from pretrain.workdir.skipped_documents import check_left_out, write_left_out
from pretrain.workdir.source_record import check_source, write_source

FULL = 0.9  # share of the rows' places that hold a token: below it, whoever pads is told of packing


def write_workdir(run, opened, workdir):
    """What a run is told again by when it goes on, by the first process: each file or folder whole or not at all."""
    write_left_out(opened.source, workdir)
    write_source(opened.source.path, opened.fingerprint, workdir)
    if jax.process_index():
        return
    write_atomically(workdir / "config.json", to_json(run))
    for name, save in opened.source.encoding.artefacts.items():
        if not (workdir / name).exists():
            with replace_folder(workdir / name) as folder:
                save(str(folder))


def opening(run, opened, params, mesh, start, updates=0):
    """What a person wants to know before waiting. start: steps that are done; updates: those of them that were not skipped."""
    source, stream, heldout = opened.source, opened.stream, opened.heldout
    size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    lines = [
        f"{type(run.model).__name__} of {size:,} parameters in float32, computed in {run.train.compute_dtype}, "
        f"on {mesh.size} {mesh.devices.flat[0].device_kind} ({axes})",
    ]
    lines += [describe_reading(part, each, run) for part, each in split_stream(stream).items()]
    if jax.process_count() > 1:
        own = sum(hi - lo for lo, hi in local_rows(mesh, run.data.batch_size))
        lines += [
            f"{jax.process_count()} processes; this one builds {own} of {run.data.batch_size} rows of each batch"
        ]
    if (lost := told(source)) != told(None):
        lines += [f"left out, for their bytes have changed: {lost}; see left_out.json"]
    lines += [line for each in split_stream(stream).values() for line in describe_padding(each)]
    lines += truncation_report.describe(stream)
    lines += truncation_report.describe(heldout, "held out: ") if heldout else []
    lines += [
        f"kept whole: {path}, whose {size} does not divide by {axis}={mesh.shape[axis]}"
        for path, size, axis in kept_whole(params, mesh)
    ]
    lines += filter(None, [malloc_advice.advice(mesh.devices.flat[0].platform)])
    lines += describe_schedule(run, opened.before, updates) + describe_rows(stream, start)
    return "\n".join(lines + ([f"continuing after step {start:,}"] if start else []))


def describe_reading(part, stream, run):
    """Return the line on what a run reads for an objective; part: its name in a mixture, or ""."""
    size, steps = stream.data.batch_size, run.train.end
    return (
        f"{part + ': ' if part else ''}{stream.objective.name} on {stream.path}: {stream.rows:,} rows an epoch, {size} a step, "
        f"{steps * size / stream.rows:.3g} epochs in {steps:,} steps"
    )


def describe_padding(stream):
    """Return a line where much of the rows is padding that packing would fill."""
    filled = getattr(stream.table, "filled", 1)
    if getattr(stream.objective, "rows", None) != "documents" or filled >= FULL:
        return []
    return [
        f"{1 - filled:.0%} of the rows is padding: data.objective.rows=packed puts several documents into one (docs/packing.md)"
    ]


@dataclasses.dataclass(frozen=True)
class OpenedData:
    """What a run reads.

    fingerprint: of the source as it was written, whatever of it is left; heldout: None where nothing is evaluated; before: the
    configuration of the run's last start in its workdir, or None.
    """

    source: Source
    fingerprint: str
    stream: Stream | MixedStream
    heldout: Stream | MixedStream | None
    before: Run | None = None


def open_data(run, workdir, allow_changes, source=None):
    """Return the `OpenedData` of a run: of `source`, or of the token store that the run names.

    Raises ConfigError where workdir, source and configuration do not fit each other, and ValueError where the source is damaged.
    """
    before = check_workdir(run, workdir, allow_changes)
    source = source or open_source(run.data.store)
    check_fit(run, source)
    fingerprint = source.fingerprint
    source = preflight_source(run, source)
    check_source(source.path, fingerprint, workdir, allow_changes)
    check_left_out(source, workdir, allow_changes)
    stream = open_stream(source, run.data, split="train", seed=run.train.seed)
    heldout = None
    if run.evaluate.every:
        heldout = open_stream(
            source, run.data, split="heldout", seed=run.train.seed, evaluates=True
        )
    return OpenedData(source, fingerprint, stream, heldout, before)
