"""The jitted functions of a run on a mesh, and the shapes and shardings of its state.

`train` runs this program on the devices of the machine, `plan` compiles the same program for
devices that are not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from etils import epath
from jax.sharding import Mesh

from data.members import call_later
from data.mixed import Mixed, map_shapes
from data.objectives.objective import Objective
from models import build
from models.config.base import ImageConfig
from models.layers.ops import leave_unchanged
from pretrain.config import Run
from pretrain.kernels.attention.choice import AttentionRules, has_kernels
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.gradient_exchange import (
    GradientFn,
    describe_exchange,
    find_exchange_obstacle,
    make_gradient_exchange,
)
from pretrain.mesh.sharding import (
    make_batch_sharding,
    make_gather,
    make_replicated_sharding,
    make_state_shardings,
)
from pretrain.mesh.xla_options import get_compiler_options
from pretrain.settings.overrides import ConfigError
from pretrain.training.cross_entropy import (
    MAX_SCORES_IN_HBM,
    MAX_SCORES_PER_CHIP,
    MAX_SCORES_PER_ROW,
    take_scores,
    take_scores_on_gpu,
)
from pretrain.training.evaluation import make_evaluation_step
from pretrain.training.losses import Loss, LossOptions, MixedLoss, make_loss
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.schedules import Schedule, make_learning_rate
from pretrain.training.state import TrainState, init_run_state, initialize_state
from pretrain.training.step import make_train_step
from pretrain.training.trials import EXCHANGE, GATHERS, LOSS, TRUSTING, Trust

make_lora = call_later("pretrain.training.optimizers.factors:make_lora")
make_trusted_program = call_later("pretrain.training.trials.trusted_program:make_trusted_program")


class Program(NamedTuple):
    """The functions of a run, each compiled for the mesh at its first call, `init` at every call.

    Attributes:
      loss: of the run's objective.
      abstract_state: a `TrainState` of shapes.
      batch: the shapes of a global batch, with their shardings.
      init: () -> TrainState.
      train_step: (state, batch) -> (state, metrics).
      merge: parameters of a state -> parameters of the model; they differ with LoRA.
      evaluation_step: (the model's parameters, batch, variables) -> sums, weights, row predictions
        and new variables; see `step.make_evaluation_fn`.
      attention: {"update": lines, "score": lines} on the attention kernels in use and on the
        reasons against faster ones; tracing adds the lines.
      exchange: lines on how gradients cross between devices; see `describe_exchange`.
      scores_at_once: as in `losses.LossOptions`.
      refusals: lines on the operations that were left out; see `trusted_program`.
    """

    model: Any
    loss: Loss | MixedLoss
    abstract_state: TrainState
    state_shardings: TrainState
    batch: dict[str, Any]
    init: Callable[[], TrainState]
    train_step: Any
    merge: Callable[[Any], Any]
    evaluation_step: Any
    attention: dict[str, list[str]]
    exchange: list[str]
    scores_at_once: float
    refusals: Sequence[str] = ()

    def describe_state(self) -> TrainState:
        """Return the shapes of a state with their shardings, an argument of `train_step.lower`."""
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            self.abstract_state,
            self.state_shardings,
        )

    def get_step_text(self) -> str:
        """Return the text of the compiled training step; it is not compiled a second time."""
        return self.train_step.lower(self.describe_state(), self.batch).compile().as_text()


def choose_program(
    run: Run, mesh: Mesh, workdir: epath.Path, make: Callable[..., Program]
) -> Program:
    """Return the program of a run; on devices with kernels, those that agree with the equations.

    make: `make_program`.
    """
    if has_kernels(mesh):
        return make_trusted_program(run, mesh, workdir, make)
    return make(run, mesh)


def make_program(
    run: Run,
    mesh: jax.sharding.Mesh,
    scores_at_once: float | None = None,
    trust: Trust = TRUSTING,
    rate: Schedule | None = None,
) -> Program:
    """Return the program of a run on a mesh. This traces the initialisation and needs no memory.

    Args:
      scores_at_once: as in `losses.LossOptions`; by default from `choose_scores_at_once`.
      trust: which operations are used; all that serve the run by default.
      rate: the learning rate; the run's own by default.

    Raises ConfigError as `check_attention`.
    """
    if not trust.is_strict:
        check_attention(run, mesh)
    loss, attention = make_run_loss(run), {"update": [], "score": []}
    make_hooks = partial(make_trusted_hooks, run, mesh, trust)
    model, evaluation_model = (
        build(run.model, **make_hooks(attention[name])) for name in ("update", "score")
    )
    rate = rate or make_learning_rate(run.optimizer, run.train.steps)
    optimizer, data = make_run_optimizer(run, rate), run.data
    merge, differentiate = make_lora(run) if run.train.lora_rank else (leave_unchanged,) * 2
    refused, init = trust.list_refused(data.objective), partial(init_run_state, run, optimizer)
    abstract_state = jax.eval_shape(init)
    params = abstract_state.params
    if scores_at_once is None or LOSS in trust.refused:
        scores_at_once = choose_scores_at_once(run, mesh, params, trust.refused)
    state_shardings = make_state_shardings(abstract_state, mesh)
    make_on_shard = partial(make_hooks, attention["update"], True)
    strategy = choose_gradient_strategy(run, mesh, params, model, make_on_shard, refused)
    step = make_train_step(
        *(strategy.model, loss, optimizer, rate),
        seed=run.train.seed,
        microbatches=run.train.microbatches,
        norm_factor=run.guard.norm_factor,
        norm_window=run.guard.norm_window,
        options=make_loss_options(run, mesh, strategy.gather, scores_at_once, trust.refused),
        exchange=lambda compute: differentiate(strategy.exchange(compute)),
    )
    make_struct = partial(jax.ShapeDtypeStruct, sharding=make_batch_sharding(mesh))
    return Program(
        model=model,
        loss=loss,
        abstract_state=abstract_state,
        state_shardings=state_shardings,
        batch=map_shapes(make_struct, data.objective, data.batch_size),
        init=partial(initialize_state, init, mesh, state_shardings),
        train_step=jit_step(step, mesh, state_shardings),
        merge=merge,
        evaluation_step=make_evaluation_step(
            evaluation_model, loss, mesh, compute_dtype=run.train.compute_dtype
        ),
        attention=attention,
        exchange=describe_exchange(params, mesh, run.train, refused.get(EXCHANGE)),
        scores_at_once=scores_at_once,
    )


def make_run_loss(run: Run) -> Loss | MixedLoss:
    """Return the loss of a run; raise ConfigError for a z-loss of classes or scores."""
    loss = make_loss(run.data.objective)
    if run.train.z_loss and isinstance(loss, Loss) and loss.row_predictions is not None:
        raise ConfigError(
            f"train.z_loss={run.train.z_loss:g}: {run.data.objective.name} predicts no tokens; "
            "give train.z_loss=0"
        )
    return loss


def jit_step(step: Callable[..., Any], mesh: jax.sharding.Mesh, state_shardings: Any) -> Any:
    """Return a training step, jitted for a mesh, which donates the state."""
    return jax.jit(
        step,
        in_shardings=(state_shardings, make_batch_sharding(mesh)),
        out_shardings=(state_shardings, make_replicated_sharding(mesh)),
        donate_argnums=0,
        compiler_options=get_compiler_options(mesh),
    )


def make_trusted_hooks(
    run: Run, mesh: jax.sharding.Mesh, trust: Trust, attention: list[str], on_shard: bool = False
) -> dict[str, Any]:
    """Return `make_model_hooks` of a run, without what is not trusted."""
    rules = AttentionRules(run.train.attention, trust.is_strict, trust.find_doubt)
    return make_model_hooks(mesh, attention, on_shard, rules, GATHERS not in trust.refused)


def make_loss_options(
    run: Run,
    mesh: jax.sharding.Mesh,
    gather: Callable[[Any], Any],
    scores_at_once: float,
    refused: Mapping[str, str],
) -> LossOptions:
    """Return the options of a run's loss. refused: as in `Trust`."""
    is_gpu = mesh.devices.flat[0].platform == "gpu"
    take = take_scores_on_gpu if is_gpu and LOSS not in refused else take_scores
    train = run.train
    return LossOptions(
        train.compute_dtype, gather, scores_at_once, train.label_smoothing, take, train.z_loss
    )


def choose_scores_at_once(run: Run, mesh: Mesh, params: Any, refused: Any = ()) -> float:
    """Return how many logits of the vocabulary a row holds at a time in training.

    Each chunk of logits reads and writes the float32 gradient of the vocabulary's matrix, and fills
    its rows up to a multiple of the side of a matrix unit. So an accelerator takes few chunks. A
    chunk moves 8 bytes for each element of the matrix, and logits that are held in HBM move about
    16 bytes each. So if the matrix has more than twice as many elements as the chip holds logits,
    fewer chunks with their logits in HBM move less. On a CPU the limit is a row's.

    params: the parameters of the model, or their shapes. refused: as in `Trust`.
    """
    if LOSS in refused:
        return math.inf
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return MAX_SCORES_PER_ROW
    num_shards = mesh.shape["data"] * mesh.shape["fsdp"]
    rows_per_device = run.data.batch_size / (run.train.microbatches * num_shards)
    devices_per_row = mesh.size / num_shards
    max_scores = MAX_SCORES_PER_CHIP.get(device.device_kind, MAX_SCORES_IN_HBM)
    vocab = None if isinstance(run.model, ImageConfig) else run.model.vocab
    matrices = [math.prod(x.shape) for x in jax.tree.leaves(params) if vocab in x.shape]
    if max(matrices, default=0) / mesh.shape["model"] > 2 * max_scores:
        max_scores = MAX_SCORES_IN_HBM
    return max(MAX_SCORES_PER_ROW, max_scores * devices_per_row / rows_per_device)


class GradientStrategy(NamedTuple):
    """How the gradient of a batch is computed on a mesh.

    Attributes:
      model: the Linen module, for the whole batch or for the rows of one device.
      gather: as in `losses.LossOptions`.
      exchange: as in `step.make_train_step`.
    """

    model: Any
    gather: Callable[[Any], Any]
    exchange: Callable[[GradientFn], GradientFn]


def choose_gradient_strategy(
    run: Run,
    mesh: jax.sharding.Mesh,
    params: Any,
    model: Any,
    make_hooks: Callable[[], dict[str, Any]],
    refused: Mapping[str, str],
) -> GradientStrategy:
    """Return the strategy of a run: gradients that cross once a step, or as XLA partitions them.

    Args:
      params: shapes of the parameters.
      make_hooks: () -> what `make_model_hooks` returns for the rows of one device.
      refused: as in `Trust`.
    """
    dtype, exchange_dtype = run.train.compute_dtype, run.train.exchange_dtype
    obstacle = find_exchange_obstacle(params, mesh, dtype, run.train.microbatches)
    obstacle = obstacle or refused.get(EXCHANGE)
    if obstacle is None:
        on_shard = build(run.model, **make_hooks())
        exchange = make_gradient_exchange(mesh, dtype, exchange_dtype)
        return GradientStrategy(on_shard, leave_unchanged, exchange)
    if exchange_dtype and mesh.size > 1:
        raise ConfigError(
            f"train.exchange_dtype={exchange_dtype} needs gradients that cross once a step, and "
            f"here they do not: {obstacle}; set train.exchange_dtype=none"
        )
    return GradientStrategy(model, make_gather(mesh), leave_unchanged)


def check_attention(run: Run, mesh: jax.sharding.Mesh) -> None:
    """Raise ConfigError for a kernel in `train.attention` that cannot serve the training step.

    This traces the step, unless any kernel or none will do.
    """
    choice = run.train.attention
    if choice in ("auto", "plain"):
        return
    program = make_program(run, mesh, trust=Trust(is_strict=True))
    with jax.set_mesh(mesh):
        program.train_step.trace(program.describe_state(), program.batch)
    if not program.attention["update"]:
        raise ConfigError(
            f"train.attention={choice} has no effect: a {type(run.model).__name__} has no "
            "attention that a kernel computes; choose auto"
        )


def check_batch(run: Run, mesh: jax.sharding.Mesh) -> None:
    """Raise ConfigError unless the rows of a batch divide among microbatches and devices."""
    check_rows(run.data.objective, run.data.batch_size, mesh, run.train.microbatches)


def check_rows(
    objective: Objective | Mixed, batch_size: int, mesh: jax.sharding.Mesh, microbatches: int = 1
) -> None:
    """Raise ConfigError unless `batch_size` rows divide among microbatches and devices."""
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    divisor = microbatches * shards
    divisor_terms = f"train.microbatches={microbatches} on data x fsdp = {shards} devices"
    if not isinstance(objective, Mixed):
        if batch_size % divisor or batch_size < 1:
            raise ConfigError(
                f"data.batch_size={batch_size} does not divide into {divisor_terms}; it must be a "
                f"multiple of {divisor}, at least {divisor}"
            )
        return
    for name, rows in objective.count_part_rows(batch_size).items():
        if rows % divisor:
            raise ConfigError(
                f"data.batch_size={batch_size} gives the part {name} {rows} rows, which do not "
                f"divide into {divisor_terms}: each part's rows must be a multiple of {divisor}"
            )
