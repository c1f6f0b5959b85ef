"""What optimizers share: clipping, and which parameters weight decay applies to."""

import jax
import jax.numpy as jnp
import optax

from pretrain.distributed.sharding import path_of


def clip_by_global_norm(max_norm):
    """Return a transformation that shortens all gradients together to `max_norm`, by one factor (Pascanu et al. 2013, section 3.2).

    0 leaves them as they are. `optax.clip_by_global_norm` divides each: XLA's CPU compiler puts no division into those that read it,
    and keeps all gradients a second time.
    """
    if not max_norm:
        return optax.identity()

    def update(updates, state, params=None):
        norm = optax.tree.norm(updates)
        factor = jnp.where(norm < max_norm, 1.0, max_norm / norm)
        return jax.tree.map(lambda grad: grad * factor, updates), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def weight_decay_mask(params):
    """Return True for the parameters that weight decay applies to: neither biases, nor norms, nor relative positions."""
    return jax.tree_util.tree_map_with_path(lambda keys, _: is_decayed(path_of(keys)), params)


def is_decayed(path):
    """Return whether weight decay applies to the parameter at `path`."""
    return path.rpartition("/")[2] not in ("bias", "scale", "table")
