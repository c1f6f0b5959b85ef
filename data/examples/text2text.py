"""Labelled text as pairs of texts, and a token store of them (Raffel et al. 2019, appendix D).

The store is one of data/store/reader.py in which a document is an example and its two sentences are what is read and what is to be written.
Beside them lies STORE/{train,heldout}/answers.jsonl: what is to be written as it stood, a JSON string a line, for what compares whole
texts; of a question the list of all answers that are right, of tagged words an object of these and their tags, of a score the number
before it was rounded (stores of before have what is to be written). And ends.bin (data/objectives/text2text.py): which inputs lose their
answer when they are cut.
"""

import json
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from data.examples.example_store import ExampleStore
from data.examples.labelled import Example, text_of, tidy
from data.examples.qa import Question
from data.examples.tagging import Sentence
from data.examples.tags_as_text import Reading, segments, written
from data.objectives.text2text import ANSWERS, ENDS, Text2Text
from data.store.generations import replace_store
from data.store.writer import SPLITS, StoreWriter
from data.vocabulary.load import Vocabulary

STEPS = 25  # that the scores of a file lie apart from each other at most: as many as STS-B's 0 to 5 has of 0.2
NOTHING = "unanswerable"  # what is written for a question that its context does not answer; the paper has no such task


class Asked(NamedTuple):
    """A question as a pair of texts. answers: all that are right, () where there is none; end: the character of `source` behind the first."""

    source: str
    target: str
    answers: tuple[str, ...]
    end: int

    @property
    def answer(self):
        return list(self.answers)


class Scored(NamedTuple):
    """A text and what is to be written of its score. answer: the score as it stood."""

    source: str
    target: str
    answer: float


class Marked(NamedTuple):
    """A sentence of tagged words as a pair of texts."""

    source: str
    target: str
    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def answer(self):
        return {"words": self.words, "tags": self.tags}


def answer_of(value) -> str:
    """A text that is to be written. Raises ValueError where there is none."""
    return text_of(value, "the answer")


def source_of(objective: Text2Text, texts) -> str:
    """What the model reads of texts, which are in the order of the objective's columns, or of the words of a sentence that is to be tagged."""
    texts = (" ".join(texts),) if objective.scheme else texts
    if not objective.names:
        return objective.prefix + "".join(texts)
    named = list(zip(objective.names, texts, strict=True))
    return objective.prefix + " ".join(
        f"{name}: {text}" for name, text in (named if objective.questions else sorted(named))
    )


def target_of(objective: Text2Text, label) -> str:
    """What it is to write for a class, a score, or a text. Raises ValueError for a class that is none of the objective's."""
    if objective.labels:
        if label not in objective.labels:
            known = ", ".join(map(repr, objective.labels))
            raise ValueError(
                f"the label {label!r} is not one of {known}, which are those that are learned"
            )
        return objective.words[objective.labels.index(label)]
    return rounded(label, objective.step) if objective.step else label


def rounded(score: float, step: float) -> str:
    """A score as the nearest multiple of `step`, a half upwards, with no more decimals than that needs: 2.57 by 0.2 is "2.6"."""
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{math.floor(score / step + 0.5) * step + 0.0:.{decimals}f}"


def step_for(scores) -> float:
    """1, 2 or 5 times a power of ten: the least with which the scores, float, fall into at most STEPS steps."""
    least = ((max(scores) - min(scores)) / STEPS or 1.0) * (1 - 1e-9)
    power = 10.0 ** math.floor(math.log10(least))
    return next(round(times * power, 9) for times in (1, 2, 5, 10) if times * power >= least)


def spelt(vocabulary: Vocabulary, ids) -> str:
    """Ids that were written as text: up to the end, without special pieces and ids that no piece has."""
    ids = ids[: ids.index(vocabulary.eos)] if vocabulary.eos in ids else ids
    return vocabulary.decode(
        [i for i in ids if i < vocabulary.size and not vocabulary.special[i]]
    ).strip()


def reading(objective: Text2Text, vocabulary: Vocabulary) -> Callable:
    """A function: a text that was written -> the class or the score that it says, None where it says none; a text itself without these.

    Of questions "" where it says that there is no answer; of tags a `tagged_text.Reading`. Texts are compared as the vocabulary spells them.
    Raises ValueError where it spells two classes alike.
    """
    if objective.scheme:
        return Reading(
            objective.kinds,
            lambda texts: [spelt(vocabulary, ids) for ids in vocabulary.encode_batch(texts)],
        )
    if objective.step:
        return score_in
    if objective.questions == "squad2":
        nothing = spelt(vocabulary, vocabulary.encode(NOTHING))
        return lambda text: "" if text == nothing else text
    if not objective.labels:
        return lambda text: text
    meant = {}
    for label, word in zip(objective.labels, objective.words):
        text = spelt(vocabulary, vocabulary.encode(word))
        if meant.setdefault(text, label) != label:
            raise ValueError(
                f"the vocabulary spells the classes {meant[text]!r} and {label!r} alike, as {text!r}: give them other names"
            )
    return meant.get


