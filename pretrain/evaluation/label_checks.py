"""Labels of models and of examples: both number the classes, so their names must be equal."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from data.objectives.text2text import Text2Text
from data.source import Source
from models.config.heads import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.config import Run
from pretrain.overrides import ConfigError

# (a function that reads the examples of a source, a function that writes them as a store)
ExampleIo = tuple[Callable[[str], Any], Callable[..., Any]]


def check_labels(run: Run, source: Source) -> None:
    """Raise ConfigError unless a source has the labels of the run's model, if that has any."""
    expected, found = getattr(run.model, "labels", None), getattr(source, "labels", None)
    if expected is None:
        return
    if found is None:
        raise ConfigError(
            f"{source.path}: its documents have no labels; `finetune` makes a store of labelled "
            "examples"
        )
    if found != expected:
        here, there = (", ".join(map(repr, names)) or "scores" for names in (found, expected))
        raise ConfigError(
            f"{source.path} has the labels {here}, the model {there}: "
            "both need the same labels in the same order"
        )


@contextlib.contextmanager
def labelled_store(workdir: str, source: str) -> Iterator[str]:
    """Yield the path of a temporary store with the examples of a source as its held-out split.

    Args:
      workdir: workdir of a fine-tuned run, which sets the columns, the labels and the vocabulary.
      source: file of the examples; NAME=FILE for a run of several tasks.

    Raises:
      ValueError: if the run was not fine-tuned, or for a bad example; names file and line.
    """
    from data.examples.text2text import write_sources
    from data.vocabulary.load import load_vocabulary
    from pretrain.workdir.checkpoints import read_run

    run = read_run(workdir)
    objective = run.data.objective
    if isinstance(objective, Text2Text):
        sources: dict[str, dict[str, Any]] = {
            each.task or "examples": {} for each in objective.tasks or (objective,)
        }
        name, task_objective, file = chosen(objective, source)
        sources[name or "examples"] = {"heldout": answered(task_objective, file)}
        with tempfile.TemporaryDirectory() as folder:
            write_sources(
                f"{folder}/store",
                load_vocabulary(f"{workdir}/vocabulary"),
                objective,
                sources,
                [1.0] * len(sources),
            )
            yield f"{folder}/store"
        return
    if type(run.model) not in LABELLED:
        raise ValueError(f"{workdir} is not a run of `finetune`; --labelled needs one")
    read, write = LABELLED[type(run.model)](run)
    examples = read(source)
    with tempfile.TemporaryDirectory() as folder:
        store = write(
            f"{folder}/store",
            load_vocabulary(f"{workdir}/vocabulary"),
            {"heldout": examples},
            labels_of(run),
        )
        if skipped := store.num_skipped_words:
            print(
                f"{source}: skipped {skipped:,} words and their tags, because the vocabulary has "
                "no token for them",
                file=sys.stderr,
            )
        yield f"{folder}/store"


def chosen(objective: Text2Text, source: str) -> tuple[str, Text2Text, str]:
    """Return the name, the objective and the file of the task that a source is for.

    Args:
      objective: the objective of the run.
      source: NAME=FILE for a run of several tasks, else the file.

    Raises:
      ValueError: if a run of several tasks does not have the task.
    """
    if not objective.tasks:
        return "", objective, source
    name, _, file = source.partition("=")
    by_name = {each.task: each for each in objective.tasks}
    if name not in by_name or not file:
        raise ValueError(
            f"--labelled {source}: expected NAME=FILE, where NAME is one of the run's tasks: "
            f"{', '.join(by_name)}"
        )
    return name, by_name[name], file


def answered(objective: Text2Text, source: str) -> list[Any]:
    """Return the pairs of texts that an objective makes of the examples of a source."""
    from data.examples import multiple_choice as choices
    from data.examples import qa, tagging
    from data.examples.labelled import Columns, class_of, read, score_of
    from data.examples.text2text import answer_of, asked, marked, pairs

    if objective.questions:
        return asked(objective, qa.read(source, objective.questions == "squad2")[0])
    if objective.choices:
        return pairs(objective, choices.read(source, objective.choices))
    if objective.scheme:
        columns = () if objective.columns == tagging.USUAL[0] else objective.columns
        return marked(objective, tagging.read(source, columns))
    *texts, answer = objective.columns
    parse_label = class_of if objective.labels else score_of if objective.step else answer_of
    return pairs(objective, read(source, Columns(tuple(texts), answer), parse_label))


def classes(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of a classifier."""
    from data.examples.labelled import Columns, class_of, read, score_of
    from data.examples.labelled_store import write_labelled

    *texts, label = run.data.objective.columns
    return partial(
        read, columns=Columns(tuple(texts), label), label=class_of if run.model.labels else score_of
    ), write_labelled


def tags(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of a tagger."""
    from data.examples.tagging import read, write_tagged

    return partial(read, columns=run.data.objective.columns), write_tagged


def choices(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of multiple choice."""
    from data.examples.labelled_store import write_labelled
    from data.examples.multiple_choice import read

    return partial(read, choices=run.data.objective.choices), write_labelled


def answers(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of question answering."""
    from data.examples.qa import read
    from data.examples.qa_store import write_heldout

    return lambda source: read(source, run.model.unanswerable)[0], write_heldout


def labels_of(run: Any) -> tuple[str, ...]:
    """Return the names of the classes, tags or choices of a run, () if it has none."""
    return (
        tuple(map(str, range(run.data.objective.choices)))
        if isinstance(run.model, ChoiceConfig)
        else getattr(run.model, "labels", ())
    )


LABELLED: dict[type, Callable[[Any], ExampleIo]] = {
    ClassifierConfig: classes,
    TaggerConfig: tags,
    ChoiceConfig: choices,
    SpanReaderConfig: answers,
}
