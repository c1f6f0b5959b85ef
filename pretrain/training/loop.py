"""Training, top to bottom: mesh, data, model, optimizer, state, restore, then for each step and batch one update."""

import contextlib
import time
from typing import NamedTuple

import jax
import numpy as np
from etils import epath

from data.pipeline import Stream
from data.store.atomic import replace_folder, write_atomically
from data.store.reader import Store
from data.store.salvage import told
from pretrain.config import Run, read_json, to_json
from pretrain.distributed import malloc_advice, processes
from pretrain.distributed.device_feed import feed, local_rows
from pretrain.distributed.preflight import preflight, preflight_store
from pretrain.distributed.replica_check import Replicas
from pretrain.distributed.sharding import kept_whole, make_mesh
from pretrain.distributed.watchdog import Watchdog
from pretrain.evaluation.label_checks import check_store
from pretrain.overrides import ConfigError, difference
from pretrain.training import truncation_report
from pretrain.training.divergence import Guard
from pretrain.training.evaluation import make_evaluator
from pretrain.training.gap_samples import beside, make_sampler
from pretrain.training.logger import Log
from pretrain.training.preemption import Stop
from pretrain.training.program import Program, check_batch, make_program
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.goodput import Ledger
from pretrain.workdir.skipped_documents import check_left_out, write_left_out

# A run may be continued with these changed: they choose where and how often, not what is computed.
FREE = (
    "mesh.",
    "evaluate.",
    "checkpoint.",
    "watchdog.",
    "guard.replicas",
    "train.steps",
    "train.until",
)
FREE += ("data.store", "data.threads", "data.prefetch", "model.remat", "model.encoder.remat")

FULL = 0.9  # share of the rows' places that hold a token: below it, whoever pads is told of packing


def train(run, workdir, allow_changes=False, began=None):
    """Train `run` to its last step in `workdir`, from the newest checkpoint there if there is one. began: `time.time()` of the command.

    Returns None when the last step is done, or the number of the signal that ended it early (after saving). The result is a function
    of the configuration and the token store: a run that was killed and started again ends with the same bits, on the same devices.
    Raises ConfigError where configuration, store, mesh and workdir do not fit each other, before anything is computed; and
    `guard.Diverged` where every step is skipped, and `replicas.Altered` where devices disagree.
    """
    began = began or time.time()
    workdir = epath.Path(workdir)
    mesh = make_mesh(run.mesh)
    check_batch(run, mesh)
    check_workdir(run, workdir, allow_changes)
    preflight(run, workdir)
    store = Store.open(run.data.store)
    check_vocabulary(run, store.vocabulary)
    check_store(run, store)
    store = preflight_store(run, store)
    check_left_out(store, workdir, allow_changes)
    stream = Stream(store, run.data, split="train", seed=run.train.seed)
    heldout = (
        Stream(store, run.data, split="heldout", seed=run.train.seed)
        if run.evaluate.every
        else None
    )

    program = make_program(run, mesh)
    evaluate = make_evaluator(
        program.model,
        program.loss,
        mesh,
        compute=run.train.compute,
        metrics=run.evaluate.metrics,
        objective=run.data.objective,
    )
    sampler = make_sampler(run, program, mesh, heldout, workdir)

    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.set_mesh(mesh))
        watchdog = stack.enter_context(
            Watchdog(
                run.watchdog, workdir / f"hung-{jax.process_index()}.txt", processes.say_farewell
            )
        )
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
        ledger = stack.enter_context(
            Ledger(None if jax.process_index() else workdir, began, start, watchdog.to)
        )
        guard = Guard(run.guard.patience, kept)
        log = stack.enter_context(Log(run, workdir, mesh, start, guard, ledger))
        log.say(opening(run, store, stream, program.abstract.params, mesh, start, heldout))
        job = Job(
            run,
            store,
            program,
            checkpoints,
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
        with ledger.during("compile" if step == start else "step"):
            with jax.transfer_guard(
                "disallow"
            ):  # a value from the host that slipped in would stall every step
                state, metrics = program.update(state, batch)
        if step == start:
            log.say(f"attention by {'; '.join(program.attention['update'])}")
        done, scores = step + 1, None
        stopping = job.stop.requested(done)
        due = due or done % run.checkpoint.every == 0
        log.step(done, metrics)
        job.checkpoints.check()
        if not guard.tripped:
            if run.evaluate.every and done % run.evaluate.every == 0 or done == run.train.end:
                scores = score(state.params, done)
            if due or stopping or done == run.train.end:
                log.sync()
        if guard.tripped and guard.step < run.train.end:
            state = None  # or both lie on the devices at once
            state, done = go_back(job), guard.step
        finished = done == run.train.end
        if finished:
            guard.ended()
        saving = finished or stopping or due and guard.good
        if saving or job.replicas.due(done):
            with ledger.during("save"):
                job.replicas.check(state, done)
        if saving:
            with ledger.during("save"):
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


def check_vocabulary(run, vocabulary):
    """Every id of the store must have a row in the model's embedding: an id too large is silent on the device."""
    if run.model.vocab < vocabulary.size:
        raise ConfigError(
            f"model.vocab={run.model.vocab} is smaller than the token store's vocabulary of {vocabulary.size}; "
            f"set model.vocab={-(-vocabulary.size // 128) * 128} (a multiple of 128 suits the hardware)"
        )
    first = getattr(run.model, "first_position", None)
    if None not in (first, vocabulary.pad) and first != vocabulary.pad + 1:
        raise ConfigError(
            f"model.first_position={first}, but positions begin behind the padding's id, which is {vocabulary.pad} in the token store's "
            f"vocabulary; set model.first_position={vocabulary.pad + 1}"
        )
    start = getattr(run.model, "start", None)
    if start is not None and start != vocabulary.eos:
        raise ConfigError(
            f"model.start={start}, but </s> is {vocabulary.eos} in the token store's vocabulary; set model.start={vocabulary.eos}"
        )
    length = getattr(run.model, "length", None)
    if length is not None and run.data.objective.dims()["L"] > length:
        raise ConfigError(
            f"rows of {run.data.objective.dims()['L']} are longer than the model's positions; set model.length"
        )


def check_workdir(run, workdir, allow_changes):
    """A workdir belongs to one configuration, but for what FREE lists."""
    path = workdir / "config.json"
    if not path.exists():
        return
    rows = difference(read_json(path), run)
    changed = [f"{key}: {old} -> {new}" for key, old, new in rows if not key.startswith(FREE)]
    if changed and not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run of another configuration: "
            + "; ".join(changed)
            + ". Name a new --workdir, or add --allow-changes"
        )
    for line in changed:
        print(f"changed on continuing: {line}")


