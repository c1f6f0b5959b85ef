"""Multiple-choice questions: read and check them from JSON lines or a table with named columns.

a record has                                  the first text     a choice after it
sent1, sent2, ending0, ending1, ..., label    sent1              sent2 and the ending (SWAG; Zellers
                                                                 et al. 2018)
context, question, choices, label             context            the question and the choice
context, choices, label                       context            the choice
question, choices, label                      question           the choice

`choices` is a list, which only JSON lines can have; `label` is the number of the right choice, from
0. As a store, they are labelled examples with more texts: the first text, then one for each choice.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from data.examples.bad_examples import BadExamples, guard_example, raise_if_empty
from data.examples.labelled_examples import Example, parse_text, read_records

ENDING = re.compile(r"ending(\d+)")
FORMS = "sent1, sent2, ending0, ending1, ... or context, question, choices"


class ChoiceQuestion(NamedTuple):
    """One question.

    texts: the first text, and one for each choice, as the model reads them.
    choices: the choices as they are written.
    """

    texts: tuple[str, ...]
    choices: tuple[str, ...]


def read_questions(
    source: str,
    choices: int | None = None,
    bad: BadExamples | None = None,
    file_format: str | None = None,
) -> list[Example]:
    """Return the questions of a source.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a record of no known form, an empty text, another number of choices, a wrong
        label, or a source without questions; the message names file and line.
    """
    examples = []
    for place, record in read_records(source, bad, file_format):
        with guard_example(bad):
            question = parse_question(record, place)
            expected = choices or len(question.choices)
            if len(question.choices) != expected:
                raise ValueError(
                    f"{place}: {len(question.choices)} choices; "
                    f"{expected} are expected, for each question"
                )
            examples.append(Example(question.texts, parse_label(record, place, expected), place))
            choices = expected
    raise_if_empty(source, "questions", examples, bad)
    return examples


def parse_question(record: Mapping[str, Any], place: str) -> ChoiceQuestion:
    """Return the question of a record.

    Raises:
      ValueError: the record has no question; the message begins with `place`.
    """

    def get_text(name: str) -> str:
        return parse_text(record[name], f"{place}: {name!r}")

    def is_given(name: str) -> bool:
        return record.get(name) not in (None, "")

    endings = sorted(
        (name for name in record if ENDING.fullmatch(name)),
        key=lambda name: int(name.removeprefix("ending")),
    )
    if "sent1" in record and endings:
        first, begin = get_text("sent1"), get_text("sent2") if is_given("sent2") else ""
        choices = tuple(map(get_text, endings))
    elif "choices" in record and ("context" in record or "question" in record):
        if not isinstance(record["choices"], list):
            raise ValueError(
                f"{place}: 'choices' is {type(record['choices']).__name__}, not a list of texts"
            )
        texts = [get_text(name) for name in ("context", "question") if is_given(name)]
        first, begin = (texts + ["", ""])[:2]
        choices = tuple(
            parse_text(choice, f"{place}: choice {number}")
            for number, choice in enumerate(record["choices"])
        )
        if not first:
            raise ValueError(f"{place}: neither 'context' nor 'question' has a text")
    else:
        raise ValueError(
            f"{place}: expected {FORMS}; there are {', '.join(map(repr, record))[:200]}"
        )
    if len(choices) < 2:
        raise ValueError(f"{place}: there is {len(choices)} choice; a question has at least 2")
    return ChoiceQuestion((first, *(f"{begin} {choice}".strip() for choice in choices)), choices)


def parse_label(record: Mapping[str, Any], place: str, choices: int) -> str:
    """Return the number of the right choice, as a text.

    Raises:
      ValueError: it is not the number of a choice; the message begins with `place`.
    """
    label = str(record.get("label", "")).strip()
    if isinstance(record.get("label"), bool) or label not in map(str, range(choices)):
        raise ValueError(
            f"{place}: 'label' is {record.get('label')!r}; "
            f"the number of the right choice is expected, from 0 to {choices - 1}"
        )
    return label
