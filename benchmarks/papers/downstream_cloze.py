"""The worker of `downstream_peer` for Cloze: the training steps of a fine-tuning.

    python -m benchmarks.papers.downstream_cloze WORKDIR ENCODER [OVERRIDE ...]

WORKDIR has a finished fine-tuning; its steps run again, with their input pipeline.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import jax

from benchmarks.harness import answer_messages
from benchmarks.speed.step_cloze import compute_loss
from data.pipeline import Stream
from data.store.reader import Store
from pretrain.config import override_run
from pretrain.finetune.start import make_initial_params
from pretrain.mesh.device_feed import prefetch_to_devices
from pretrain.mesh.sharding import make_mesh
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.program import make_program
from pretrain.training.state import create_state
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir


def serve_requests() -> dict[str, Any]:
    """Return the first answer, with the loss before the first step, and the step function.

    The step function runs `steps` training steps and returns their seconds and losses.
    """
    workdir, encoder, *overrides = sys.argv[1:]
    run = override_run(Workdir.open(workdir).run, ["model.encoder.scan=false", *overrides])
    mesh = make_mesh(run.mesh)
    program = make_program(run, mesh)
    params, _ = make_initial_params(run, open_trained(encoder), "head")
    state = jax.device_put(create_state(params, make_run_optimizer(run)), program.state_shardings)
    stream = Stream(Store.open(run.data.store), run.data, split="train", seed=run.train.seed)
    source = prefetch_to_devices(stream, mesh, 0, run.train.steps)
    first, batch = next(source)
    source = itertools.chain([(first, batch)], source)
    loss = compute_loss(program, state.params, batch, run.train.compute_dtype)

    def train_steps(steps: int) -> dict[str, Any]:
        nonlocal state
        start, cpu_start, losses = time.perf_counter(), time.process_time(), []
        for _ in range(steps):
            _, batch = next(source)
            state, metrics = program.train_step(state, batch)
            losses.append(metrics["loss"])
        losses = [float(loss) for loss in losses]
        return {
            "seconds": time.perf_counter() - start,
            "cpu": time.process_time() - cpu_start,
            "losses": losses,
        }

    return {"ready": {"loss": loss, "versions": [f"JAX {jax.__version__}"]}, "step": train_steps}


if __name__ == "__main__":
    answer_messages(serve_requests)
