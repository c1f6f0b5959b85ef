"""Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

import optax

from pretrain.settings import AdamW
from pretrain.training.optimizers.transforms import (
    clip_by_global_norm,
    find_weight_decay,
    make_weight_decay_mask,
    scale_by_param_rms,
)
from pretrain.training.schedules import Schedule


def build(config: AdamW, learning_rate: Schedule) -> optax.GradientTransformation:
    """Return the optax transformation of an `AdamW` configuration."""
    clip = clip_by_global_norm(config.max_grad_norm)
    if not config.scale_by_param_rms:
        adam = optax.adamw(
            learning_rate,
            config.beta1,
            config.beta2,
            config.epsilon,
            weight_decay=find_weight_decay(config),
            mask=make_weight_decay_mask,
        )
        return optax.chain(clip, adam)
    return optax.chain(
        clip,
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        scale_by_param_rms(),
        optax.add_decayed_weights(find_weight_decay(config), make_weight_decay_mask),
        optax.scale_by_learning_rate(learning_rate),
    )
