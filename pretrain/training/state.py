"""What a run carries from step to step, and how it begins."""

import inspect
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from data.mixed import Mixed, map_shapes, split_objective


class State(flax.struct.PyTreeNode):
    """What a run carries from step to step.

    step: the number of finished updates, int32; params: float32; optimizer: its own state; variables: {collection: tree of arrays
    [B, ...]}, what a model keeps of each row of a batch for the same row of the next; {} for a model that keeps nothing.
    """

    step: jax.Array
    params: Any
    optimizer: Any
    variables: Any = flax.struct.field(default_factory=dict)


def make_inputs(model, objective, batch_size):
    """Return an empty batch, as far as the model's signature names its keys; of a mixture, of its first part."""
    named = inspect.signature(type(model).__call__).parameters
    first = next(iter(split_objective(objective).values()))
    shapes = map_shapes(lambda shape, dtype: (shape, dtype), first, batch_size)
    return {key: jnp.zeros(*shapes[key]) for key in shapes if key in named}


def init_params(model, objective, seed):
    """Return fresh float32 parameters; a function of the model and the seed alone, on any mesh. Traceable.

    The model is called with what its signature names of an empty batch.
    """
    key = jax.random.fold_in(jax.random.key(seed), 0)
    return model.init({"params": key}, **make_inputs(model, objective, 1))["params"]


def init_variables(model, objective, batch_size):
    """Return what a model keeps between steps before the first: zeros, in the collections that its class names as `collections`."""
    names = getattr(model, "collections", ())
    if not names or isinstance(objective, Mixed):  # whose batches do not go on
        return {}
    init = partial(model.init, **make_inputs(model, objective, batch_size))
    shapes = jax.eval_shape(init, {"params": jax.random.key(0)})
    return {name: reset_variables(shapes[name]) for name in names}


def reset_variables(variables):
    """Return variables of these shapes as they are where nothing has been read: zeros."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), variables)


def init_state(model, objective, optimizer, seed, batch_size=1):
    """The state before the first step. Traceable: `jax.eval_shape` of it costs nothing."""
    variables = init_variables(model, objective, batch_size)
    return start(init_params(model, objective, seed), optimizer, variables)


def start(params, optimizer, variables=None):
    """A state at step 0 with the given parameters."""
    return State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        optimizer=optimizer.init(params),
        variables=variables or {},
    )
