"""Shared parts of optimizers: clipping, sizes of parameters, and where weight decay applies."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from data.members import call_later
from pretrain.mesh.sharding import format_path

ramp_weight_decay = call_later("pretrain.training.optimizers.decay_ramp:ramp_weight_decay")


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Return a transformation that clips gradients to a global norm.

    Pascanu et al. (2013), section 3.2. All gradients are multiplied by one factor; a `max_norm` of
    0 leaves them unchanged. `optax.clip_by_global_norm` divides each gradient instead. XLA's CPU
    compiler does not fuse a division into the operations that read it, and so holds all gradients a
    second time.
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


def clip_by_rms(threshold: float) -> optax.GradientTransformation:
    """Return a transformation that scales down updates whose root mean square is above `threshold`.

    Their root mean square becomes `threshold` (Shazeer and Stern 2018, section 6). Each layer of a
    scanned stack is scaled by itself, as an unscanned layer is.
    """

    def clip_leaf(keys: tuple[Any, ...], update: jax.Array) -> jax.Array:
        return update / jnp.maximum(1.0, compute_rms(keys, update) / threshold)

    def clip(updates: optax.Updates, params: optax.Params | None) -> optax.Updates:
        return jax.tree_util.tree_map_with_path(clip_leaf, updates)

    return optax.stateless(clip)


def scale_by_param_rms(min_rms: float = 1e-3) -> optax.GradientTransformation:
    """Return a transformation that multiplies updates by the root mean square of their parameter.

    The factor is at least `min_rms` (Shazeer and Stern 2018, section 8). Each layer of a scanned
    stack has its own, as an unscanned layer has.
    """

    def scale_leaf(keys: tuple[Any, ...], update: jax.Array, param: jax.Array) -> jax.Array:
        return update * jnp.maximum(compute_rms(keys, param), min_rms)

    def scale(updates: optax.Updates, params: optax.Params | None) -> optax.Updates:
        return jax.tree_util.tree_map_with_path(scale_leaf, updates, params)

    return optax.stateless(scale)


def compute_rms(keys: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
    """Return the root mean square of a leaf, of each layer if `keys` lead to a scanned stack.

    The result broadcasts to the leaf.
    """
    return jnp.sqrt(jnp.square(leaf).mean(list_axes(keys, leaf.ndim), keepdims=True))


def list_axes(keys: tuple[Any, ...], ndim: int) -> tuple[int, ...]:
    """Return the axes of a parameter, without the axis of layers of a scanned stack, the first."""
    return tuple(range("/layers/" in f"/{format_path(keys)}", ndim))


def make_weight_decay_mask(params: optax.Params) -> Any:
    """Return True for the parameters that weight decay applies to; see `is_decayed`."""
    return jax.tree_util.tree_map_with_path(lambda keys, _: is_decayed(format_path(keys)), params)


def is_decayed(path: str) -> bool:
    """Return whether weight decay applies to the parameter at `path`.

    It does not apply to biases, such as `bias` and XLNet's `position_bias`, to the scales of norms,
    to the tables of relative positions, and to ESM-2's head of contacts, which nothing else trains.
    """
    name = path.rpartition("/")[2]
    return name not in ("bias", "scale", "table", "contact_weights") and not name.endswith("_bias")


def find_weight_decay(config: Any, unit: float = 1.0) -> Any:
    """Return an optimizer's weight decay over `unit`, a function of n where a ramp changes it."""
    if not config.weight_decay_ramp.is_constant:
        return ramp_weight_decay(config, unit)
    return config.weight_decay / unit
