"""Questions with some choices, of which one is right: read and checked line by line, from JSON lines or a table with named columns.

a record has                                  the first text     a choice behind it
sent1, sent2, ending0, ending1, ..., label    sent1              sent2 and the ending (SWAG; Zellers et al. 2018)
context, question, choices, label             context            the question and the choice
context, choices, label                       context            the choice
question, choices, label                      question           the choice

`choices` is a list, and so is of JSON lines alone; label: the number of the right one, from 0. Written as a store they are examples of
data/examples/labelled.py with more texts: the first one, then one for each choice.
"""

import re
from typing import NamedTuple

from data.examples.labelled import Example, records, text_of

ENDING = re.compile(r"ending(\d+)")
FORMS = "sent1, sent2, ending0, ending1, ... or context, question, choices"


class Question(NamedTuple):
    """texts: the first, and one for each choice, as they are read; choices: what is to be told, as it is written."""

    texts: tuple[str, ...]
    choices: tuple[str, ...]


def read(source: str, choices: int | None = None) -> list[Example]:
    """The questions of a source; choices: how many each has, the number of the first one unless given.

    Raises FileNotFoundError, or ValueError that names file and line: for a record of none of the forms, a text that is empty, another number
    of choices, a label that is none of their numbers, and a source without questions.
    """
    examples = []
    for place, record in records(source):
        question = question_of(record, place)
        choices = choices or len(question.choices)
        if len(question.choices) != choices:
            raise ValueError(
                f"{place}: {len(question.choices)} choices; {choices} are expected, for each question"
            )
        examples.append(Example(question.texts, label_of(record, place, choices), place))
    if not examples:
        raise ValueError(f"{source}: no questions in it")
    return examples


def question_of(record: dict, place: str) -> Question:
    """The texts of a record. Raises ValueError, which begins with `place`, where there are none."""

    def text(name):
        return text_of(record[name], f"{place}: {name!r}")

    endings = sorted(
        (name for name in record if ENDING.fullmatch(name)),
        key=lambda name: int(name.removeprefix("ending")),
    )
    if "sent1" in record and endings:
        first, begin = text("sent1"), text("sent2") if record.get("sent2") else ""
        choices = tuple(map(text, endings))
    elif "choices" in record and ("context" in record or "question" in record):
        if not isinstance(record["choices"], list):
            raise ValueError(
                f"{place}: 'choices' is {type(record['choices']).__name__}, not a list of texts"
            )
        said = [text(name) for name in ("context", "question") if record.get(name)]
        first, begin = (said + ["", ""])[:2]
        choices = tuple(
            text_of(choice, f"{place}: choice {number}")
            for number, choice in enumerate(record["choices"])
        )
        if not first:
            raise ValueError(f"{place}: neither 'context' nor 'question' has a text")
    else:
        raise ValueError(
            f"{place}: expected {FORMS}; there are {', '.join(map(repr, record))[:200]}"
        )
    if len(choices) < 2:
        raise ValueError(
            f"{place}: there is {len(choices)} choice, of which none can be the better"
        )
    return Question((first, *(f"{begin} {choice}".strip() for choice in choices)), choices)


def label_of(record: dict, place: str, choices: int) -> str:
    """The number of the right choice, as a text. Raises ValueError, which begins with `place`, where it is not one of them."""
    label = str(record.get("label", "")).strip()
    if isinstance(record.get("label"), bool) or label not in map(str, range(choices)):
        raise ValueError(
            f"{place}: 'label' is {record.get('label')!r}; the number of the right choice is expected, from 0 to {choices - 1}"
        )
    return label
