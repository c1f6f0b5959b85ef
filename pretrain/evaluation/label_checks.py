"""The labels of a model and those of a store must be the same, in the same order: a class is a number to both."""

import contextlib
import json
import sys
import tempfile
from functools import partial

from data.examples.text2text import described
from data.objectives.text2text import Text2Text
from models.config.heads import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.overrides import ConfigError


def check_store(run, store):
    """Raise ConfigError unless the store's labels are those of the model, where it has a head for some."""
    if isinstance(run.data.objective, Text2Text):
        check_answers(run.data.objective, store)
    labels, own = store.manifest.get("labels"), getattr(run.model, "labels", None)
    if own is None:
        return
    if labels is None:
        raise ConfigError(
            f"{store.path}: its documents have no labels; `finetune` makes a store of labelled examples"
        )
    if tuple(labels) != own:
        told = [", ".join(map(repr, names)) or "scores" for names in (labels, own)]
        raise ConfigError(
            f"{store.path} has the labels {told[0]}, the model {told[1]}: the same ones are needed, in the same order"
        )


def check_answers(objective, store):
    """Raise ConfigError unless a store's pairs were written as the objective has it."""
    asked, there = (
        json.dumps(plain, sort_keys=True)
        for plain in (described(objective), store.manifest.get("text"))
    )
    if asked != there:
        raise ConfigError(
            f"{store.path} has pairs that were written as {there}, the run's data.objective says {asked}: name the store of the run"
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
        if silent := sum(store.manifest.get("silent", {}).values()):
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
