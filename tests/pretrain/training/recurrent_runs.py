"""Runs of models with a memory: a few steps in this process, and a run that is killed."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import jax

from data.config import Data
from models import build
from pretrain.config import AdamW, Checkpoint, Evaluate, Mesh, Run, Train, to_json
from pretrain.mesh.sharding import BATCH, make_mesh
from pretrain.training.program import make_program
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from tests import forks


def make_run(model, objective, store, samples=0, steps=12):
    """Return a run of rows of a store (a path) that evaluates and saves a few times."""
    return Run(
        model=model,
        data=Data(objective=objective, store=str(store), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=steps, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=samples),
        checkpoint=Checkpoint(every=4, keep=10),
    )


def run_steps(run, stream, mesh=None, microbatches=1, count=3, dropout=0.0):
    """Return the state after so many steps, on one device or on a mesh."""
    run = dataclasses.replace(
        run,
        model=dataclasses.replace(run.model, dropout=dropout),
        train=dataclasses.replace(run.train, microbatches=microbatches),
    )
    mesh = make_mesh(Mesh(**(mesh or {"data": 1})), None if mesh else jax.devices()[:1])
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        state, rows = program.init(), next(iter(program.batch.values())).sharding
        for step in range(count):
            batch = jax.device_put(stream.build_batch(step), rows)
            state, metrics = program.train_step(state, batch)
            assert not int(metrics["skipped"])
        places = {str(leaf.sharding.spec) for leaf in jax.tree.leaves(state.variables)}
        assert places == ({str(BATCH)} if state.variables else set())
        return jax.device_get(state)


def train_run(path, workdir, *words, popen=False, devices=1, program="pretrain"):
    command = [sys.executable, "-m", program, "train", str(path), "--workdir", str(workdir), *words]
    options = {"env": os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}}
    if popen:
        return forks.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    done = forks.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def await_checkpoint(process, workdir):
    """Wait until a run has made its sixth step, at which it evaluates, and has a checkpoint, which
    is written next to the steps.
    """
    end, metrics = time.monotonic() + 120, workdir / "metrics.jsonl"
    while not (
        any(row["step"] >= 6 for row in metrics_file.read_metrics(metrics))
        and any(workdir.glob("checkpoints/*/commit_success.txt"))
    ):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.005)


def check_killed_run(run, folder, *words, **options):
    """Kill a run after its sixth step, continue it, and compare its end with another's; return the
    record of that end.

    The memory of a model with a state is compared too.
    """
    path = folder / "run.json"
    path.write_text(to_json(run))
    train_run(path, folder / "whole", *words, **options)
    process = train_run(path, folder / "killed", *words, popen=True, **options)
    await_checkpoint(process, folder / "killed")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "continuing after step " in train_run(path, folder / "killed", *words, **options)
    records = []
    for name in ("whole", "killed"):
        with Checkpoints(folder / name, read_only=True) as checkpoints:
            records.append(checkpoints.load_record(run.train.steps))
    for part in ("params", "optimizer", "variables"):
        assert records[0][part] == records[1][part]
    carried = {path.split("/")[0] for path in records[0]["variables"]}
    assert carried == {*build(run.model).collections}
    assert bool(carried) == run.model.keeps_state
    return records[1]
