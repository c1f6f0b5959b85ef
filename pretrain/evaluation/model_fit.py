"""Whether a model can learn from a source: what is silent on an accelerator is refused before anything is compiled."""

from collections.abc import Iterable

from data.mixed import AnyObjective, split_objective
from data.source import Source
from data.vocabulary.load import Vocabulary
from pretrain.config import Run
from pretrain.evaluation.label_checks import check_labels
from pretrain.overrides import ConfigError


def check_fit(run: Run, source: Source) -> None:
    """Raise ConfigError where the model of a run lacks positions, ids or labels that the batches of a source have."""
    objectives = split_objective(run.data.objective).values()
    for vocabulary in find_vocabularies(source, objectives):
        check_vocabulary(run, vocabulary)
    length = getattr(run.model, "length", None)
    row = max(objective.dims()["L"] for objective in objectives)
    if length is not None and row > length:
        raise ConfigError(f"rows of {row} are longer than the model's positions; set model.length")
    check_labels(run, source)


def find_vocabularies(source: Source, objectives: Iterable[AnyObjective]) -> list[Vocabulary]:
    """Return the vocabularies whose token ids the batches of a source hold; none where they hold no token ids."""
    if isinstance(source.encoding, Vocabulary):
        return [source.encoding]
    found = (source.rows("train", objective).vocabulary for objective in objectives)
    return [vocabulary for vocabulary in found if vocabulary is not None]


def check_vocabulary(run: Run, vocabulary) -> None:
    """Every id of the store must have a row in the model's embedding: an id too large is silent on the device."""
    if run.model.vocab < vocabulary.size:
        raise ConfigError(
            f"model.vocab={run.model.vocab} is smaller than the token store's vocabulary of {vocabulary.size}; "
            f"set model.vocab={-(-vocabulary.size // 128) * 128} (a multiple of 128 suits the hardware)"
        )
    for field, (role, more) in run.model.vocabulary_ids.items():
        value, there = (
            getattr(getattr(run.model, "encoder", run.model), field),
            getattr(vocabulary, role),
        )
        if there is not None and value != there + more:
            raise ConfigError(
                f"model.{field}={value}, but it is {more} more than the id of the {role} token, which is {there} in the token store's "
                f"vocabulary; set model.{field}={there + more}"
            )
