"""The optimizers of the papers, composed from optax."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import optax

from pretrain.config import AdamW, Lamb
from pretrain.distributed.sharding import path_of
from pretrain.training.divergence import watch


def schedule(config, steps):
    """The learning rate as a function of n, the number of finished updates, for a run of `steps`.

    Linear decay: (n + 1) / warmup, then (steps - n) / (steps - warmup), so that neither the first nor the last update is wasted on
    a rate of 0. Cosine decay: the same climb, then (1 + cos(pi t)) / 2, where linear decay has 1 - t. Inverse square root:
    1 / sqrt(max(n, warmup)) (Raffel et al. 2019, section 3.1.2). Inverse square root of `AdamW`: the climb, then
    sqrt(warmup / (n + 1)); the Transformer's peak is 1 / sqrt(D * warmup) (Vaswani et al. 2017, section 5.3).
    """
    steps = getattr(config, "fallen", 0) or steps
    decay = getattr(config, "decay", "linear")  # LAMB's is
    peak, warmup = config.learning_rate, min(config.warmup, steps - 1)

    def inverse_sqrt(n):
        return peak * jax.lax.rsqrt(jnp.maximum(n, max(config.warmup, 1)).astype(jnp.float32))

    def falling(n):
        n = jnp.asarray(n, jnp.float32)
        final = config.final if isinstance(config, (AdamW, Lamb)) else 0.0
        climb = (n + 1) / max(warmup, 1)
        left = jnp.maximum(steps - n, 0) / (steps - warmup)
        left = left if decay == "linear" else (1 - jnp.cos(jnp.pi * left)) / 2
        return peak * jnp.where(n < warmup, climb, final + (1 - final) * left)

    def inverse_square_root(n):
        n = jnp.asarray(n, jnp.float32) + 1
        return peak * jnp.minimum(
            n / max(config.warmup, 1), jax.lax.rsqrt(n / max(config.warmup, 1))
        )

    return {"inverse_sqrt": inverse_sqrt, "inverse_square_root": inverse_square_root}.get(
        decay, falling
    )


def optimizer_of(run):
    """The optimizer of a `config.Run`. A teacher stays as it is: no update, no weight decay, and nothing is kept for it; so do, but for what
    is kept, the layers of an encoder that `train.free` leaves out.

    Where spikes are skipped, the mean of the norms is a part of its state: it is saved, and stays as it was when a step is skipped.
    """
    optimizer = _without_frozen(run, make_optimizer(run.optimizer, run.train.steps))
    if run.train.free >= 0:
        learns = optax.stateless(partial(of_free, run.model.encoder.depth, run.train.free))
        optimizer = optax.chain(
            learns, optimizer, learns
        )  # in front, so that gradients of what stays do not count for the clipped norm
    return optax.chain(watch(run.guard.memory), optimizer) if run.guard.spike else optimizer


def _without_frozen(run, optimizer):
    if not run.model.frozen_params:
        return optimizer

    def kinds(params):
        return jax.tree_util.tree_map_with_path(
            lambda keys, _: (
                "stays" if path_of(keys).startswith(run.model.frozen_params) else "learns"
            ),
            params,
        )

    return optax.partition({"learns": optimizer, "stays": optax.set_to_zero()}, kinds)


def of_free(depth, free, updates, params):
    """The updates with zeros for what stays: all of the encoder but its pooler and the upper `free` of its `depth` layers."""

    def kept(keys, update):
        path = path_of(keys)
        if not path.startswith("encoder/") or "/pooler/" in path:
            return update
        if match := re.search(r"/layer_(\d+)/", path):
            return update if int(match[1]) >= depth - free else jnp.zeros_like(update)
        if "/layers/" not in path:
            return jnp.zeros_like(update)
        learns = (jnp.arange(depth) >= depth - free).reshape(-1, *(1,) * (update.ndim - 1))
        return jnp.where(learns, update, jnp.zeros_like(update))

    return jax.tree_util.tree_map_with_path(kept, updates)


def make_optimizer(config, steps):
    """Return the optax transformation of an `AdamW`, `Adafactor` or `Lamb` configuration for a run of `steps`."""
    return allow_promotion(compose_optimizer(config, schedule(config, steps)))


def allow_promotion(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return the same transformation, within which dtypes promote: optax relies on it, whatever its caller allows."""

    def init(*args, **options):
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.init(*args, **options)

    def update(*args, **options):
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.update(*args, **options)

    return optimizer._replace(init=init, update=update)


def compose_optimizer(config, rate):
    if isinstance(config, Lamb):
        return lamb(config, rate)
    if isinstance(config, AdamW):
        clip = clipped(config.clip) if config.clip else optax.identity()
        if not config.relative:
            adam = optax.adamw(
                rate,
                config.beta1,
                config.beta2,
                config.epsilon,
                weight_decay=config.weight_decay,
                mask=decayed,
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


def clipped(longest):
    """Gradients that are no longer than `longest` together, by one factor (Pascanu et al. 2013, section 3.2).

    `optax.clip_by_global_norm` divides each: XLA's CPU compiler puts no division into those that read it, and keeps all gradients a second time.
    """

    def update(updates, state, params=None):
        norm = optax.tree.norm(updates)
        factor = jnp.where(norm < longest, 1.0, longest / norm)
        return jax.tree.map(lambda grad: grad * factor, updates), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def lamb(config, rate):
    """AdamW whose update of each weight is as long as the weight, times the rate (You et al. 2020, algorithm 2)."""
    return optax.chain(
        clipped(config.clip) if config.clip else optax.identity(),
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(config.weight_decay, decayed),
        optax.stateless(as_long_as_weights),
        optax.scale_by_learning_rate(rate),
    )


def as_long_as_weights(updates, params):
    """Each update scaled to the length of its parameter, where weight decay applies; each layer of a scanned stack by itself."""

    def scaled(keys, update, weight):
        path = path_of(keys)
        if not decays(path):
            return update
        dims = tuple(range("/layers/" in f"/{path}", update.ndim))
        own, theirs = (jnp.sqrt(jnp.square(x).sum(dims, keepdims=True)) for x in (update, weight))
        return update * jnp.where(
            (own > 0) & (theirs > 0), theirs / jnp.where(own > 0, own, 1.0), 1.0
        )

    return jax.tree_util.tree_map_with_path(scaled, updates, params)


def decayed(params):
    """True for the parameters that weight decay applies to: neither biases, nor norms, nor relative positions."""
    return jax.tree_util.tree_map_with_path(lambda keys, _: decays(path_of(keys)), params)


def decays(path):
    """Whether weight decay applies to the parameter at `path`."""
    return path.rpartition("/")[2] not in ("bias", "scale", "table")
