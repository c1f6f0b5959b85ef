"""Checks, files and printed lines of a run before its first step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from data.members import call_later
from data.mixed_stream import MixedStream
from data.pipeline import Stream
from data.source import Source, describe_omissions
from data.store.atomic import replace_folder, write_atomically
from data.store.kinds import open_source
from data.store.reader import Store
from models.config.base import TEACHER
from pretrain.config import Run, to_json
from pretrain.mesh.device_feed import find_local_rows
from pretrain.mesh.sharding import find_undivided_dims
from pretrain.phases import PhaseRun, name_place, open_streams, resolve_phases
from pretrain.processes import malloc_advice
from pretrain.settings.overrides import ConfigError
from pretrain.training import truncation_report
from pretrain.training.continuation import check_workdir, describe_rows, describe_schedule
from pretrain.training.early_stopping import EarlyStopping
from pretrain.training.fits.model_fit import check_fit
from pretrain.training.fits.preflight import preflight_source
from pretrain.training.losses import make_loss
from pretrain.training.phase_programs import OpenPhase, PhaseRows, describe_phase
from pretrain.training.targets import check_heldout_rows, check_training_rows
from pretrain.workdir.skipped_documents import check_skipped_documents, write_skipped_documents
from pretrain.workdir.source_record import check_source, write_source
from pretrain.workdir.workdir import Workdir

count_trained = call_later("pretrain.training.optimizers.frozen:count_trained")

# Share of tokens among the positions of all rows, below which packing is recommended.
MIN_FILLED = 0.9


@dataclasses.dataclass(frozen=True)
class OpenedData:
    """The data of a run.

    Attributes:
      source: without the damaged documents that the run skips.
      phases: the rows of each phase.
      before: the configuration of the last start in the workdir, or None.
    """

    source: Source
    fingerprint: str
    phases: list[PhaseRows]
    before: Run | None = None


def open_data(
    run: Run, workdir: Workdir, allow_changes: bool, source: Source | None = None
) -> OpenedData:
    """Open `source`, or the token store in `run.data.store`, and check that it fits the run.

    Raises:
      ConfigError: workdir, source and configuration do not fit each other.
      ValueError: the source is damaged.
    """
    before = check_workdir(run, workdir, allow_changes)
    if before is None:
        check_seed(run.train.seed)
    check_teacher(run, workdir)
    check_base(run, workdir)
    source = source or open_source(run.data.store)
    phases = resolve_phases(run)
    for phase in phases:
        with name_place(phase.place):
            check_fit(phase.run, source)
    fingerprint = source.fingerprint
    source = preflight_source(run, source)
    check_source(source.path, fingerprint, workdir, allow_changes)
    check_skipped_documents(source, workdir, allow_changes)
    return OpenedData(source, fingerprint, open_rows(source, phases), before)


def open_rows(source: Source, phases: Sequence[PhaseRun]) -> list[PhaseRows]:
    """Return the rows of each phase; raise ConfigError if some predict nothing."""
    streams = open_streams(source, phases, "train")
    heldout: Sequence[Stream | MixedStream | None] = [None] * len(phases)
    if phases[0].run.evaluate.every:
        heldout = open_streams(source, phases, "heldout", for_evaluation=True)
    rows = [PhaseRows(*one) for one in zip(phases, streams, heldout, strict=True)]
    for phase, stream, held in rows:
        with name_place(phase.place):
            loss = make_loss(phase.run.data.objective)
            check_training_rows(stream, loss, phase.start)
            if held:
                check_heldout_rows(held, loss)
    return rows


def check_seed(seed: int) -> None:
    """Raise ConfigError for a seed with which no run may begin.

    JAX's generator takes the lower 32 bits. The order and the masks of a run that began with a
    larger seed need all of them, so it goes on.
    """
    if seed >= 1 << 32:
        raise ConfigError(
            f"train.seed={seed}: parameters and dropout would be as with seed {seed % (1 << 32)}; "
            "choose a seed below 2^32"
        )


def check_teacher(run: Run, workdir: Workdir) -> None:
    """Raise ConfigError if a run would learn from a teacher whose parameters were never trained."""
    if TEACHER in run.model.frozen_params and not workdir.has_finished_steps:
        raise ConfigError(
            f"{workdir} has no teacher: `distil CONFIG --teacher WORKDIR --workdir {workdir}` "
            f"starts the run of a {type(run.model).__name__} with a trained one"
        )


def check_base(run: Run, workdir: Workdir) -> None:
    """Raise ConfigError if LoRA would freeze a model whose parameters are random."""
    if run.train.lora_rank and not workdir.has_finished_steps:
        raise ConfigError(
            f"train.lora_rank={run.train.lora_rank}: {workdir} has no model, whose parameters LoRA "
            "leaves as they are: begin with one by `finetune --from` or `train --from`"
        )


def keep_training(run: Run, before: Run | None) -> Run:
    """Return what config.json records of a start that trains nothing.

    `train`, `optimizer` and `phases`, by which no step was taken, come from the start before.
    """
    if before is None:
        return run
    own = {name: getattr(before, name) for name in ("train", "optimizer", "phases")}
    return dataclasses.replace(run, **own)


def write_workdir(run: Run, opened: OpenedData, workdir: Workdir) -> None:
    """Write the files that a resumed run is checked against.

    The first process writes; each file or folder appears whole or not at all.
    """
    write_skipped_documents(opened.source, workdir)
    source = opened.source
    heldout = source.heldout_digest if isinstance(source, Store) else None
    write_source(source.path, opened.fingerprint, workdir, heldout)
    if jax.process_index():
        return
    write_atomically(workdir / "config.json", to_json(run))
    for name, save in opened.source.encoding.artefacts.items():
        # A start that completed no step has left another one's.
        if not (workdir.has_finished_steps and (workdir / name).exists()):
            with replace_folder(workdir / name) as folder:
                save(str(folder))


def describe_start(
    run: Run,
    opened: OpenedData,
    phase: OpenPhase,
    mesh: jax.sharding.Mesh,
    start: int,
    updates: int = 0,
) -> str:
    """Return the lines that are printed before training, which begins with `phase`."""
    source, program, stream, heldout = opened.source, phase.program, phase.stream, phase.heldout
    params = program.abstract_state.params
    num_params = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    lines = [
        f"{type(run.model).__name__} with {num_params:,} float32 parameters, computed in "
        f"{run.train.compute_dtype}, on {mesh.size} {mesh.devices.flat[0].device_kind} ({axes})",
    ]
    if run.train.lora_rank:
        trained = count_trained(run, params)
        lines += [f"LoRA of rank {run.train.lora_rank} trains {trained:,} of them"]
    parts = stream.streams
    steps = min(phase.stop, run.train.last_step) - phase.start
    lines += [describe_reading(*part, steps) for part in parts.items()]
    lines += [describe_phase(phase)] if len(opened.phases) > 1 else []
    if jax.process_count() > 1:
        batch_size = phase.run.data.batch_size
        own_rows = sum(hi - lo for lo, hi in find_local_rows(mesh, batch_size))
        lines += [
            f"{jax.process_count()} processes; this one builds {own_rows} of {batch_size} rows of "
            "each batch"
        ]
    if (skipped := describe_omissions(source)) != describe_omissions(None):
        lines += [f"skipped because their bytes have changed: {skipped}; see left_out.json"]
    lines += [line for part_stream in parts.values() for line in describe_padding(part_stream)]
    lines += truncation_report.describe_truncation(stream)
    lines += truncation_report.describe_truncation(heldout, "held out: ") if heldout else []
    lines += program.exchange
    lines += [f"left out: {line}" for line in program.refusals]
    lines += [
        f"not sharded: {path}, whose dimension of {size} does not divide by "
        f"{axis}={mesh.shape[axis]}"
        for path, size, axis in find_undivided_dims(params, mesh)
    ]
    lines += filter(None, [malloc_advice.format_malloc_advice(mesh.devices.flat[0].platform)])
    before = None if phase.name else opened.before
    lines += describe_schedule(phase.run, before, updates) + describe_rows(stream, start)
    return "\n".join(lines + ([f"continuing after step {start:,}"] if start else []))


def describe_reading(part: str, stream: Stream, steps: int) -> str:
    """Return a line on the rows of an objective. part: its name in a mixture, or ""."""
    batch_size = stream.data.batch_size
    return (
        f"{part + ': ' if part else ''}{stream.objective.name} on {stream.path}: "
        f"{stream.num_rows:,} rows per epoch, {batch_size} per step, "
        f"{steps * batch_size / stream.num_rows:.3g} epochs in {steps:,} steps"
    )


def describe_padding(stream: Stream) -> list[str]:
    """Return a line that recommends packing, if much of the rows is padding."""
    filled = getattr(stream.table, "fill_ratio", 1)
    if stream.objective.rows != "documents" or filled >= MIN_FILLED:
        return []
    return [
        f"{1 - filled:.0%} of the rows is padding: data.objective.rows=packed puts several "
        "documents into one row (docs/packing.md)"
    ]


def describe_end(run: Run, start: int, stopping: EarlyStopping) -> str:
    """Return why a run that has finished `start` steps does not continue; "" if it does."""
    if start >= run.train.last_step:
        reached = f"step {start:,} of {run.train.last_step:,} has already been reached. "
        if start >= run.train.steps:
            return (
                reached
                + "To train further, set train.steps=N to a larger number"
                + (" and train.stop_at_step=0" if run.train.stop_at_step else "")
            )
        return (
            f"{reached}To train on to train.steps={run.train.steps:,}, set train.stop_at_step=0 or "
            "to a larger number"
        )
    return (
        f"step {start:,} is the last: {stopping.describe_stop()}" if stopping.is_exhausted else ""
    )
