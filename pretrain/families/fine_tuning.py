"""The checks that the sections of a fine-tuning are consistent. No JAX."""

from typing import Any

from data.objectives import OBJECTIVES
from models.config.base import TEACHER
from models.config.classifier import ClassifierConfig
from models.config.heads import HeadedConfig
from models.config.tagger import TaggerConfig
from pretrain.settings import Muon
from pretrain.settings.overrides import ConfigError


def check_fine_tuning(run: Any) -> None:
    """Raise ConfigError, which names the keys, unless a run's head, encoder and settings fit.

    Of a model without a head, no layers may have settings of their own.
    """
    if run.train.lora_rank:
        check_lora(run)
    elif run.train.lora_dropout:
        raise ConfigError(
            f"train.lora_dropout={run.train.lora_dropout:g}: the run has no LoRA, whose products "
            "could lack inputs; set train.lora_rank"
        )
    if not isinstance(run.model, HeadedConfig):
        if run.optimizer.layer_decay == 1 and run.train.trainable_layers is None:
            return
        key = f"train.trainable_layers={run.train.trainable_layers}"
        if run.train.trainable_layers is None:
            key = f"optimizer.layer_decay={run.optimizer.layer_decay:g}"
        raise ConfigError(
            f"{key}: only a fine-tuned encoder can have layers with settings of their own, and a "
            f"{type(run.model).__name__} is not one"
        )
    if run.data.objective.compares_rows:
        check_whole_batch(run)
    if isinstance(run.model, (ClassifierConfig, TaggerConfig)):
        check_labels(run.model.labels, run.data.objective)
    if (
        isinstance(run.model, TaggerConfig)
        and run.model.scheme == "plain"
        and (entity_metrics := {*run.evaluate.metrics} - {"tag_accuracy", "unread_words"})
    ):
        raise ConfigError(
            f"evaluate.metrics: {min(entity_metrics)} is computed from entities, which plain "
            "tags do not encode; use tag_accuracy"
        )
    if run.optimizer.layer_decay < 1:
        check_layer_decay(run.model.encoder)
    if run.train.trainable_layers is not None:
        check_trainable_layers(run.model.encoder, run.train.trainable_layers)


def is_outside_layers(path: str) -> bool:
    """Return whether a parameter of a fine-tuned encoder is of its pooler or its head."""
    return not path.startswith("encoder/") or "/pooler/" in path


def check_lora(run: Any) -> None:
    """Raise ConfigError for settings that LoRA contradicts."""
    lora, train = f"train.lora_rank={run.train.lora_rank}", run.train
    if TEACHER in run.model.frozen_params:
        raise ConfigError(
            f"{lora}: a {type(run.model).__name__} learns from a teacher, and LoRA is for a model "
            "alone; give train.lora_rank=none"
        )
    if not train.lora_targets:
        raise ConfigError(f"{lora}: train.lora_targets is empty; give train.lora_rank=none")
    if train.trainable_layers is not None:
        raise ConfigError(
            f"{lora} and train.trainable_layers={train.trainable_layers} both say what is trained; "
            "give one of them"
        )
    if train.ema_decay:
        raise ConfigError(
            f"{lora}: train.ema_decay={train.ema_decay:g} would hold the frozen model a second "
            "time; give train.ema_decay=0"
        )
    if isinstance(run.optimizer, Muon):
        raise ConfigError(
            f"{lora}: optimizer=muon is for whole matrices, and LoRA trains factors of them; give "
            "optimizer=adamw"
        )


def check_whole_batch(run: Any) -> None:
    """Raise ConfigError unless a loss that compares all texts of a batch gets them at once."""
    objective, batch_size = run.data.objective, run.data.batch_size
    if run.train.microbatches > 1:
        raise ConfigError(
            f"train.microbatches={run.train.microbatches}: {objective.name} compares all texts of "
            "a batch, which microbatches would part; set model.texts_at_once, which saves as much "
            "memory, and train.microbatches=1"
        )
    texts, at_once = batch_size * objective.texts, run.model.texts_at_once
    if at_once and at_once < texts and texts % at_once:
        raise ConfigError(
            f"model.texts_at_once={at_once}: data.batch_size={batch_size} has {texts} texts, "
            f"{objective.texts} of each example; give a divisor"
        )


def check_labels(labels: tuple[str, ...], objective: Any) -> None:
    """Raise ConfigError unless a model's labels fit its objective, and the weights fit the labels.

    A regression has no labels. Classification has one weight for each label, or no weights.
    """
    if bool(labels) == isinstance(objective, OBJECTIVES["regression"]):
        raise ConfigError(
            f"data.objective: {objective.name}, but model.labels={labels}: Classification has "
            "labels, Regression has none"
        )
    if labels and len(objective.class_weights) not in (0, len(labels)):
        raise ConfigError(
            f"data.objective.class_weights={objective.class_weights}: one for each of "
            f"model.labels, which are {', '.join(labels)}"
        )


def check_layer_decay(encoder: Any) -> None:
    """Raise ConfigError unless an encoder has layers of its own."""
    if encoder.shares_layers or not encoder.depth:
        raise ConfigError(
            "optimizer.layer_decay: each layer has a rate of its own, and a "
            f"{type(encoder).__name__} has no layers of its own; give optimizer.layer_decay=1"
        )


def check_trainable_layers(encoder: Any, trainable_layers: int) -> None:
    """Raise ConfigError unless the top `trainable_layers` of an encoder can train alone."""
    if encoder.shares_layers and trainable_layers:
        raise ConfigError(
            f"train.trainable_layers={trainable_layers}: all layers of the "
            f"{type(encoder).__name__} have the same parameters; train.trainable_layers=0 "
            "freezes them, train.trainable_layers=none trains them"
        )
    if trainable_layers % encoder.layers_per_block:
        raise ConfigError(
            f"train.trainable_layers={trainable_layers}: layers of the "
            f"{type(encoder).__name__} are trained {encoder.layers_per_block} at a "
            f"time; give a multiple of {encoder.layers_per_block}"
        )
    if trainable_layers > encoder.depth:
        raise ConfigError(
            f"train.trainable_layers={trainable_layers}: the encoder has {encoder.depth} "
            "layers; train.trainable_layers=none trains all of it"
        )