def score_in(text: str) -> float | None:
    """The number that a text is, or None."""
    try:
        score = float(text)
    except ValueError:
        return None
    return score if math.isfinite(score) else None


def pairs(objective: Text2Text, examples: list[Example]) -> list[tuple]:
    """(what is read, what is to be written) of examples; of those with scores `Scored`.

    Raises ValueError, which names the line, for a label that is not known.
    """
    found = []
    for example in examples:
        try:
            pair = source_of(objective, example.texts), target_of(objective, example.label)
            found.append(Scored(*pair, cast(float, example.label)) if objective.step else pair)
        except ValueError as error:
            raise ValueError(f"{example.place}: {error}") from None
    return found


def asked(objective: Text2Text, questions: list[Question]) -> list[Asked]:
    """Questions as pairs: the answer that is learned is the first, or NOTHING."""
    found = []
    for one in questions:
        context = one.readable.strip()
        source = source_of(objective, (one.question, context))
        target, end = NOTHING, 0
        if one.answers:
            target, start = one.answers[0]
            assert start is not None  # what is learned is cut with its context
            before = len(one.readable) - len(one.readable.lstrip())
            end = len(source) - len(context) - before + start + len(target)
        found.append(Asked(source, tidy(target), tuple(text for text, _ in one.answers), end))
    return found


def marked(objective: Text2Text, sentences: list[Sentence]) -> list[Marked]:
    """Sentences of tagged words as pairs. Raises ValueError, which names the line, for an entity of a type that is not known."""
    found = []
    for one in sentences:
        for entity in segments(one.tags, objective.scheme):
            if entity.type not in objective.kinds:
                known = ", ".join(map(repr, objective.kinds))
                raise ValueError(
                    f"{one.place(entity.start)}: the tag {one.tags[entity.start]!r}: expected one of {known}, which are those that are learned"
                )
        found.append(
            Marked(
                source_of(objective, one.words),
                written(one.words, one.tags, objective.scheme),
                one.words,
                one.tags,
            )
        )
    return found


def write_pairs(
    output,
    vocabulary: Vocabulary,
    objective: Text2Text,
    examples: dict[str, list[tuple[str, str]]],
    **more,
) -> ExampleStore:
    """`write_sources` of a run of one task; examples: its pairs of each split."""
    return write_sources(output, vocabulary, objective, {"examples": examples}, [1.0], **more)


def write_sources(
    output,
    vocabulary: Vocabulary,
    objective: Text2Text,
    sources: dict[str, dict],
    rates: list[float],
    **more,
) -> ExampleStore:
    """Write pairs as the store `output`, in place of what is there, and open it.

    sources: {name: {split: pairs}}, of each task, where a pair is (what is read, what is written), `Asked`, `Scored` or `Marked`; rates: how often
    each has a row; more: further entries of the manifest. What is to be encoded of a source is in memory at once.
    """
    output = pathlib.Path(output).absolute()
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        for name, examples in sources.items():
            writer.begin_source(name)
            for split in SPLITS:
                add_pairs(writer, split, examples.get(split, []))
        writer.finish(rates, text=objective.describe_pairs(), **more)
    return ExampleStore.open(output)


def add_pairs(writer: StoreWriter, split: str, examples) -> None:
    """Append pairs to a part of a store."""
    ids = writer.vocabulary.encode_batch([text for pair in examples for text in pair[:2]])
    lengths = np.array([len(one) for one in ids], np.int64)
    flat = np.fromiter((i for one in ids for i in one), np.int64, count=int(lengths.sum()))
    writer.add(split, flat, lengths.reshape(-1, 2).sum(axis=1), lengths)
    answers = [getattr(pair, "answer", pair[1]) for pair in examples]
    writer.add_lines(split, ANSWERS, [json.dumps(answer, ensure_ascii=False) for answer in answers])
    ends = np.zeros(len(examples), "<i4")
    standing = [i for i, pair in enumerate(examples) if isinstance(pair, Asked) and pair.answers]
    for i, (_, offsets) in zip(
        standing, writer.vocabulary.encode_offsets([examples[i].source for i in standing])
    ):
        ends[i] = sum(begin < examples[i].end for begin, _ in offsets)
    writer.add_beside(split, ENDS, ends)
