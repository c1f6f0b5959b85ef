"""The labels of a model and of its examples: both number the classes, so both need the same names in the same order."""

import contextlib
import sys
import tempfile
from functools import partial

from data.objectives.text2text import Text2Text
from data.source import Source
from models.config.heads import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.config import Run
from pretrain.overrides import ConfigError


def check_labels(run: Run, source: Source) -> None:
    """Raise ConfigError unless the labels of a source are those of the model, where the model has a head for some."""
    expected, found = getattr(run.model, "labels", None), getattr(source, "labels", None)
    if expected is None:
        return
    if found is None:
        raise ConfigError(
            f"{source.path}: its documents have no labels; `finetune` makes a store of labelled examples"
        )
    if found != expected:
        here, there = (", ".join(map(repr, names)) or "scores" for names in (found, expected))
        raise ConfigError(
            f"{source.path} has the labels {here}, the model {there}: "
            "both need the same labels in the same order"
        )


@contextlib.contextmanager
def labelled_store(workdir, source):
    """The path of a store with the examples of a source as its held-out part, for as long as the block lasts; labels are those of the run.

    Raises ValueError that names file and line, as data/examples/labelled.py does, and where the run is no fine-tuned one.
    """
    from data.examples.text2text import write_sources
    from data.vocabulary.load import load_vocabulary
    from pretrain.workdir.checkpoints import read_run

    run = read_run(workdir)
    objective = run.data.objective
    if isinstance(objective, Text2Text):
        sources = {each.task or "examples": {} for each in objective.tasks or (objective,)}
        name, form, file = chosen(objective, source)
        sources[name or "examples"] = {"heldout": answered(form, file)}
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
        raise ValueError(f"{workdir} is not a run that `finetune` began; --labelled is for these")
    read, write = LABELLED[type(run.model)](run)
    examples = read(source)
    with tempfile.TemporaryDirectory() as folder:
        store = write(
            f"{folder}/store",
            load_vocabulary(f"{workdir}/vocabulary"),
            {"heldout": examples},
            labels_of(run),
        )
        if silent := store.num_skipped_words:
            print(
                f"{source}: {silent:,} words of which the vocabulary makes no token are left out, with their tags",
                file=sys.stderr,
            )
        yield f"{folder}/store"


def chosen(objective, source):
    """(the task's name, its `Text2Text`, its file) of a source of examples: of several tasks NAME=FILE, of one the file."""
    if not objective.tasks:
        return "", objective, source
    name, _, file = source.partition("=")
    forms = {each.task: each for each in objective.tasks}
    if name not in forms or not file:
        raise ValueError(
            f"--labelled {source}: NAME=FILE, where NAME is one of the run's tasks: {', '.join(forms)}"
        )
    return name, forms[name], file


def answered(objective, source):
    """The pairs of a source, as a `Text2Text` has them."""
    from data.examples import multiple_choice as choices
    from data.examples import qa, tagging
    from data.examples.labelled import Columns, class_of, read, score_of
    from data.examples.text2text import answer_of, asked, marked, pairs

    if objective.questions:
        return asked(objective, qa.read(source, objective.questions == "squad2")[0])
    if objective.choices:
        return pairs(objective, choices.read(source, objective.choices))
    if objective.scheme:
        return marked(
            objective,
            tagging.read(
                source, () if objective.columns == tagging.USUAL[0] else objective.columns
            ),
        )
    *texts, answer = objective.columns
    kind = class_of if objective.labels else score_of if objective.step else answer_of
    return pairs(objective, read(source, Columns(tuple(texts), answer), kind))


def classes(run):
    from data.examples.labelled import Columns, class_of, read, score_of
    from data.examples.labelled_store import write_labelled

    *texts, label = run.data.objective.columns
    return partial(
        read, columns=Columns(tuple(texts), label), label=class_of if run.model.labels else score_of
    ), write_labelled


def tags(run):
    from data.examples.tagging import read, write_tagged

    return partial(read, columns=run.data.objective.columns), write_tagged


def choices(run):
    from data.examples.labelled_store import write_labelled
    from data.examples.multiple_choice import read

    return partial(read, choices=run.data.objective.choices), write_labelled


def answers(run):
    from data.examples.qa import read
    from data.examples.qa_store import write_heldout

    return lambda source: read(source, run.model.unanswerable)[0], write_heldout


def labels_of(run):
    """What the labels of a run's examples are numbers of: the names of classes or of tags, or the numbers of choices themselves; else ()."""
    return (
        tuple(map(str, range(run.data.objective.choices)))
        if isinstance(run.model, ChoiceConfig)
        else getattr(run.model, "labels", ())
    )


# Of runs that have a head: run -> (source -> examples, the function that writes them as a store).
LABELLED = {
    ClassifierConfig: classes,
    TaggerConfig: tags,
    ChoiceConfig: choices,
    SpanReaderConfig: answers,
}
