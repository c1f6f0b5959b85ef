"""The optimizers of the papers, composed from optax."""

import jax
import jax.numpy as jnp
import optax

from pretrain.config import AdamW
from pretrain.sharding import path_of


def schedule(config, steps):
    """The learning rate as a function of n, the number of finished updates, for a run of `steps`.

    Linear decay: (n + 1) / warmup, then (steps - n) / (steps - warmup), so that neither the first nor the last update is wasted on
    a rate of 0. Cosine decay: the same climb, then (1 + cos(pi t)) / 2, where linear decay has 1 - t. Inverse square root:
    1 / sqrt(max(n, warmup)) (Raffel et al. 2019, section 3.1.2).
    """
    steps = getattr(config, "fallen", 0) or steps
    peak, warmup = config.learning_rate, min(config.warmup, steps - 1)

    def inverse_sqrt(n):
        return peak * jax.lax.rsqrt(jnp.maximum(n, max(config.warmup, 1)).astype(jnp.float32))

    def falling(n):
        n = jnp.asarray(n, jnp.float32)
        final = config.final if isinstance(config, AdamW) else 0.0
        climb = (n + 1) / max(warmup, 1)
        left = jnp.maximum(steps - n, 0) / (steps - warmup)
        left = left if config.decay == "linear" else (1 - jnp.cos(jnp.pi * left)) / 2
        return peak * jnp.where(n < warmup, climb, final + (1 - final) * left)

    return inverse_sqrt if config.decay == "inverse_sqrt" else falling


def make_optimizer(config, steps):
    """The optax transformation of an `AdamW` or `Adafactor` configuration for a run of `steps`."""
    rate = schedule(config, steps)
    if isinstance(config, AdamW):
        clip = optax.clip_by_global_norm(config.clip) if config.clip else optax.identity()
        if not config.relative:
            adam = optax.adamw(
                rate, config.beta1, config.beta2, config.epsilon, weight_decay=config.weight_decay, mask=decayed
            )
            return optax.chain(clip, adam)
        return optax.chain(
            clip,
            optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
            optax.scale_by_param_block_rms(),
            optax.add_decayed_weights(config.weight_decay, decayed),
            optax.scale_by_learning_rate(rate),
        )
    return optax.adafactor(rate, clipping_threshold=config.clip)


def decayed(params):
    """True for the parameters that weight decay applies to: neither biases, nor norms, nor relative positions."""

    def keep(keys, _):
        return path_of(keys).rpartition("/")[2] not in ("bias", "scale", "table")

    return jax.tree_util.tree_map_with_path(keep, params)