def write_workdir(run, store, workdir):
    """config.json and vocabulary/, by the first process, each whole or not at all."""
    if jax.process_index():
        return
    write_atomically(workdir / "config.json", to_json(run))
    if not (workdir / "vocabulary").exists():
        with replace_folder(workdir / "vocabulary") as folder:
            store.vocabulary.save(str(folder))


def opening(run, store, stream, params, mesh, start, heldout=None):
    """What a person wants to know before waiting."""
    size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    lines = [
        f"{type(run.model).__name__} of {size:,} parameters in float32, computed in {run.train.compute}, "
        f"on {mesh.size} {mesh.devices.flat[0].device_kind} ({axes})",
        f"{run.data.objective.name} on {store.path}: {stream.rows:,} rows an epoch, {run.data.batch_size} a step, "
        f"{run.train.end * run.data.batch_size / stream.rows:.3g} epochs in {run.train.end:,} steps",
    ]
    if jax.process_count() > 1:
        own = sum(hi - lo for lo, hi in local_rows(mesh, run.data.batch_size))
        lines += [
            f"{jax.process_count()} processes; this one builds {own} of {run.data.batch_size} rows of each batch"
        ]
    if (lost := told(store)) != told(None):
        lines += [f"left out, for their bytes have changed: {lost}; see left_out.json"]
    if getattr(run.data.objective, "rows", None) == "documents" and stream.table.filled < FULL:
        lines += [
            f"{1 - stream.table.filled:.0%} of the rows is padding: data.objective.rows=packed puts several documents into one (docs/packing.md)"
        ]
    lines += truncation_report.told(stream) + (
        truncation_report.told(heldout, "held out: ") if heldout else []
    )
    lines += [
        f"kept whole: {path}, whose {size} does not divide by {axis}={mesh.shape[axis]}"
        for path, size, axis in kept_whole(params, mesh)
    ]
    lines += filter(None, [malloc_advice.advice(mesh.devices.flat[0].platform)])
    return "\n".join(lines + ([f"continuing after step {start:,}"] if start else []))


# ---- while it runs -----------------------------------------------------------


def go_back(job):
    """The state of the last checkpoint before the steps that were skipped, with the number of the last of them: see `guard`."""
    guard, placed = job.guard, job.program.placed
    first = guard.first()
    with job.ledger.during("start"):
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
