"""The labels of a model and those of a store must be the same, in the same order: a class is a number to both."""

import contextlib
import json
import tempfile

from data.objectives.text2text import Text2Text
from data.text2text import described
from models.finetuned import ClassifierConfig
from pretrain.typed import ConfigError


def check_store(run, store):
    """Raise ConfigError unless the store's labels are those of the model, where it has a head for some."""
    if isinstance(run.data.objective, Text2Text):
        check_answers(run.data.objective, store)
    if not isinstance(run.model, ClassifierConfig):
        return
    labels = store.manifest.get("labels")
    if labels is None:
        raise ConfigError(f"{store.path}: its documents have no labels; `finetune` makes a store of labelled examples")
    if tuple(labels) != run.model.labels:
        told = [", ".join(map(repr, names)) or "scores" for names in (labels, run.model.labels)]
        raise ConfigError(f"{store.path} has the labels {told[0]}, the model {told[1]}: the same ones are needed, in the same order")


def check_answers(objective, store):
    """Raise ConfigError unless a store's pairs were written as the objective has it."""
    asked, there = (json.dumps(plain, sort_keys=True) for plain in (described(objective), store.manifest.get("text")))
    if asked != there:
        raise ConfigError(f"{store.path} has pairs that were written as {there}, the run's data.objective says {asked}: name the store of the run")


@contextlib.contextmanager
def labelled_store(workdir, source):
    """The path of a store with the examples of a source as its held-out part, for as long as the block lasts; labels are those of the run.

    Raises ValueError that names file and line, as data/labelled.py does, and where the run is no fine-tuned one.
    """
    from data.labelled import Columns, class_of, read, score_of, write_labelled
    from data.text2text import answer_of, pairs, write_pairs
    from data.tokenizers import load_vocabulary
    from pretrain.checkpoint import read_run

    run = read_run(workdir)
    objective = run.data.objective
    if isinstance(objective, Text2Text):
        *texts, answer = objective.columns
        kind = class_of if objective.labels else score_of if objective.step else answer_of
        examples = pairs(objective, read(source, Columns(tuple(texts), answer), kind))
        with tempfile.TemporaryDirectory() as folder:
            write_pairs(f"{folder}/store", load_vocabulary(f"{workdir}/vocabulary"), objective, {"heldout": examples})
            yield f"{folder}/store"
        return
    if not isinstance(run.model, ClassifierConfig):
        raise ValueError(f"{workdir} is not a run that `finetune` began; --labelled is for these")
    labels, (*texts, label) = run.model.labels, run.data.objective.columns
    examples = read(source, Columns(tuple(texts), label), class_of if labels else score_of)
    with tempfile.TemporaryDirectory() as folder:
        write_labelled(f"{folder}/store", load_vocabulary(f"{workdir}/vocabulary"), {"heldout": examples}, labels)
        yield f"{folder}/store"
