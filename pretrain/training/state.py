"""The state of a run between steps, and its initial value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from data.members import call_later
from data.mixed import Mixed, map_shapes, split_objective
from data.objectives.objective import Objective
from models import build
from pretrain.config import Run

add_factors = call_later("pretrain.training.optimizers.factors:add_factors")
THREEFRY_KERNEL = "jax_threefry_gpu_kernel_lowering"


class TrainState(flax.struct.PyTreeNode):
    """The state of a run between steps.

    Attributes:
      step: number of finished steps, int32 scalar.
      params: float32.
      variables: {collection: tree of arrays [B, ...]}, which a model passes from each row of a
        batch to the same row of the next batch; {} for a model without such collections.
    """

    step: jax.Array
    params: Any
    optimizer: Any
    variables: Any = flax.struct.field(default_factory=dict)


def make_dummy_inputs(
    model: Any, objective: Objective | Mixed, batch_size: int
) -> dict[str, jax.Array]:
    """Return the arguments of the model's `__call__` for an empty batch.

    The batch of a mixture of objectives comes from its first part.
    """
    parameters = inspect.signature(type(model).__call__).parameters
    first_objective = next(iter(split_objective(objective).values()))
    shapes = map_shapes(lambda shape, dtype: (shape, dtype), first_objective, batch_size)
    return {key: jnp.zeros(*shapes[key]) for key in shapes if key in parameters}


def init_params(model: Any, objective: Objective | Mixed, seed: int) -> Any:
    """Return fresh float32 parameters, a function of model and seed alone. Traceable."""
    key = jax.random.fold_in(jax.random.key(seed), 0)
    return model.init({"params": key}, **make_dummy_inputs(model, objective, 1))["params"]


def init_variables(model: Any, objective: Objective | Mixed, batch_size: int) -> dict[str, Any]:
    """Return zeros for the collections in the model's `collections`."""
    names = model.collections
    if not names or isinstance(objective, Mixed):  # The rows of a mixture do not continue.
        return {}
    init = partial(model.init, **make_dummy_inputs(model, objective, batch_size))
    shapes = jax.eval_shape(init, {"params": jax.random.key(0)})
    return {
        name: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes[name])
        for name in names
    }


def init_state(
    model: Any,
    objective: Objective | Mixed,
    optimizer: optax.GradientTransformation,
    seed: int,
    batch_size: int = 1,
) -> TrainState:
    """Return the state before the first step. Traceable: `jax.eval_shape` of it costs no memory."""
    variables = init_variables(model, objective, batch_size)
    return create_state(init_params(model, objective, seed), optimizer, variables)


def init_run_state(run: Run, optimizer: optax.GradientTransformation) -> TrainState:
    """Return the state before the first step of a run, with LoRA's factors if it has some."""
    data, seed = run.data, run.train.seed
    state = init_state(build(run.model), data.objective, optimizer, seed, data.batch_size)
    if not run.train.lora_rank:
        return state
    return create_state(add_factors(run, state.params), optimizer, state.variables)


def create_state(
    params: Any,
    optimizer: optax.GradientTransformation,
    variables: Mapping[str, Any] | None = None,
) -> TrainState:
    """Return a state at step 0 with the given parameters."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        optimizer=optimizer.init(params),
        variables=variables or {},
    )


def initialize_state(
    init: Callable[[], TrainState], mesh: jax.sharding.Mesh, shardings: Any
) -> TrainState:
    """Return init() on the devices of a mesh.

    On one GPU, JAX's kernel for Threefry draws the bits. XLA computes its twenty rounds in each
    fusion, and compiles BERT-base with unrolled layers in 47 s instead of 10. On several
    devices, that kernel would draw all bits on each of them.
    """
    if mesh.size > 1 or mesh.devices.flat[0].platform != "gpu":
        return jit_and_discard(init, out_shardings=shardings)
    before = getattr(jax.config, THREEFRY_KERNEL)
    jax.config.update(THREEFRY_KERNEL, True)
    try:
        return jit_and_discard(init, out_shardings=shardings)
    finally:
        jax.config.update(THREEFRY_KERNEL, before)


def jit_and_discard(function: Callable[[], Any], **options: Any) -> Any:
    """Return function(), jitted with `options`, and discard the compiled program.

    The program that initialises T5-small would otherwise occupy 180 MiB during the whole training.
    """
    compiled = jax.jit(function, **options)
    try:
        return compiled()
    finally:
        compiled.clear_cache()  # pyright: ignore[reportAttributeAccessIssue] - not in jax.jit's type
