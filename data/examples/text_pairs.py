"""Labelled text as pairs of texts, and token stores of them (Raffel et al. 2019, appendix D).

As a store (data/store/reader.py), a document is an example and its two sentences are the input and
the target. The store also has, for each split:

    answers.jsonl  a JSON string a line, the target before it was encoded, for metrics that compare
                   texts; for a question, the list of all right answers; for tagged words, an object
                   of the words and their tags; for a score, the number before it was rounded (older
                   stores have the target)
    ends.bin       which inputs lose their answer when they are cut (data/objectives/text2text.py)
"""

import functools
import itertools
import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from data.examples.example_store import ExampleStore
from data.examples.labelled_examples import Example, clean_text, parse_text
from data.examples.qa import Question
from data.examples.tagged_sentences import Sentence
from data.examples.tags_as_text import EntityReader, find_segments, format_entities
from data.objectives.text2text import ANSWERS_FILE, ENDS_FILE, Text2Text
from data.source import SPLITS
from data.store.generations import replace_store
from data.store.writer import StoreWriter
from data.vocabulary.load import Vocabulary

# Largest number of steps between the lowest and the highest score: STS-B's 0 to 5 in steps of 0.2.
MAX_STEPS = 25
# The target of a question that its context does not answer; the paper has no such task.
UNANSWERABLE = "unanswerable"


class QuestionPair(NamedTuple):
    """A question as a pair of texts.

    answers: all right answers, () if there is none.
    end: the character of `source` after the first answer.
    """

    source: str
    target: str
    answers: tuple[str, ...]
    end: int

    @property
    def answer(self) -> list[str]:
        """The entry in answers.jsonl."""
        return list(self.answers)


class ScorePair(NamedTuple):
    """A text and its score as a pair of texts.

    answer: the score before it was rounded.
    """

    source: str
    target: str
    answer: float


class TagPair(NamedTuple):
    """A sentence of tagged words as a pair of texts."""

    source: str
    target: str
    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def answer(self) -> dict[str, tuple[str, ...]]:
        """The entry in answers.jsonl."""
        return {"words": self.words, "tags": self.tags}


def parse_answer(value: Any) -> str:
    """Return the text of an answer; raise a ValueError if it is empty or no text."""
    return parse_text(value, "the answer")


def format_source(objective: Text2Text, texts: Sequence[str]) -> str:
    """Return the model's input.

    texts: texts in the order of the objective's columns, or the words of a sentence to tag.
    """
    texts = (" ".join(texts),) if objective.scheme else texts
    if not objective.names:
        return objective.prefix + "".join(texts)
    named = list(zip(objective.names, texts, strict=True))
    return objective.prefix + " ".join(
        f"{name}: {text}" for name, text in (named if objective.questions else sorted(named))
    )


def format_target(objective: Text2Text, label: Any) -> str:
    """Return the target for a class, a score, or a text."""
    if objective.labels:
        if label not in objective.labels:
            known = ", ".join(map(repr, objective.labels))
            raise ValueError(
                f"the label {label!r} is not one of {known}, the labels that the model learns"
            )
        return objective.words[objective.labels.index(label)]
    return format_score(label, objective.step) if objective.step else label


def format_score(score: float, step: float) -> str:
    """Return a score as the nearest multiple of `step`, with the decimals that it needs.

    A half is rounded up: 2.57 with step 0.2 is "2.6".
    """
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{math.floor(score / step + 0.5) * step + 0.0:.{decimals}f}"


def find_step(scores: Sequence[float]) -> float:
    """Return the smallest step that spans the scores in at most MAX_STEPS steps.

    It is 1, 2 or 5 times a power of ten.
    """
    least = ((max(scores) - min(scores)) / MAX_STEPS or 1.0) * (1 - 1e-9)
    exponent = math.floor(math.log10(least))
    return next(step for n in (1, 2, 5, 10) if (step := float(f"{n}e{exponent}")) >= least)


