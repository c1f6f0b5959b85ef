"""The training loop: open the run, restore its state, then train, evaluate and save."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import jax
from etils import epath

from data.members import call_later
from data.source import Source
from pretrain.config import Run
from pretrain.host.lost_output import drop_failed_output
from pretrain.mesh.replica_check import ReplicaCheck
from pretrain.mesh.sharding import make_mesh
from pretrain.phases import resolve_phases
from pretrain.processes.hang_notice import make_peers
from pretrain.processes.stragglers import StragglerMonitor
from pretrain.processes.watchdog import Watchdog
from pretrain.settings.jax_settings import check_jax_settings
from pretrain.training.context import TrainContext
from pretrain.training.divergence import DivergenceMonitor, count_updates
from pretrain.training.early_stopping import EarlyStopping
from pretrain.training.fits.preflight import preflight_accelerators, preflight_run
from pretrain.training.logger import RunLog
from pretrain.training.memory.exhaustion import explain_exhaustion
from pretrain.training.memory.memory_check import describe_exhausted_run
from pretrain.training.monitoring.options import UNWATCHED, Monitoring
from pretrain.training.monitoring.profile import StepProfiler
from pretrain.training.phase_programs import (
    OpenPhase,
    check_batches,
    check_programs,
    make_feed_opener,
    open_phases,
    resume_phases,
)
from pretrain.training.preemption import Preemption
from pretrain.training.program import Program
from pretrain.training.startup import (
    OpenedData,
    describe_end,
    describe_start,
    keep_training,
    open_data,
    write_workdir,
)
from pretrain.training.state import TrainState
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.goodput import Ledger
from pretrain.workdir.leases.hold_lease import hold_lease
from pretrain.workdir.leases.lease import Lease
from pretrain.workdir.workdir import Workdir

plan_word_steps = call_later("pretrain.training.monitoring.word_steps:plan_word_steps")


def train(
    run: Run,
    workdir: epath.PathLike,
    allow_changes: bool = False,
    began: float | None = None,
    dataset: Callable[..., Any] | None = None,
    source: Source | None = None,
    monitoring: Monitoring = UNWATCHED,
) -> int | None:
    """Train `run` to its last step in `workdir`, from the newest checkpoint there, if any.

    Args:
      workdir: the folder of the run, local or gs://.
      began: `time.time()` at the start of the command, for goodput; now by default.
      dataset: (stream, start_step, lo, hi) -> tf.data.Dataset, which training reads instead of
        `stream.make_dataset(start_step, lo, hi)`; see `data.composed.ComposedBatches` and
        docs/data.md. Evaluation always reads the held-out split of the source.
      source: a `data.source.Source` to train on instead of the token store in `run.data.store`.

    Returns:
      None after the last step, or the number of the signal that ended the run early (after saving).
      The result is a function of the configuration, the source and the dataset: a run that was
      killed and resumed on the same devices ends with the same bits.

    Raises:
      ConfigError: configuration, source, mesh and workdir do not fit each other, or the run does
        not fit in the memory of the devices.
      MemoryExhausted: memory is exhausted all the same.
      divergence.Diverged: steps are skipped again after the run has returned to a checkpoint.
      replica_check.ReplicaMismatch: devices disagree about replicated values.
    """
    began = began or time.time()
    workdir = Workdir(epath.Path(workdir))  # What an open one remembers may be of before.
    check_jax_settings()
    preflight_accelerators()
    mesh = make_mesh(run.mesh)
    check_batches(run, mesh)
    with drop_failed_output(), explain_exhaustion(lambda: describe_exhausted_run(run, mesh)):
        check_run_program(run, mesh)
        preflight_run(run, workdir)
        with hold_lease(workdir, "train") as lease:
            opened = open_data(run, workdir, allow_changes, source)
            return train_with_lease(run, workdir, mesh, lease, opened, began, dataset, monitoring)


def check_run_program(run: Run, mesh: jax.sharding.Mesh) -> None:
    """Check the attention and the memory of a run's phases before its workdir is touched."""
    check_programs(resolve_phases(run), mesh)


