"""The labels of a model and those of a store must be the same, in the same order: a class is a number to both."""

from models.config import ClassifierConfig
from pretrain.typed import ConfigError


def check_store(run, store):
    """Raise ConfigError unless the store's labels are those of the model, where it has a head for some."""
    if not isinstance(run.model, ClassifierConfig):
        return
    labels = store.manifest.get("labels")
    if labels is None:
        raise ConfigError(f"{store.path}: its documents have no labels; `finetune` makes a store of labelled examples")
    if tuple(labels) != run.model.labels:
        told = [", ".join(map(repr, names)) or "scores" for names in (labels, run.model.labels)]
        raise ConfigError(f"{store.path} has the labels {told[0]}, the model {told[1]}: the same ones are needed, in the same order")
