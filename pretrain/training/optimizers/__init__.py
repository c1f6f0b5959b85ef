"""The optimizers of the papers, one file for each class of pretrain/settings/optimizers.py."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, cast

import jax
import optax

from data.members import call_later
from models.config.heads import HeadedConfig
from pretrain.config import Run
from pretrain.settings import Optimizer
from pretrain.settings.overrides import ConfigError
from pretrain.training.divergence import track_norms
from pretrain.training.schedules import Schedule, make_learning_rate

# What only some runs need: an average of the parameters, groups, frozen parameters.
track_ema = call_later("pretrain.training.optimizers.ema:track_ema")
freeze_params = call_later("pretrain.training.optimizers.frozen:freeze_params")
freeze_lower_layers = call_later("pretrain.training.optimizers.frozen:freeze_lower_layers")
build_groups = call_later("pretrain.training.optimizers.groups:build_groups")
decay_rates_by_layer = call_later("pretrain.training.optimizers.groups:decay_rates_by_layer")
make_frozen_test = call_later("pretrain.training.optimizers.frozen:make_frozen_test")


def make_run_optimizer(run: Run, rate: Schedule | None = None) -> optax.GradientTransformation:
    """Return the optimizer of a run: `run.optimizer` without updates of frozen parameters.

    With `train.ema_decay` an EMA of the parameters is part of its state. With `guard.norm_factor`
    the mean of the gradient norms is, so that it is saved, and unchanged by a skipped step.
    """
    optimizer = make_optimizer(run.optimizer, run.train.steps, rate)
    if run.optimizer.layer_decay < 1:
        depth, _ = count_entries(run, 0)
        layers = cast(HeadedConfig, run.model).encoder.layers_per_block
        optimizer = decay_rates_by_layer(optimizer, run.optimizer.layer_decay, depth, layers)
    if run.model.frozen_params or run.train.lora_rank:
        optimizer = freeze_params(optimizer, make_frozen_test(run))
    if run.train.trainable_layers is not None:
        optimizer = freeze_lower_layers(optimizer, *count_entries(run, run.train.trainable_layers))
    if run.train.ema_decay:
        optimizer = allow_promotion(track_ema(optimizer, run.train.ema_decay))
    if run.guard.norm_factor:
        optimizer = optax.chain(track_norms(run.guard.norm_window), optimizer)
    return optimizer


def count_entries(run: Run, trainable_layers: int) -> tuple[int, int]:
    """Return (entries of the stack of a fine-tuned encoder, those that are trained)."""
    encoder = cast(HeadedConfig, run.model).encoder  # as `validate_run` requires
    return (
        encoder.depth // encoder.layers_per_block,
        trainable_layers // encoder.layers_per_block,
    )


def make_optimizer(
    config: Optimizer, steps: int, rate: Schedule | None = None
) -> optax.GradientTransformation:
    """Return the optax transformation of an optimizer's configuration for a run of `steps`.

    The module of a class Name is name.py in this folder, with `build(config, learning_rate)`.

    Raises:
      ConfigError: the class has no such module.
    """
    name = type(config).__name__
    module = f"{__name__}.{name.lower()}"
    if importlib.util.find_spec(module) is None:
        raise ConfigError(
            f"no optimizer is built from {name}: there is no {module.replace('.', '/')}.py with "
            "build(config, learning_rate)"
        )
    build = importlib.import_module(module).build
    rate = rate or make_learning_rate(config, steps)
    return allow_promotion(
        build_groups(build, config, rate) if config.groups else build(config, rate)
    )


def allow_promotion(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return the same transformation with dtype promotion allowed, which optax relies on.

    The caller may have forbidden promotion by `jax.numpy_dtype_promotion("strict")`.
    """

    def init_fn(*args: Any, **options: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.init(*args, **options)

    def update_fn(*args: Any, **options: Any) -> tuple[Any, Any]:
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.update(*args, **options)

    return optimizer._replace(init=init_fn, update=update_fn)