def train_with_lease(
    run: Run,
    workdir: Workdir,
    mesh: jax.sharding.Mesh,
    lease: Lease,
    opened: OpenedData,
    began: float,
    dataset: Callable[..., Any] | None,
    monitoring: Monitoring,
) -> int | None:
    """Do the work of `train` while `lease` keeps other runs out of the workdir."""
    phases = open_phases(run, opened.phases, mesh, workdir, dataset, lease.check_held)
    program = phases[0].program
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.set_mesh(mesh))
        watchdog = stack.enter_context(make_watchdog(run, workdir))
        checkpoints = stack.enter_context(Checkpoints(workdir, run.checkpoint))
        preemption = stack.enter_context(Preemption())
        state, record = restore_or_init(program, checkpoints, opened.source)
        start = int(state.step)
        phase = resume_phases(phases, start, record.get("rows", 0))
        stopping = record.get("stopping", {})
        early_stopping = EarlyStopping(run.evaluate.patience, run.checkpoint.best, stopping)
        reason = describe_end(run, start, early_stopping)
        write_workdir(keep_training(run, opened.before) if reason else run, opened, workdir)
        if reason:
            print(f"{workdir}: {reason}")
            return None
        ledger = stack.enter_context(open_ledger(workdir, began, start, watchdog, lease))
        stragglers = StragglerMonitor()
        log = stack.enter_context(RunLog(run, workdir, mesh, start, stragglers, lease, monitoring))
        log_start(log, run, opened, phase, mesh, state)
        profiler = StepProfiler(
            monitoring.profile, workdir, lambda: context.phase.program.get_step_text(), log
        )
        context = TrainContext(
            run=run,
            source=opened.source,
            phases=phases,
            phase=phase,
            checkpoints=checkpoints,
            lease=lease,
            replica_check=ReplicaCheck(program.state_shardings, mesh, run.guard.replicas),
            guard=DivergenceMonitor(run.guard.patience, record.get("guard", {})),
            early_stopping=early_stopping,
            ledger=ledger,
            stragglers=stragglers,
            log=log,
            profiler=stack.enter_context(profiler),
            open_feed=make_feed_opener(phases, mesh, run.train.last_step, preemption),
            reads_stream=dataset is None,
            word_steps=plan_word_steps(run, phases, opened.source, checkpoints, start, log)
            if run.checkpoint.words
            else {},
        )
        last_saved = run_steps(context, state, preemption)
        return end_run(context, workdir, preemption, last_saved)


def end_run(
    context: TrainContext, workdir: Workdir, preemption: Preemption, last_saved: int
) -> int | None:
    """Log what was saved, and return the number of the signal that ended the run early, if any.

    Raises the error of the rows because of which the run has ended.
    """
    log = context.log
    log.signal = preemption.signal if last_saved < context.run.train.last_step else None
    saved = f"saved step {last_saved:,} in {workdir}/checkpoints"
    log.log_message(f"{saved}\n{context.ledger.format_summary()}")
    if preemption.failure:
        raise preemption.failure
    return log.signal


def make_watchdog(run: Run, workdir: Workdir) -> Watchdog:
    """Return the watchdog of this process, which writes to a file of its own."""
    return Watchdog(run.watchdog, workdir / f"hung-{jax.process_index()}.txt", make_peers())


def open_ledger(
    workdir: Workdir, began: float, start: int, watchdog: Watchdog, lease: Lease
) -> Ledger:
    """Return the ledger of the run's time, which the first process writes."""
    folder = None if jax.process_index() else workdir
    return Ledger(folder, began, start, watchdog.enter_phase, lease.is_held)


