"""Training, top to bottom: mesh, data, model, optimizer, state, restore, then for each step and batch one update."""

import contextlib
import time
from typing import NamedTuple

import jax
import numpy as np
from etils import epath

from data.store.reader import Store
from pretrain.config import Run
from pretrain.distributed import processes
from pretrain.distributed.device_feed import feed
from pretrain.distributed.preflight import preflight, preflight_accelerators
from pretrain.distributed.replica_check import Replicas
from pretrain.distributed.sharding import make_mesh
from pretrain.distributed.watchdog import Watchdog
from pretrain.training.divergence import Guard
from pretrain.training.evaluation import make_evaluator
from pretrain.training.gap_samples import beside, make_sampler
from pretrain.training.logger import Log
from pretrain.training.preemption import Stop
from pretrain.training.program import Program, check_batch, make_program
from pretrain.training.startup import open_data, opening, write_workdir
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.goodput import Ledger
from pretrain.workdir.hold_lease import hold
from pretrain.workdir.lease import Lease
from pretrain.workdir.skipped_documents import write_left_out


def train(run, workdir, allow_changes=False, began=None):
    """Train `run` to its last step in `workdir`, from the newest checkpoint there if there is one. began: `time.time()` of the command.

    Returns None when the last step is done, or the number of the signal that ended it early (after saving). The result is a function
    of the configuration and the token store: a run that was killed and started again ends with the same bits, on the same devices.
    Raises ConfigError where configuration, store, mesh and workdir do not fit each other, before anything is computed; and
    `guard.Diverged` where every step is skipped, and `replicas.Altered` where devices disagree.
    """
    began = began or time.time()
    workdir = epath.Path(workdir)
    preflight_accelerators()
    mesh = make_mesh(run.mesh)
    check_batch(run, mesh)
    preflight(run, workdir)
    with hold(workdir, "train") as lease:
        return train_alone(run, workdir, mesh, lease, allow_changes, began)


def train_alone(run, workdir, mesh, lease: Lease, allow_changes, began):
    """Do what `train` does, while `lease` keeps other runs out of the workdir."""
    store, stream, heldout = open_data(run, workdir, allow_changes)
    program = make_program(run, mesh)
    evaluate = make_evaluator(
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
        state, kept = begin(program, checkpoints, store)
        start = int(state.step)
        write_workdir(run, store, workdir)
        write_left_out(store, workdir)
        if start >= run.train.end:
            print(
                f"{workdir}: step {start} of {run.train.end} is done already; train.steps=N goes on to N"
            )
            return None
        folder = None if jax.process_index() else workdir
        ledger = stack.enter_context(Ledger(folder, began, start, watchdog.to, lease.is_held))
        guard = Guard(run.guard.patience, kept)
        log = stack.enter_context(Log(run, workdir, mesh, start, guard, ledger, lease))
        log.say(opening(run, store, stream, program.abstract.params, mesh, start, heldout))
        job = Job(
            run,
            store,
            program,
            checkpoints,
            lease,
            Replicas(program.placed, mesh, run.guard.replicas),
            stop,
            guard,
            ledger,
            log,
        )
        done = steps(
            job,
            state,
            lambda start: feed(stream, mesh, start, run.train.end),
            lambda params, step: (
                heldout and log.scores(beside(evaluate, sampler, step), params, heldout)
            ),
        )
        log.say(f"saved step {done:,} in {workdir}/checkpoints\n{ledger.line()}")
        return stop.signal if done < run.train.end else None


class Job(NamedTuple):
    """What a run has open while it trains."""

    run: Run
    store: Store
    program: Program
    checkpoints: Checkpoints
    lease: Lease
    replicas: Replicas
    stop: Stop
    guard: Guard
    ledger: Ledger
    log: Log


def steps(job, state, source, score):
    """Train from `state` on, to the last step or until a signal, and save; returns the number of the step that is saved.

    source(step): the (step, batch) from there on; score(params, step): the scores of the held-out part, which go into the log too.
    """
    run, program, guard, ledger, log = job.run, job.program, job.guard, job.ledger, job.log
    start, due = int(state.step), False
    for step, batch in log.waits(guard.feed(source, start)):
        # A value that is copied from the host by accident would stall every step.
        phase, guarded = "compile" if step == start else "step", jax.transfer_guard("disallow")
        with ledger.during(phase), guarded:
            state, metrics = program.update(state, batch)
        if step == start:
            log.say(f"attention by {'; '.join(program.attention['update'])}")
        done, scores = step + 1, None
        stopping = job.stop.requested(done)
        due = due or done % run.checkpoint.every == 0
        log.step(done, metrics)
        job.checkpoints.check()
        if not guard.tripped:
            if (run.evaluate.every and done % run.evaluate.every == 0) or done == run.train.end:
                scores = score(state.params, done)
            if due or stopping or done == run.train.end:
                log.sync()
        if guard.tripped and guard.step < run.train.end:
            state = None  # or both lie on the devices at once
            state, done = go_back(job), guard.step
        finished = done == run.train.end
        if finished:
            guard.ended()
        saving = finished or stopping or (due and guard.good)
        if saving or job.replicas.due(done):
            with ledger.during("save"):
                job.replicas.check(state, done)
        if saving:
            with ledger.during("save"):
                job.lease.verify()
                job.checkpoints.save(
                    state,
                    run,
                    job.store.vocabulary.fingerprint,
                    guard=guard.record(),
                    scores=scores,
                )
            ledger.mark(done, job.checkpoints.steps())
            due = False
        if stopping:
            break
    with ledger.during("save"):
        job.checkpoints.wait()
    ledger.mark(done, job.checkpoints.steps())
    return done


# ---- before the first step ---------------------------------------------------


def begin(program, checkpoints, store):
    """(the newest good state, or a fresh one; what its checkpoint tells of the guard)."""
    state = checkpoints.restore(program.abstract, program.placed, store.vocabulary.fingerprint)
    return (
        (program.init(), {})
        if state is None
        else (state, checkpoints.record(int(state.step)).get("guard", {}))
    )


# ---- while it runs -----------------------------------------------------------


def go_back(job):
    """The state of the last checkpoint before the steps that were skipped, with the number of the last of them: see `guard`."""
    guard, placed = job.guard, job.program.placed
    first = guard.first()
    with job.ledger.during("start"):
        job.lease.verify()  # damaged checkpoints are moved
        job.checkpoints.wait()
        state = job.checkpoints.restore(
            job.program.abstract,
            placed,
            job.store.vocabulary.fingerprint,
            job.log.say,
            before=first,
        )
        state = job.program.init() if state is None else state
        saved = int(state.step)
        job.ledger.back(saved)
    job.log.say(
        f"steps {first:,} to {guard.step:,} were skipped: on from step {saved:,}, with the data behind step {guard.step:,}"
    )
    job.log.forget(went_back_to=saved)
    guard.went_back()
    return state.replace(step=jax.device_put(np.int32(guard.step), placed.step))
