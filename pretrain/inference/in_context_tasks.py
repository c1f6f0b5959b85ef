"""Questions that a model which writes answers by what it finds likeliest, with examples in front (Brown et al. 2020, section 2.4).

A file of JSON lines, all of one form:

    {"context": "...", "choices": ["...", "..."], "answer": 1}      which choice goes on best; `answer` is its number, from 0, or the choice itself
    {"context": "...", "answer": "..."}                             whether the model would write just this
    {"text": "... word"}                                            the same, of a text's last word (LAMBADA; Paperno et al. 2016)

Other fields are left alone. A context and what follows it are joined by a space, unless one of them brings white space of its own.
"""

import dataclasses
import json

import numpy as np

from data.corpus.json_lines import read_json_lines


@dataclasses.dataclass(frozen=True)
class Question:
    """A context and what could follow it. `place` names it in errors; `open` where there is nothing to choose from."""

    place: str
    record: dict
    context: str
    choices: tuple[str, ...]
    answer: int
    open: bool

    def example(self):
        """The question with its answer behind it, as it stands in front of another question."""
        return joined(self.context, self.choices[self.answer])


def joined(context, choice):
    """The two as one text."""
    gap = "" if not context or context[-1].isspace() or not choice or choice[0].isspace() else " "
    return context + gap + choice


def read_questions(path):
    """The questions of a JSONL file. Raises ValueError, which names file and line, for what is not one, and for a mixture of forms."""
    questions = []
    for place, record in read_json_lines(path):
        question = _question(place, record)
        if questions and question.open != questions[0].open:
            kinds = {True: "an answer alone", False: "choices"}
            raise ValueError(
                f"{place}: has {kinds[question.open]}, but {questions[0].place} has {kinds[questions[0].open]}: one file, one form"
            )
        questions.append(question)
    if not questions:
        raise ValueError(f"{path}: there are no questions in it")
    return questions


def _question(place, record):
    if "text" in record:
        if strange := {"context", "choices", "answer"} & record.keys():
            raise ValueError(
                f"{place}: text stands alone, and there is {', '.join(sorted(strange))} too"
            )
        context, _, word = _string(place, record, "text").rstrip().rpartition(" ")
        if not context.strip() or not word:
            raise ValueError(f"{place}: text needs a last word and something before it")
        return Question(place, record, context.rstrip(), (word,), 0, open=True)
    context = _string(place, record, "context")
    if "choices" not in record:
        return Question(
            place,
            record,
            context,
            (_filled(place, "answer", _string(place, record, "answer")),),
            0,
            open=True,
        )
    choices = record["choices"]
    if (
        not isinstance(choices, list)
        or len(choices) < 2
        or not all(isinstance(choice, str) for choice in choices)
    ):
        raise ValueError(
            f"{place}: choices is a list of two strings or more, not {json.dumps(choices)[:80]}"
        )
    choices = tuple(_filled(place, "choices", choice) for choice in choices)
    answer = record.get("answer")
    if isinstance(answer, str) and choices.count(answer) == 1:
        answer = choices.index(answer)
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(choices):
        raise ValueError(
            f"{place}: answer is the number of a choice, 0 to {len(choices) - 1}, or one of them; not {json.dumps(answer)[:80]}"
        )
    return Question(place, record, context, choices, answer, open=False)


def _string(place, record, name):
    if not isinstance(record.get(name), str):
        raise ValueError(
            f"{place}: expected the field {name}, a string (see `evaluate --help` for the forms)"
        )
    return record[name]


def _filled(place, name, text):
    if not text.strip():
        raise ValueError(f"{place}: {name} has an empty text; there is nothing to be scored")
    return text


def examples_for(number, question, pool, shots, seed):
    """The examples that stand in front of a question: `shots` of the pool, drawn anew for each question, never the question itself.

    number: the question's own number, with which the draw is the same in any process. Raises ValueError where the pool is too small.
    """
    if not shots:
        return []
    others = [other for other in pool if other.record != question.record]
    if len(others) < shots:
        raise ValueError(
            f"{question.place}: {shots} examples (--shots) are to stand in front, and there are {len(others)} others"
        )
    return [
        others[i]
        for i in np.random.default_rng([seed, number]).choice(len(others), shots, replace=False)
    ]


def prompt(question, examples, delimiter):
    """What the model reads before a choice."""
    return delimiter.join([*(example.example() for example in examples), question.context])
