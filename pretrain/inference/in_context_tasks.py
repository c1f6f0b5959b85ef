"""Questions of in-context tasks, with examples in front (Brown et al. 2020, section 2.4).

A file has JSON lines of one form:

    {"context": "...", "choices": ["...", "..."], "answer": 1}   which choice is the likeliest
                                                                 continuation; `answer` is its
                                                                 number, from 0, or its text
    {"context": "...", "answer": "..."}                          whether the model would write
                                                                 exactly this answer
    {"text": "... word"}                                         the same for a text's last word
                                                                 (LAMBADA; Paperno et al. 2016)

Other fields are ignored. A context and its continuation are joined by a space, unless one of them
has white space there.
"""

import collections
import dataclasses
import json
import os
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from data.corpus.json_lines import read_json_lines
from data.vocabulary.word_boundaries import is_without_blanks


@dataclasses.dataclass(frozen=True)
class InContextQuestion:
    """A context and its possible continuations.

    Attributes:
      record: the JSON object.
      context: the text before the choices.
      answer: the index of the right choice.
      is_open: whether the answer is the only choice, so that there is nothing to choose from.
    """

    place: str
    record: dict[str, Any]
    context: str
    choices: tuple[str, ...]
    answer: int
    is_open: bool

    def format_example(self) -> str:
        """Return the question with its answer, as an example for another question."""
        return join_texts(self.context, self.choices[self.answer])


def join_texts(context: str, choice: str) -> str:
    """Return a context and a choice as one text, with a blank between two words.

    Scripts such as Chinese and Thai have no blanks between words.
    """
    sides = context[-1:], choice[:1]
    is_joined = not all(sides) or any(map(str.isspace, sides)) or all(map(is_unspaced, sides))
    return context + ("" if is_joined else " ") + choice


def is_unspaced(character: str) -> bool:
    """Return whether a character is of a script without blanks, or of its punctuation."""
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return is_without_blanks(character) or (is_wide and unicodedata.category(character)[0] == "P")


def read_questions(path: str | os.PathLike[str]) -> list[InContextQuestion]:
    """Return the questions of a JSONL file.

    Raises ValueError, which names file and line, for a malformed question or a mixture of forms.
    """
    questions = []
    for place, record in read_json_lines(path):
        question = _parse_question(place, record)
        if questions and question.is_open != questions[0].is_open:
            kinds = {True: "an answer alone", False: "choices"}
            raise ValueError(
                f"{place}: has {kinds[question.is_open]}, but {questions[0].place} has "
                f"{kinds[questions[0].is_open]}: one file, one form"
            )
        questions.append(question)
    if not questions:
        raise ValueError(f"{path}: there are no questions in it")
    return questions


def _parse_question(place: str, record: dict[str, Any]) -> InContextQuestion:
    """Return the question in a JSON object. Raises ValueError, which begins with the place."""
    if "text" in record:
        if strange := {"context", "choices", "answer"} & record.keys():
            raise ValueError(
                f"{place}: text is the only field of its form, and there is "
                f"{', '.join(sorted(strange))} too"
            )
        text = _get_string(place, record, "text").rstrip()
        context, *words = text.rsplit(maxsplit=1) or [""]
        if not words:
            raise ValueError(f"{place}: text needs a last word and something before it")
        gap = text[len(context) : -len(words[0])]
        if gap.strip(" "):  # blanks are those that join a context and a choice
            context += gap
        return InContextQuestion(place, record, context, (words[0],), 0, is_open=True)
    context = _get_string(place, record, "context")
    if "choices" not in record:
        answer = _check_filled(place, "answer", _get_string(place, record, "answer"))
        return InContextQuestion(place, record, context, (answer,), 0, is_open=True)
    choices = record["choices"]
    if (
        not isinstance(choices, list)
        or len(choices) < 2
        or not all(isinstance(choice, str) for choice in choices)
    ):
        raise ValueError(
            f"{place}: choices is a list of two strings or more, not {json.dumps(choices)[:80]}"
        )
    choices = tuple(_check_filled(place, "choices", choice) for choice in choices)
    answer = record.get("answer")
    if isinstance(answer, str) and choices.count(answer) == 1:
        answer = choices.index(answer)
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(choices):
        raise ValueError(
            f"{place}: answer is the number of a choice, 0 to {len(choices) - 1}, or one of them; "
            f"not {json.dumps(answer)[:80]}"
        )
    return InContextQuestion(place, record, context, choices, answer, is_open=False)


def _get_string(place: str, record: dict[str, Any], name: str) -> str:
    """Return the string in a field. Raises ValueError if there is none."""
    if not isinstance(record.get(name), str):
        raise ValueError(
            f"{place}: expected the field {name}, a string (see `evaluate --help` for the forms)"
        )
    return record[name]


def _check_filled(place: str, name: str, text: str) -> str:
    """Return a text unchanged. Raises ValueError if it is blank."""
    if not text.strip():
        raise ValueError(f"{place}: {name} has an empty text; there is nothing to be scored")
    return text


class ExamplePool:
    """The questions from which examples are drawn, and where each record is among them."""

    def __init__(self, questions: Sequence[InContextQuestion]) -> None:
        self.questions, self.places = questions, collections.defaultdict(list)
        for place, question in enumerate(questions):
            self.places[write_record(question)].append(place)

    def find_places(self, question: InContextQuestion) -> list[int]:
        """Return the numbers, in order, of the questions with the record of `question`."""
        return self.places.get(write_record(question), [])


def write_record(question: InContextQuestion) -> str:
    """Return the record of a question as text, the same for equal records."""
    return json.dumps(question.record, sort_keys=True)


def draw_examples(
    number: int, question: InContextQuestion, pool: ExamplePool, shots: int, seed: int
) -> list[InContextQuestion]:
    """Return `shots` examples for a question, drawn from a pool without the question itself.

    Args:
      number: the number of the question; with `seed` it decides the draw.

    Raises:
      ValueError: the pool is too small.
    """
    if not shots:
        return []
    same = pool.find_places(question)
    num_others = len(pool.questions) - len(same)
    if num_others < shots:
        raise ValueError(
            f"{question.place}: {shots} examples (--shots) are needed, and there are only "
            f"{num_others} other questions"
        )
    rng = np.random.default_rng([seed, number])
    # The number of one of the others among all questions: each equal one before it counts too.
    skipped = np.asarray(same) - np.arange(len(same))
    drawn = rng.choice(num_others, shots, replace=False)
    return [pool.questions[i] for i in drawn + np.searchsorted(skipped, drawn, side="right")]


def format_prompt(
    question: InContextQuestion, examples: Sequence[InContextQuestion], delimiter: str
) -> str:
    """Return the text before a choice: the examples and the context."""
    return delimiter.join([*(example.format_example() for example in examples), question.context])
