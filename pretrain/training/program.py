"""What a run computes on a mesh: the model, the shapes and places of its state, and the compiled-to-be step and evaluation.

`train` runs it on the devices that are here, `plan` compiles it for devices that are not; both get the same program.
"""

from functools import partial
from typing import Any, NamedTuple

import jax

from data.mixed import Mixed, map_shapes
from models import build
from pretrain.distributed.model_hooks import make_model_hooks
from pretrain.distributed.sharding import batch_sharding, gathered, replicated, shardings
from pretrain.distributed.xla_options import compiler_options
from pretrain.overrides import ConfigError
from pretrain.training.cross_entropy import SCORES
from pretrain.training.evaluation import make_score
from pretrain.training.losses import Loss, LossOptions, MixedLoss, make_loss
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.schedules import make_learning_rate
from pretrain.training.state import State, init_state
from pretrain.training.step import make_step


class Program(NamedTuple):
    """`init()`, `update(state, batch)` and `score(params, batch)` are compiled for a mesh, none of them before it is called; `init` at each call.

    abstract: a `State` of shapes; placed: a `State` of shardings; batch: the shapes of a global batch, with their sharding; attention:
    which kernels they use, and why not others, as lines that are added when they are traced.
    """

    model: Any
    loss: Loss | MixedLoss
    abstract: State
    placed: State
    batch: dict
    init: Any
    update: Any
    score: Any
    attention: dict[str, list[str]]

    def state(self):
        """The shapes of a state, each with its sharding: what `update.lower` takes in place of arrays."""
        return jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            self.abstract,
            self.placed,
        )


def make_program(run, mesh, scores_at_once=SCORES):
    """The program of a `config.Run` on a `jax.sharding.Mesh`. Costs a trace of the initialisation and no memory.

    scores_at_once: as in `losses.LossOptions`.
    """
    loss = make_loss(run.data.objective)
    attention = {"update": [], "score": []}
    model, scored = (
        build(run.model, **make_model_hooks(mesh, attention[name])) for name in ("update", "score")
    )
    optimizer, rate = make_run_optimizer(run), make_learning_rate(run.optimizer, run.train.steps)
    init = partial(
        init_state,
        build(run.model),
        run.data.objective,
        optimizer,
        run.train.seed,
        run.data.batch_size,
    )
    abstract = jax.eval_shape(init)
    placed = shardings(abstract, mesh)
    rows = batch_sharding(mesh)
    step = make_step(
        model,
        loss,
        optimizer,
        rate,
        seed=run.train.seed,
        microbatches=run.train.microbatches,
        norm_factor=run.guard.norm_factor,
        norm_window=run.guard.norm_window,
        options=LossOptions(
            compute_dtype=run.train.compute_dtype,
            gather=gathered(mesh),
            scores_at_once=scores_at_once,
            label_smoothing=run.train.label_smoothing,
        ),
    )
    return Program(
        model=model,
        loss=loss,
        abstract=abstract,
        placed=placed,
        batch=map_shapes(
            partial(jax.ShapeDtypeStruct, sharding=rows), run.data.objective, run.data.batch_size
        ),
        init=partial(once, init, out_shardings=placed),
        update=jax.jit(
            step,
            in_shardings=(placed, rows),
            out_shardings=(placed, replicated(mesh)),
            donate_argnums=0,
            compiler_options=compiler_options(mesh),
        ),
        score=make_score(scored, loss, mesh, compute=run.train.compute_dtype),
        attention=attention,
    )


def once(function, **how):
    """function(), compiled as `jax.jit` is told and forgotten: what draws T5-small's parameters would take 180 MiB for as long as it is trained."""
    compiled = jax.jit(function, **how)
    try:
        return compiled()
    finally:
        compiled.clear_cache()  # pyright: ignore[reportAttributeAccessIssue] - not in jax.jit's declared type


def check_batch(run, mesh):
    """The rows must divide among micro-batches and devices."""
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    divisor, objective = run.train.microbatches * shards, run.data.objective
    into = f"train.microbatches={run.train.microbatches} on data x fsdp = {shards} devices"
    if not isinstance(objective, Mixed):
        if run.data.batch_size % divisor:
            raise ConfigError(
                f"data.batch_size={run.data.batch_size} does not divide into {into}; it must be a multiple of {divisor}"
            )
        return
    for name, rows in objective.rows(run.data.batch_size).items():
        if rows % divisor:
            raise ConfigError(
                f"data.batch_size={run.data.batch_size} gives the part {name} {rows} rows, which do not divide into {into}: "
                f"each part's rows must be a multiple of {divisor}"
            )
