"""Adafactor (Shazeer and Stern 2018) as T5 used it."""

import optax

from pretrain.settings import Adafactor
from pretrain.training.optimizers.transforms import clip_by_rms, scale_by_param_rms
from pretrain.training.schedules import Schedule


def build(config: Adafactor, learning_rate: Schedule) -> optax.GradientTransformation:
    """Return the optax transformation of an `Adafactor` configuration.

    It is `optax.adafactor`, but for the layers of a scanned stack, which optax takes for one
    parameter. Kernels of attention have an axis of heads. Their second moments are factored for
    each head of at least 128 dimensions, and whole for smaller heads.
    """
    return optax.chain(
        optax.scale_by_factored_rms(),
        clip_by_rms(config.clipping_threshold),
        optax.scale_by_learning_rate(learning_rate, flip_sign=False),
        scale_by_param_rms(),
        optax.scale(-1),
    )
