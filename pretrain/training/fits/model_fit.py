"""Whether a model can learn from a source, checked before anything is compiled.

An accelerator does not report the errors that are checked here.
"""

from collections.abc import Iterable
from typing import Any

from data.mixed import split_objective
from data.objectives.objective import Objective
from data.source import Source
from data.vocabulary.base import Vocabulary
from models.config.base import ImageConfig
from pretrain.config import Run
from pretrain.settings.overrides import ConfigError


def check_fit(run: Run, source: Source) -> None:
    """Raise ConfigError unless a model has the positions, ids and labels of a source's rows."""
    objectives = split_objective(run.data.objective).values()
    for vocabulary in find_vocabularies(source, objectives):
        if isinstance(run.model, ImageConfig):
            raise ConfigError(
                f"{source.path} is a token store, and a {type(run.model).__name__} reads images: "
                "`prepare-images SOURCE --output STORE` writes a store of images"
            )
        check_vocabulary(run, vocabulary)
    check_row_length(run)
    check_labels(run, source)
    check_classes(run, source)


def check_labels(run: Run, source: Source) -> None:
    """Raise ConfigError unless a source has the labels of the run's model, if that has any."""
    expected, actual = run.model.labels, getattr(source, "label_names", None)
    if expected is None:
        return
    if actual is None:
        raise ConfigError(
            f"{source.path}: its documents have no labels; `finetune` makes a store of labelled "
            "examples"
        )
    if actual != expected:
        here, there = (", ".join(map(repr, names)) or "scores" for names in (actual, expected))
        raise ConfigError(
            f"{source.path} has the labels {here}, the model {there}: "
            "both need the same labels in the same order"
        )


def check_classes(run: Run, source: Source) -> None:
    """Raise ConfigError unless a model of images scores all classes of a source."""
    model, classes = run.model, getattr(source.encoding, "classes", ())
    if isinstance(model, ImageConfig) and len(classes) > model.classes:
        raise ConfigError(
            f"{source.path} has {len(classes)} classes, and the head scores {model.classes}; set "
            f"model.classes={len(classes)}"
        )


def check_row_length(run: Run) -> None:
    """Raise ConfigError unless a model has the positions of a run's rows."""
    length = run.model.length
    objectives = split_objective(run.data.objective).values()
    row_length = max(objective.axis_sizes()["L"] for objective in objectives)
    if length is not None and row_length > length:
        raise ConfigError(
            f"rows of {row_length} tokens are longer than the model's {length} positions; set "
            f"model.length={row_length}, or use shorter rows"
        )


def find_vocabularies(source: Source, objectives: Iterable[Objective]) -> list[Vocabulary]:
    """Return the vocabularies of the token ids in a source's batches; none if it has no ids."""
    if isinstance(source.encoding, Vocabulary):
        return [source.encoding]
    # The rows of images, not yet salvaged, are not opened.
    if getattr(source.encoding, "classes", None) is not None:
        return []
    vocabularies = (source.open_rows("train", objective).vocabulary for objective in objectives)
    return [vocabulary for vocabulary in vocabularies if vocabulary is not None]


def check_vocabulary(run: Run, vocabulary: Vocabulary) -> None:
    """Raise ConfigError unless every id has an embedding and special ids are where expected.

    An id that is too large raises no error on an accelerator.
    """
    model: Any = run.model
    if model.vocab < vocabulary.size and not model.characters:
        raise ConfigError(
            f"model.vocab={model.vocab} is smaller than the token store's vocabulary of "
            f"{vocabulary.size}; set model.vocab={-(-vocabulary.size // 128) * 128} (a multiple of "
            "128 suits the hardware)"
        )
    for field, (role, offset) in model.vocabulary_ids.items():
        value = getattr(model.backbone, field)
        token_id = getattr(vocabulary, role)
        if token_id is not None and value != token_id + offset:
            raise ConfigError(
                f"model.{field}={value}, expected {token_id + offset}: {offset} more than the id "
                f"of the {role} token in the token store's vocabulary, {token_id}; set "
                f"model.{field}={token_id + offset}"
            )
