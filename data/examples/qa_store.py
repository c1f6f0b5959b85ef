"""Token stores of questions: a document is a context and the questions about it.

Each split has these files, in addition to the files of data/store/reader.py:

    spans.bin   int64 [Q, 6]: token ranges [begin, end) of each question's text, of its context, and
                of its first answer, or -1 and -1
    begins.bin  int32 [T]: character of the context at which a token begins, white space skipped; 0
                in questions
    ends.bin    int32 [T]: character after the token's last one
    texts.json  {"contexts": texts as they are written,
                 "questions": [id, number of the context, texts of all answers]}

Q questions   T tokens   N tokens of a context
"""

import json
import os
import pathlib
from typing import Any

import numpy as np

from data.examples.example_store import ExampleStore
from data.examples.qa import Question
from data.source import SPLITS
from data.store.generations import replace_store
from data.store.qa_reader import CHARACTER_DTYPE, SPAN_DTYPE, Questions
from data.store.writer import StoreWriter
from data.vocabulary.load import Vocabulary


class UnencodableAnswers(ValueError):
    """Questions for whose answers the vocabulary has no token; the message names the first."""

    def __init__(self, questions: list[Question]) -> None:
        first = questions[0]
        super().__init__(
            f"{first.location}: the vocabulary has no piece for the answer "
            f"{first.answers[0][0][:60]!r}"
        )
        self.questions = questions


def encode_questions(vocabulary: Vocabulary, questions: list[Question]) -> Questions:
    """Return questions and their contexts as tokens.

    Raises:
      ValueError: the vocabulary has no token for a context; the message names its location.
      NoPieces: the vocabulary has no tokens for some answers.
    """
    by_context: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        by_context.setdefault(question.context, []).append(number)
    question_ids = vocabulary.encode_batch([question.question for question in questions])
    contexts = vocabulary.encode_with_offsets(
        [questions[numbers[0]].readable_context for numbers in by_context.values()]
    )
    spans_Q6 = np.full((len(questions), 6), -1, SPAN_DTYPE)
    parts, sentences, documents, unseen, end = [], [], [], [], 0
    for numbers, (ids, offsets) in zip(by_context.values(), contexts):
        first = questions[numbers[0]]
        begins, ends = trim_offsets(
            first.readable_context, np.array(offsets, np.int64).reshape(-1, 2)
        )
        if not len(ids):
            raise ValueError(
                f"{first.location}: the vocabulary has no piece for its context "
                f"{first.context[:60]!r}"
            )
        parts.append((ids, begins, ends))
        context, end = (end, end + len(ids)), end + len(ids)
        for number in numbers:
            length = len(question_ids[number])
            spans_Q6[number, :4] = end, end + length, *context
            end += length
            parts.append((question_ids[number], *np.zeros((2, length), np.int64)))
            if questions[number].answers:
                pieces = locate_answer(questions[number], begins, ends)
                if len(pieces):
                    spans_Q6[number, 4:] = context[0] + np.array([pieces[0], pieces[-1] + 1])
                else:
                    unseen.append(questions[number])
        sentences += [len(ids), *(len(question_ids[number]) for number in numbers)]
        documents.append(sentences[-1 - len(numbers) :])
    if unseen:
        raise UnencodableAnswers(unseen)
    tokens, begins_T, ends_T = (
        np.concatenate([np.asarray(part, np.int64) for part in column] or [np.zeros(0, np.int64)])
        for column in zip(*parts)
    )
    sizes = np.array([sum(lengths) for lengths in documents], np.int64)
    return Questions(
        tokens,
        spans_Q6,
        begins_T.astype(CHARACTER_DTYPE),
        ends_T.astype(CHARACTER_DTYPE),
        np.array(sentences, np.int64),
        sizes,
    )


def trim_offsets(text: str, offsets_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (begins, ends) of tokens without the white space at their edges: int64 [N] each.

    Some vocabularies count it as part of a token. A token of white space alone becomes empty.

    offsets_N2: character ranges [begin, end) of the tokens.
    """
    solid = np.array([not character.isspace() for character in text], bool)
    index = np.arange(len(text))
    # The first solid character at or after each, and the end of the last solid one before each.
    following = np.minimum.accumulate(np.where(solid, index, len(text))[::-1])[::-1]
    last_end = np.concatenate([[0], np.maximum.accumulate(np.where(solid, index + 1, 0))])
    begins, ends = offsets_N2.T
    begins = np.minimum(np.append(following, len(text))[begins], ends)
    return begins, np.maximum(last_end[ends], begins)


def locate_answer(question: Question, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the tokens of a context that share a character with the question's first answer."""
    text, start = question.answers[0]
    assert start is not None  # the first answer always has a start
    return np.flatnonzero((ends > start) & (begins < start + len(text)))


def write_questions(
    output: str | os.PathLike[str],
    vocabulary: Vocabulary,
    parts: dict[str, list[Question]],
    encoded: dict[str, Questions],
    **described: Any,
) -> ExampleStore:
    """Write questions as the store `output`, which is replaced if it exists, and open it."""
    output = pathlib.Path(output).absolute()
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("questions")
        for split in SPLITS:
            if not parts.get(split):
                continue
            tokenized = encoded[split]
            writer.add_documents(split, tokenized.tokens, tokenized.documents, tokenized.sentences)
            for name, array in (
                ("spans", tokenized.spans_Q6),
                ("begins", tokenized.begins_T),
                ("ends", tokenized.ends_T),
            ):
                writer.add_array(split, f"{name}.bin", array)
            writer.add_array(
                split, "texts.json", np.frombuffer(serialize_texts(parts[split]), np.uint8)
            )
        writer.finish(
            [1.0], questions={split: len(part) for split, part in parts.items()}, **described
        )
    return ExampleStore.open(output)


def serialize_texts(questions: list[Question]) -> bytes:
    """Return the content of texts.json."""
    contexts = dict.fromkeys(question.context for question in questions)
    numbers = {context: number for number, context in enumerate(contexts)}
    rows = [
        [question.id, numbers[question.context], [text for text, _ in question.answers]]
        for question in questions
    ]
    return json.dumps({"contexts": list(numbers), "questions": rows}).encode()


def write_heldout(
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    parts: dict[str, list[Question]],
    labels: tuple[str, ...],
) -> ExampleStore:
    """Write questions as a store for evaluation, and open it; `labels` is () for questions."""
    return write_questions(
        path,
        vocabulary,
        parts,
        {split: encode_questions(vocabulary, part) for split, part in parts.items()},
    )
