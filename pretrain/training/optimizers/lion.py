"""Lion (Chen et al. 2023): the sign of a mean of gradients, with decoupled weight decay."""

import optax

from pretrain.settings import Lion
from pretrain.training.optimizers.transforms import (
    clip_by_global_norm,
    find_weight_decay,
    make_weight_decay_mask,
)
from pretrain.training.schedules import Schedule


def build(config: Lion, learning_rate: Schedule) -> optax.GradientTransformation:
    """Return the optax transformation of a `Lion` configuration."""
    lion = optax.lion(
        learning_rate,
        config.beta1,
        config.beta2,
        weight_decay=find_weight_decay(config),
        mask=make_weight_decay_mask,
    )
    return optax.chain(clip_by_global_norm(config.max_grad_norm), lion)
