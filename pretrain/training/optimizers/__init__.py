"""The optimizers of the papers: one file each, named as its configuration's class in pretrain/schema/optimizers.py."""

import importlib
import importlib.util

import jax
import optax

from pretrain.overrides import ConfigError
from pretrain.training.divergence import track_norms
from pretrain.training.optimizers.ema import with_ema
from pretrain.training.optimizers.frozen import freeze_lower_layers, freeze_params
from pretrain.training.schedules import make_learning_rate


def make_run_optimizer(run):
    """Return the optimizer of a `config.Run`: its `optimizer`, without updates for what the run does not train.

    Where the run keeps an EMA of its parameters, that is a part of the optimizer's state. Where steps of a large norm are skipped, the mean of the norms is a part of its state: it is saved, and stays as it was when a
    step is skipped.
    """
    optimizer = make_optimizer(run.optimizer, run.train.steps)
    if run.model.frozen_params:
        optimizer = freeze_params(optimizer, run.model.frozen_params)
    if run.train.trainable_layers is not None:
        optimizer = freeze_lower_layers(
            optimizer, run.model.encoder.depth, run.train.trainable_layers
        )
    if run.train.ema_decay:
        optimizer = allow_promotion(with_ema(optimizer, run.train.ema_decay))
    if run.guard.norm_factor:
        optimizer = optax.chain(track_norms(run.guard.norm_window), optimizer)
    return optimizer


def make_optimizer(config, steps):
    """Return the optax transformation of an optimizer's configuration for a run of `steps`.

    Its file here, NAME.py for a class Name, has `build(config, learning_rate)`. Raises ConfigError for a class without such a file.
    """
    name = type(config).__name__
    module = f"{__name__}.{name.lower()}"
    if importlib.util.find_spec(module) is None:
        raise ConfigError(
            f"no optimizer is built from {name}: there is no {module.replace('.', '/')}.py with build(config, learning_rate)"
        )
    build = importlib.import_module(module).build
    return allow_promotion(build(config, make_learning_rate(config, steps)))


def allow_promotion(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return the same transformation, within which dtypes promote: optax relies on it, whatever its caller allows."""

    def init(*args, **options):
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.init(*args, **options)

    def update(*args, **options):
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.update(*args, **options)

    return optimizer._replace(init=init, update=update)
