"""The side of Cloze in benchmarks/downstream_peer.py: steps of `train`, with their input, of a fine-tuning that was begun before.

python -m benchmarks.downstream_cloze WORKDIR ENCODER [OVERRIDE ...]
"""

import itertools
import sys
import time

import jax

from benchmarks.harness import answer
from benchmarks.step_cloze import compute_loss
from data.pipeline import Stream
from data.store.reader import Store
from pretrain.config import override
from pretrain.distributed.device_feed import feed
from pretrain.distributed.sharding import make_mesh
from pretrain.finetune.start import make_initial_params
from pretrain.inference.trained import open_trained
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.program import make_program
from pretrain.training.state import start
from pretrain.workdir.checkpoints import read_run


def serve():
    """The loss before the first step, and a function that runs steps of `train` with its input."""
    workdir, encoder, *words = sys.argv[1:]
    run = override(read_run(workdir), ["model.encoder.scan=false", *words])
    mesh = make_mesh(run.mesh)
    program = make_program(run, mesh)
    params, _ = make_initial_params(run, open_trained(encoder), "head")
    state = jax.device_put(start(params, make_run_optimizer(run)), program.placed)
    stream = Stream(Store.open(run.data.store), run.data, split="train", seed=run.train.seed)
    source = feed(stream, mesh, 0, run.train.steps)
    first, batch = next(source)
    source = itertools.chain([(first, batch)], source)
    loss = compute_loss(program, state.params, batch, run.train.compute_dtype)

    def step(steps):
        nonlocal state
        began, cpu, losses = time.perf_counter(), time.process_time(), []
        for _ in range(steps):
            _, batch = next(source)
            state, metrics = program.update(state, batch)
            losses.append(metrics["loss"])
        losses = [float(each) for each in losses]
        return {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            "losses": losses,
        }

    return {"ready": {"loss": loss, "versions": [f"JAX {jax.__version__}"]}, "step": step}


if __name__ == "__main__":
    answer(serve)