def log_start(
    log: RunLog,
    run: Run,
    opened: OpenedData,
    phase: OpenPhase,
    mesh: jax.sharding.Mesh,
    state: TrainState,
) -> None:
    """Log what the run trains, from `state` and `phase` on."""
    num_updates = int(count_updates(state.optimizer, state.step))
    log.log_message(describe_start(run, opened, phase, mesh, int(state.step), num_updates))


def restore_or_init(
    program: Program, checkpoints: Checkpoints, source: Source
) -> tuple[TrainState, dict[str, Any]]:
    """Return (newest intact state, record of its checkpoint), or (fresh state, {}) without one."""
    state = checkpoints.restore_state(
        program.abstract_state, program.state_shardings, source.encoding.fingerprint
    )
    if state is None:
        return program.init(), {}
    return state, checkpoints.load_record(int(state.step))


def run_steps(context: TrainContext, state: TrainState, stop: Preemption) -> int:
    """Train from `state` to the last step, or until a signal or early stopping, and save.

    Returns:
      The number of the last step, which is saved.
    """
    run, guard, log = context.run, context.guard, context.log
    step, last = int(state.step), run.train.last_step
    must_save = False
    with contextlib.closing(context.read_batches(step)) as batches:
        for step, batch in batches:
            step += 1
            state, metrics = context.train_step(step, state, batch)
            must_stop = stop.is_requested(step)
            must_save |= is_due(step, run.checkpoint.every, last) or step in context.word_steps
            context.check_row(log.log_step(step, metrics))  # Of the step before this one.
            context.checkpoints.check_errors()
            scores = None
            if not guard.has_tripped:
                if context.phase.heldout and is_due(step, run.evaluate.every, last):
                    scores = evaluate_or_stop(context, state, step, stop)
                    must_stop |= stop.failure is not None
                    must_stop |= should_stop_early(context, step)
                if must_save or must_stop:
                    context.check_row(log.sync_rows())
            if guard.has_tripped and guard.step < last:
                del state  # Frees its memory before the checkpoint is restored.
                state, step, scores = context.restore_last_good(), guard.step, None
                batches.restart_at(step)
            if step == last:
                guard.check_end()
            if step == last or must_stop or (must_save and guard.is_good_step):
                context.save_checkpoint(state, step, scores)
                must_save = False
            elif context.replica_check.is_due(step):
                context.check_replicas(state, step)
            if must_stop:
                break
        context.wait_for_saves(step)
    return step


def evaluate_or_stop(
    context: TrainContext, state: TrainState, step: int, stop: Preemption
) -> dict[str, float] | None:
    """Evaluate as `evaluate_step`; if the held-out rows cannot be read, ask the run to end, saved.

    One of several processes raises the error: the others wait for it in the evaluation.
    """
    context.check_row(context.log.wait_for_step())
    try:
        return evaluate_step(context, state, step)
    except (ValueError, OSError) as error:
        if jax.process_count() > 1:
            raise
        stop.note_failure(error)
        return None


def evaluate_step(context: TrainContext, state: TrainState, step: int) -> dict[str, float]:
    """Evaluate the state after `step`, log the scores and count them for early stopping."""
    scores = context.evaluate_heldout(state, step)
    context.log.log_scores(scores)
    # An evaluation at the end of a run that stops between two regular ones does not count, and
    # neither does one after a skipped step.
    if step % context.run.evaluate.every == 0 and context.guard.is_good_step:
        context.early_stopping.note_scores(step, scores)
    return scores


def should_stop_early(context: TrainContext, step: int) -> bool:
    """Return whether the evaluation after `step` ends the run before its last step."""
    should_stop = (
        context.early_stopping.is_exhausted
        and context.guard.is_good_step
        and step < context.run.train.last_step
    )
    if should_stop:
        context.log.log_message(context.early_stopping.describe_stop())
    return should_stop


def is_due(step: int, every: int, last: int) -> bool:
    """Return whether to act after `step`: at `last`, and every `every` steps (0: never)."""
    return step == last or (every > 0 and step % every == 0)
