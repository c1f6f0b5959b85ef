"""A token store of questions: a document is a context and the questions about it, and each knows where its answer lies.

Beside the files of data/store/reader.py lie, for each part,

    spans.bin     int64 [Q, 6]: of each question the tokens [begin, end) of its text, of its context, and of its first answer, or -1 and -1
    begins.bin    int32 [T]: the character of its context that a token begins with, without white space; 0 in questions
    ends.bin      int32 [T]: the one behind its last
    texts.json    {"contexts": as they were written, "questions": [id, number of the context, the texts of all answers]}

Q questions   T tokens
"""

import json
import pathlib

import numpy as np

from data.examples.example_store import ExampleStore
from data.examples.qa import Question
from data.store.generations import replace_store
from data.store.qa_reader import CHARACTERS, OFFSETS, Questions
from data.store.writer import SPLITS, StoreWriter
from data.vocabulary.load import Vocabulary


class NoPieces(ValueError):
    """Questions for whose answers the vocabulary has no piece; it tells of the first."""

    def __init__(self, questions: list[Question]):
        super().__init__(
            f"{questions[0].place}: the vocabulary has no piece for the answer {questions[0].answers[0][0][:60]!r}"
        )
        self.questions = questions


def encode(vocabulary: Vocabulary, questions: list[Question]) -> Questions:
    """Raises ValueError, which names the place, for a context in which the vocabulary sees nothing, and `NoPieces` for answers of which that is true."""
    about = {}
    for number, one in enumerate(questions):
        about.setdefault(one.context, []).append(number)
    asked = vocabulary.encode_batch([one.question for one in questions])
    contexts = vocabulary.encode_offsets(
        [questions[numbers[0]].readable for numbers in about.values()]
    )
    spans_Q6, parts, sentences, documents, unseen, at = (
        np.full((len(questions), 6), -1, OFFSETS),
        [],
        [],
        [],
        [],
        0,
    )
    for numbers, (ids, offsets) in zip(about.values(), contexts):
        first = questions[numbers[0]]
        begins, ends = trimmed(first.readable, np.array(offsets, np.int64).reshape(-1, 2))
        if not len(ids):
            raise ValueError(
                f"{first.place}: the vocabulary has no piece for its context {first.context[:60]!r}"
            )
        parts.append((ids, begins, ends))
        context, at = (at, at + len(ids)), at + len(ids)
        for number in numbers:
            spans_Q6[number, :4] = at, at + len(asked[number]), *context
            at += len(asked[number])
            parts.append((asked[number], *np.zeros((2, len(asked[number])), np.int64)))
            if questions[number].answers:
                pieces = located(questions[number], begins, ends)
                if len(pieces):
                    spans_Q6[number, 4:] = context[0] + np.array([pieces[0], pieces[-1] + 1])
                else:
                    unseen.append(questions[number])
        sentences += [len(ids), *(len(asked[number]) for number in numbers)]
        documents.append(sentences[-1 - len(numbers) :])
    if unseen:
        raise NoPieces(unseen)
    columns = (
        np.concatenate([np.asarray(part, np.int64) for part in column] or [np.zeros(0, np.int64)])
        for column in zip(*parts)
    )
    tokens, begins_T, ends_T = columns
    sizes = np.array([sum(one) for one in documents], np.int64)
    return Questions(
        tokens,
        spans_Q6,
        begins_T.astype(CHARACTERS),
        ends_T.astype(CHARACTERS),
        np.array(sentences, np.int64),
        sizes,
    )


def trimmed(text: str, offsets_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(begins, ends) of pieces without the white space at their edges, which some vocabularies give them; one of nothing else is empty."""
    solid = np.array([not character.isspace() for character in text], bool)
    index = np.arange(len(text))
    following = np.minimum.accumulate(np.where(solid, index, len(text))[::-1])[
        ::-1
    ]  # the first solid character from each on
    behind = np.concatenate(
        [[0], np.maximum.accumulate(np.where(solid, index + 1, 0))]
    )  # behind the last solid one before each
    begins, ends = offsets_N2.T
    begins = np.minimum(np.append(following, len(text))[begins], ends)
    return begins, np.maximum(behind[ends], begins)


def located(question: Question, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The pieces of a context that the question's first answer has a character in."""
    text, start = question.answers[0]
    assert start is not None  # where it is, is what is learned
    return np.flatnonzero((ends > start) & (begins < start + len(text)))


def write_questions(
    output,
    vocabulary: Vocabulary,
    parts: dict[str, list[Question]],
    encoded: dict[str, Questions],
    **described,
) -> ExampleStore:
    """Write questions and what `encode` made of them as the store `output`, in place of what is there, and open it.

    described: further entries of the manifest.
    """
    output = pathlib.Path(output).absolute()
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("questions")
        for split in SPLITS:
            if not parts.get(split):
                continue
            one = encoded[split]
            writer.add(split, one.tokens, one.documents, one.sentences)
            for name, array in (
                ("spans", one.spans_Q6),
                ("begins", one.begins_T),
                ("ends", one.ends_T),
            ):
                writer.add_beside(split, f"{name}.bin", array)
            writer.add_beside(split, "texts.json", np.frombuffer(texts(parts[split]), np.uint8))
        writer.finish(
            [1.0], questions={split: len(part) for split, part in parts.items()}, **described
        )
    return ExampleStore.open(output)


def texts(questions: list[Question]) -> bytes:
    """What `opened_texts` reads."""
    numbers = {
        context: number
        for number, context in enumerate(dict.fromkeys(one.context for one in questions))
    }
    rows = [[one.id, numbers[one.context], [text for text, _ in one.answers]] for one in questions]
    return json.dumps({"contexts": list(numbers), "questions": rows}).encode()


def write_heldout(path, vocabulary, parts, labels):
    """Write questions as a store that is scored, and open it; labels: () of questions."""
    return write_questions(
        path, vocabulary, parts, {split: encode(vocabulary, part) for split, part in parts.items()}
    )
