"""Labels of models and of examples: both number the classes, so their names must be equal."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from data.objectives.text2text import Text2Text
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.embedder import EmbedderConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.workdir.workdir import Workdir

# (a function that reads the examples of a source, a function that writes them as a store)
ExampleIo = tuple[Callable[..., Any], Callable[..., Any]]


@contextlib.contextmanager
def open_labelled_store(
    workdir: Workdir, source: str, file_format: str | None = None
) -> Iterator[str]:
    """Yield the path of a temporary store with the examples of a source as its held-out split.

    Args:
      workdir: of a fine-tuned run, which sets the columns, the labels and the vocabulary.
      source: file of the examples; NAME=FILE for a run of several tasks.

    Raises:
      ValueError: if the run was not fine-tuned, or for a bad example; names file and line.
    """
    from data.examples.text_pairs import write_sources
    from data.vocabulary.load import load_vocabulary
    from data.vocabulary.word_level import make_text_vocabulary

    run = workdir.run
    objective = run.data.objective
    if isinstance(objective, Text2Text):
        sources: dict[str, dict[str, Any]] = {
            part.task or "examples": {} for part in objective.tasks or (objective,)
        }
        name, task_objective, file = select_task(objective, source)
        sources[name or "examples"] = {"heldout": read_pairs(task_objective, file, file_format)}
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
    examples = read(source, file_format=file_format)
    if run.model.characters:
        texts = (text for example in examples for text in example.texts)
        vocabulary = make_text_vocabulary(texts)
    else:
        vocabulary = load_vocabulary(f"{workdir}/vocabulary")
    with tempfile.TemporaryDirectory() as folder:
        store = write(
            f"{folder}/store",
            vocabulary,
            {"heldout": examples},
            list_label_names(run),
        )
        if skipped := store.num_skipped_words:
            print(
                f"{source}: skipped {skipped:,} words and their tags, because the vocabulary has "
                "no token for them",
                file=sys.stderr,
            )
        yield f"{folder}/store"


def select_task(objective: Text2Text, source: str) -> tuple[str, Text2Text, str]:
    """Return the name, the objective and the file of the task that a source is for.

    Args:
      source: NAME=FILE for a run of several tasks, else the file.
    """
    if not objective.tasks:
        return "", objective, source
    name, _, file = source.partition("=")
    by_name = {part.task: part for part in objective.tasks}
    if name not in by_name or not file:
        raise ValueError(
            f"--labelled {source}: expected NAME=FILE, where NAME is one of the run's tasks: "
            f"{', '.join(by_name)}"
        )
    return name, by_name[name], file


def read_pairs(objective: Text2Text, source: str, file_format: str | None = None) -> list[Any]:
    """Return the pairs of texts that an objective makes of the examples of a source."""
    from data.examples import choice_questions as choices
    from data.examples import qa, tagged_sentences
    from data.examples.labelled_examples import Columns, parse_class, parse_score, read_examples
    from data.examples.text_pairs import (
        make_pairs,
        make_question_pairs,
        make_tag_pairs,
        parse_answer,
    )

    if objective.questions:
        return make_question_pairs(
            objective, qa.read_questions(source, objective.questions == "squad2", None, file_format)
        )
    if objective.choices:
        return make_pairs(
            objective, choices.read_questions(source, objective.choices, None, file_format)
        )
    if objective.scheme:
        columns = () if objective.columns == tagged_sentences.USUAL_KEYS[0] else objective.columns
        return make_tag_pairs(
            objective, tagged_sentences.read_sentences(source, columns, None, file_format)
        )
    *texts, answer = objective.columns
    parse_label = (
        parse_class if objective.labels else parse_score if objective.step else parse_answer
    )
    columns = Columns(tuple(texts), answer)
    return make_pairs(
        objective, read_examples(source, columns, parse_label, file_format=file_format)
    )


def make_class_io(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of a classifier."""
    from data.examples.labelled_examples import Columns, parse_class, parse_score, read_examples
    from data.examples.labelled_store import write_labelled

    *texts, label = run.data.objective.columns
    return partial(
        read_examples,
        columns=Columns(tuple(texts), label),
        label=parse_class if run.model.labels else parse_score,
    ), write_labelled


def make_tag_io(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of a tagger."""
    from data.examples.tagged_sentences import read_sentences, write_tagged

    return partial(read_sentences, columns=run.data.objective.columns), write_tagged


def make_choice_io(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of multiple choice."""
    from data.examples.choice_questions import read_questions
    from data.examples.labelled_store import write_labelled

    return partial(read_questions, choices=run.data.objective.choices), write_labelled


def make_answer_io(run: Any) -> ExampleIo:
    """Return the functions that read and write the examples of question answering."""
    from data.examples.qa import read_questions
    from data.examples.qa_store import write_heldout

    return partial(read_questions, unanswerable=run.model.unanswerable), write_heldout


def make_text_io(run: Any) -> ExampleIo:
    """Return the functions that read and write the texts of an embedder."""
    from data.examples.labelled_store import write_labelled
    from data.examples.text_sets import read_text_sets

    columns = run.data.objective.columns

    def read_examples(source: str, file_format: str | None = None) -> list[Any]:
        return read_text_sets(source, columns, None, None, file_format)[0]

    return read_examples, write_labelled


def list_label_names(run: Any) -> tuple[str, ...]:
    """Return the names of the classes, tags or choices of a run, () if it has none."""
    return (
        tuple(map(str, range(run.data.objective.choices)))
        if isinstance(run.model, ChoiceConfig)
        else run.model.labels or ()
    )


LABELLED: dict[type, Callable[[Any], ExampleIo]] = {
    ClassifierConfig: make_class_io,
    TaggerConfig: make_tag_io,
    ChoiceConfig: make_choice_io,
    SpanReaderConfig: make_answer_io,
    EmbedderConfig: make_text_io,
}
