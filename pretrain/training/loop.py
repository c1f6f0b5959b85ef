"""Training, top to bottom: mesh, data, model, optimizer, state, restore, then for each step and batch one update."""

import contextlib
import time

import jax
from etils import epath

from data.composed import ComposedBatches
from pretrain.distributed import processes
from pretrain.distributed.device_feed import feed
from pretrain.distributed.preflight import preflight, preflight_accelerators
from pretrain.distributed.replica_check import Replicas
from pretrain.distributed.sharding import make_mesh
from pretrain.distributed.stragglers import StragglerMonitor
from pretrain.distributed.watchdog import Watchdog
from pretrain.training.context import TrainContext
from pretrain.training.continuation import begin_from
from pretrain.training.divergence import Guard, update_count
from pretrain.training.early_stopping import EarlyStopping
from pretrain.training.evaluation import make_evaluator
from pretrain.training.gap_samples import make_sampler
from pretrain.training.logger import Log
from pretrain.training.preemption import Stop
from pretrain.training.program import check_batch, make_program
from pretrain.training.startup import OpenedData, open_data, opening, write_workdir
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.goodput import Ledger
from pretrain.workdir.hold_lease import hold
from pretrain.workdir.lease import Lease


def train(run, workdir, allow_changes=False, began=None, dataset=None, source=None):
    """Train `run` to its last step in `workdir`, from the newest checkpoint there if there is one.

    Args:
      began: `time.time()` of the command.
      dataset: (stream, start_step, lo, hi) -> tf.data.Dataset, which training reads instead of stream.dataset(start_step, lo, hi):
        see `data.composed.ComposedBatches` and docs/data.md. The held-out part is read from the source all the same.
      source: a `data.source.Source`, from which the run learns in place of the token store that it names.

    Returns None when the last step is done, or the number of the signal that ended it early (after saving). The result is a function
    of the configuration, the source and the dataset: a run that was killed and started again ends with the same bits, on the
    same devices. Raises ConfigError where configuration, source, mesh and workdir do not fit each other, before anything is computed;
    and `divergence.Diverged` where every step is skipped, and `replica_check.Altered` where devices disagree.
    """
    began = began or time.time()
    workdir = epath.Path(workdir)
    preflight_accelerators()
    mesh = make_mesh(run.mesh)
    check_batch(run, mesh)
    preflight(run, workdir)
    with hold(workdir, "train") as lease:
        opened = open_data(run, workdir, allow_changes, source)
        return train_alone(run, workdir, mesh, lease, opened, began, dataset)


def train_alone(run, workdir, mesh, lease: Lease, opened: OpenedData, began, dataset=None):
    """Do what `train` does, while `lease` keeps other runs out of the workdir."""
    stream, heldout = opened.stream, opened.heldout
    batches = ComposedBatches(stream, dataset) if dataset else stream
    program = make_program(run, mesh)
    evaluator = make_evaluator(
        program.model,
        program.loss,
        mesh,
        compute=run.train.compute_dtype,
        metrics=run.evaluate.metrics,
        objective=run.data.objective,
    )
    sampler = make_sampler(run, program, mesh, heldout, workdir, lease.check)

    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.set_mesh(mesh))
        stacks = workdir / f"hung-{jax.process_index()}.txt"
        watchdog = stack.enter_context(Watchdog(run.watchdog, stacks, processes.say_farewell))
        checkpoints = stack.enter_context(Checkpoints(workdir, run.checkpoint))
        stop = stack.enter_context(Stop())
        state, resumed = restore_or_init(program, checkpoints, opened.source)
        start = int(state.step)
        begin_from(stream, start, resumed.get("rows", 0))
        write_workdir(run, opened, workdir)
        stopping = EarlyStopping(
            run.evaluate.patience, run.checkpoint.best, resumed.get("stopping", {})
        )
        if ended := describe_end(run, start, stopping):
            print(f"{workdir}: step {start} {ended}")
            return None
        folder = None if jax.process_index() else workdir
        ledger = stack.enter_context(Ledger(folder, began, start, watchdog.to, lease.is_held))
        stragglers = StragglerMonitor()
        log = stack.enter_context(Log(run, workdir, mesh, start, stragglers, lease))
        updates = int(update_count(state.optimizer, state.step))
        log.say(opening(run, opened, program.abstract.params, mesh, start, updates))
        context = TrainContext(
            run=run,
            source=opened.source,
            program=program,
            checkpoints=checkpoints,
            lease=lease,
            replicas=Replicas(program.placed, mesh, run.guard.replicas),
            guard=Guard(run.guard.patience, resumed.get("guard", {})),
            stopping=stopping,
            ledger=ledger,
            stragglers=stragglers,
            log=log,
            open_feed=lambda start: feed(batches, mesh, start, run.train.end),
            evaluator=evaluator,
            stream=stream,
            heldout=heldout,
            sampler=sampler,
        )
        done = run_steps(context, state, stop)
        log.say(f"saved step {done:,} in {workdir}/checkpoints\n{ledger.line()}")
        return stop.signal if done < run.train.end else None


def describe_end(run, start, stopping):
    """Return why a run that has done `start` steps does not go on; "" where it does."""
    if start >= run.train.end:
        return f"of {run.train.end} is done already; train.steps=N goes on to N"
    return f"is the last: {stopping.describe()}" if stopping.is_exhausted else ""


def restore_or_init(program, checkpoints, source):
    """Return (the newest good state, or a fresh one; the record of its checkpoint)."""
    state = checkpoints.restore(program.abstract, program.placed, source.encoding.fingerprint)
    if state is None:
        return program.init(), {}
    return state, checkpoints.record(int(state.step))


def run_steps(context, state, stop):
    """Train from `state` on, to the last step or until a signal, and save. Returns the number of the step that is saved."""
    run, guard, log, last = context.run, context.guard, context.log, context.run.train.end
    must_save = False
    with contextlib.closing(context.read_batches(int(state.step))) as batches:
        for step, batch in batches:
            state, metrics = context.update(state, batch)
            step += 1
            must_stop = stop.requested(step)
            must_save |= is_due(step, run.checkpoint.every, last)
            guard.check(log.log_step(step, metrics))  # which knows those of the step before
            context.checkpoints.check()
            scores = None
            if not guard.tripped:
                if context.heldout and is_due(step, run.evaluate.every, last):
                    guard.check(log.wait())
                    scores = context.evaluate(state.params, step)
                    log.log_scores(scores)
                    # Neither where the run is only told to stop, nor of steps that were skipped, which are the guard's business.
                    if step % run.evaluate.every == 0 and guard.good:
                        context.stopping.note(step, scores)
                    if context.stopping.is_exhausted and guard.good and step < last:
                        log.say(context.stopping.describe())
                        must_stop = True
                if must_save or must_stop:
                    guard.check(log.sync())
            if guard.tripped and guard.step < last:
                state = None  # or both lie on the devices at once
                state, step, scores = context.restore_last_good(), guard.step, None
                batches.restart(step)
            if step == last:
                guard.check_end()
            if step == last or must_stop or (must_save and guard.good):
                context.save(state, step, scores)
                must_save = False
            elif context.replicas.due(step):
                context.check_replicas(state, step)
            if must_stop:
                break
        context.wait_for_saves(step)
    return step


def is_due(step, every, last):
    """Return whether what is done each `every` steps (0: never before the last) and at the last is done after `step`."""
    return step == last or (every > 0 and step % every == 0)