def decode_output(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    """Return the text of generated ids up to </s>, without special and unknown ids."""
    ids = ids[: ids.index(vocabulary.eos)] if vocabulary.eos in ids else ids
    return vocabulary.decode(
        [i for i in ids if i < vocabulary.size and not vocabulary.special[i]]
    ).strip()


def make_answer_reader(objective: Text2Text, vocabulary: Vocabulary) -> Callable[..., Any]:
    """Return a function that reads the answer from a model's text.

    It returns the class or the score of the text, or None if the text is neither; "" for a question
    that the text calls unanswerable; otherwise the text itself. For tags, it is an
    `EntityReader`. Texts are compared as the vocabulary spells them.

    Raises:
      ValueError: the vocabulary spells two classes alike.
    """
    if objective.scheme:
        decode = functools.partial(decode_output, vocabulary)
        return EntityReader(
            objective.kinds, lambda texts: list(map(decode, vocabulary.encode_batch(texts)))
        )
    if objective.step:
        return read_score
    if objective.questions == "squad2":
        nothing = decode_output(vocabulary, vocabulary.encode(UNANSWERABLE))
        return lambda text: "" if text == nothing else text
    if not objective.labels:
        return lambda text: text
    class_of_text = {}
    for label, word in zip(objective.labels, objective.words):
        text = decode_output(vocabulary, vocabulary.encode(word))
        if class_of_text.setdefault(text, label) != label:
            raise ValueError(
                f"the vocabulary spells the classes {class_of_text[text]!r} and {label!r} alike, "
                f"as {text!r}: give them other names"
            )
    return class_of_text.get


def read_score(text: str) -> float | None:
    """Return the number that a text spells, or None."""
    try:
        score = float(text)
    except ValueError:
        return None
    return score if math.isfinite(score) else None


def make_pairs(objective: Text2Text, examples: list[Example]) -> list[tuple]:
    """Return (input, target) of examples, or `ScorePair`s if the labels are scores.

    Raises:
      ValueError: a label is unknown; the message names the line.
    """
    found = []
    for example in examples:
        try:
            pair = format_source(objective, example.texts), format_target(objective, example.label)
            found.append(ScorePair(*pair, cast(float, example.label)) if objective.step else pair)
        except ValueError as error:
            raise ValueError(f"{example.location}: {error}") from None
    return found


def make_question_pairs(objective: Text2Text, questions: list[Question]) -> list[QuestionPair]:
    """Return questions as pairs; the target is the first answer, or UNANSWERABLE."""
    found = []
    for question in questions:
        context = question.readable_context.strip()
        source = format_source(objective, (question.question, context))
        target, end = UNANSWERABLE, 0
        if question.answers:
            target, start = question.answers[0]
            assert start is not None  # the first answer always has a start
            before = len(question.readable_context) - len(question.readable_context.lstrip())
            end = len(source) - len(context) - before + start + len(target)
        answers = tuple(text for text, _ in question.answers)
        found.append(QuestionPair(source, clean_text(target), answers, end))
    return found


def make_tag_pairs(objective: Text2Text, sentences: list[Sentence]) -> list[TagPair]:
    """Return sentences of tagged words as pairs.

    Raises:
      ValueError: an entity has an unknown type; the message names the line.
    """
    found = []
    for sentence in sentences:
        words, tags = sentence.words, sentence.tags
        for entity in find_segments(tags, objective.scheme):
            if entity.type not in objective.kinds:
                known = ", ".join(map(repr, objective.kinds))
                raise ValueError(
                    f"{sentence.locate_word(entity.start)}: the tag {tags[entity.start]!r}: "
                    f"expected one of {known}, the types that the model learns"
                )
        source = format_source(objective, words)
        target = format_entities(words, tags, objective.scheme)
        found.append(TagPair(source, target, words, tags))
    return found


def write_pairs(
    output: str | os.PathLike[str],
    vocabulary: Vocabulary,
    objective: Text2Text,
    examples: Mapping[str, Sequence[Any]],
    **more: Any,
) -> ExampleStore:
    """Write the pairs of a single task, {split: pairs}, as `write_sources`."""
    return write_sources(output, vocabulary, objective, {"examples": examples}, [1.0], **more)


def write_sources(
    output: str | os.PathLike[str],
    vocabulary: Vocabulary,
    objective: Text2Text,
    sources: Mapping[str, Mapping[str, Sequence[Any]]],
    rates: list[float],
    **more: Any,
) -> ExampleStore:
    """Write pairs as the store `output`, which is replaced if it exists, and open it.

    The texts of a source are in memory at once.

    Args:
      sources: {task: {split: pairs}}; a pair is (input, target), or one of the classes above.
      rates: share of each task in the rows.
    """
    output = pathlib.Path(output).absolute()
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        for name, examples in sources.items():
            writer.begin_source(name)
            for split in SPLITS:
                add_pairs(writer, vocabulary, split, examples.get(split, []))
        writer.finish(rates, text=objective.describe_pairs(), **more)
    return ExampleStore.open(output)


def add_pairs(writer: StoreWriter, vocabulary: Vocabulary, split: str, examples: Any) -> None:
    """Append pairs to a split of a store."""
    ids = vocabulary.encode_batch([text for pair in examples for text in pair[:2]])
    lengths = np.array([len(text_ids) for text_ids in ids], np.int64)
    flat = np.fromiter(itertools.chain.from_iterable(ids), np.int64, count=int(lengths.sum()))
    writer.add_documents(split, flat, lengths.reshape(-1, 2).sum(axis=1), lengths)
    answers = [getattr(pair, "answer", pair[1]) for pair in examples]
    lines = [json.dumps(answer, ensure_ascii=False) for answer in answers]
    writer.add_lines(split, ANSWERS_FILE, lines)
    ends = np.zeros(len(examples), "<i4")
    is_answered = [isinstance(pair, QuestionPair) and bool(pair.answers) for pair in examples]
    answered = np.flatnonzero(is_answered).tolist()
    sources = [examples[i].source for i in answered]
    for i, (_, offsets) in zip(answered, vocabulary.encode_with_offsets(sources)):
        ends[i] = sum(begin < examples[i].end for begin, _ in offsets)
    writer.add_array(split, ENDS_FILE, ends)
