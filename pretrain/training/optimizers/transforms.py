"""Shared parts of optimizers: gradient clipping, and which parameters weight decay applies to."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from pretrain.distributed.sharding import format_path


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Return a transformation that clips gradients to a global norm (Pascanu et al. 2013, 3.2).

    All gradients are multiplied by one factor; a `max_norm` of 0 leaves them unchanged.
    `optax.clip_by_global_norm` divides each gradient instead. XLA's CPU compiler does not fuse a
    division into the operations that read it, and so holds all gradients a second time.
    """
    if not max_norm:
        return optax.identity()

    def update_fn(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        norm = optax.tree.norm(updates)
        factor = jnp.where(norm < max_norm, 1.0, max_norm / norm)
        return jax.tree.map(lambda grad: grad * factor, updates), state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)


def make_weight_decay_mask(params: optax.Params) -> Any:
    """Return True for the parameters that weight decay applies to; see `is_decayed`."""
    return jax.tree_util.tree_map_with_path(lambda keys, _: is_decayed(format_path(keys)), params)


def is_decayed(path: str) -> bool:
    """Return whether weight decay applies to the parameter at `path`.

    It does not apply to biases, the scales of norms and the tables of relative positions.
    """
    return path.rpartition("/")[2] not in ("bias", "scale", "table")
