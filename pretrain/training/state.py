"""What a run carries from step to step, and how it begins."""

import inspect
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from data import batch_spec


class State(flax.struct.PyTreeNode):
    """The number of finished updates (int32), float32 parameters, and the optimizer's own state."""

    step: jax.Array
    params: Any
    optimizer: Any


def init_params(model, objective, seed):
    """Return fresh float32 parameters; a function of the model and the seed alone, on any mesh. Traceable.

    The model is called with what its signature names of an empty batch.
    """
    named = inspect.signature(type(model).__call__).parameters
    inputs = {
        key: jnp.zeros(shape, dtype)
        for key, (dtype, shape) in batch_spec.shapes(objective, 1).items()
        if key in named
    }
    key = jax.random.fold_in(jax.random.key(seed), 0)
    return model.init({"params": key}, **inputs)["params"]


def init_state(model, objective, optimizer, seed):
    """The state before the first step. Traceable: `jax.eval_shape` of it costs nothing."""
    return start(init_params(model, objective, seed), optimizer)


def start(params, optimizer):
    """A state at step 0 with the given parameters."""
    return State(step=jnp.zeros((), jnp.int32), params=params, optimizer=optimizer.init(params))
