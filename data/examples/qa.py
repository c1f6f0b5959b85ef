"""Questions about a context whose answers are in it: read and check them one by one.

SOURCE                       questions
FILE.json[.gz]               SQuAD's own form: articles, their paragraphs, and the questions about
                             each (Rajpurkar et al. 2016, 2018)
FILE.jsonl[.gz], .tsv, .csv  a question a line, as the reader of labelled text reads them:
                             `context`, `question`, and `answers`, or `answer` and `answer_start`
tfds:squad[/CONFIG][:SPLIT]  of a TensorFlow dataset

`answers` is {"text": [...], "answer_start": [...]}, or a list of {"text", "answer_start"}. If it is
empty, or `is_impossible` is true, the context has no answer; in a table the flag is "true" or "1".
`answer` and `answer_start` are a single answer; `validators`, a list of texts, are further right
ones (QAMR, Michael et al. 2018). A start is counted in characters (code points) of the context as
it is written.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from data.corpus.json_lines import open_text
from data.corpus.readers import BOM
from data.corpus.untrusted import count_marks, describe_excess
from data.examples import labelled_examples
from data.examples.bad_examples import BadExamples, guard_example, raise_if_empty
from data.examples.file_formats import find_suffix

# Of JSON in a file: SQuAD 2.0 has about 3 million, with the commas of its texts.
MAX_VALUES = 30_000_000
# Replaces one character by one, so that the starts of answers stay right.
TO_READABLE = labelled_examples.TO_BLANK | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


# A table has flags as text; an empty column is no flag.
FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": False}


class Question(NamedTuple):
    """A question about a context.

    context: the context as it is written.
    answers: (text, start) of each answer, the first of which is learned; the start is None if only
      the text is known. () if the context has no answer.
    location: location of the question, as "file:line" or "file: question ID".
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int | None], ...]
    location: str

    @property
    def texts(self) -> tuple[str]:
        """The text that decides the question's split, so that a context is in one split only."""
        return (self.context,)

    @property
    def readable_context(self) -> str:
        """The context as the vocabulary reads it, of the same length."""
        return self.context.translate(TO_READABLE)


def read_questions(
    source: str, unanswerable: bool, bad: BadExamples | None = None, file_format: str | None = None
) -> list[Question]:
    """Return the questions of a source.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: an answer that is not at its start, a missing column, an empty question or
        context, a missing answer, or a source without questions; the message names the file and the
        line, or the question.
    """
    found = []
    for place, record in read_records(source, bad, file_format):
        with guard_example(bad):
            found.append(_make_question(record, place, unanswerable))
    raise_if_empty(source, "questions", found, bad)
    return found


def read_records(
    source: str, bad: BadExamples | None = None, file_format: str | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over (location, record) of the questions of a source."""
    if find_suffix(source, file_format) != ".json":
        yield from labelled_examples.read_records(source, bad, file_format)
        return
    with open_text(source, takes_text=True) as file:
        text = file.read().removeprefix(BOM.decode())
    if (count := count_marks(text.encode("utf-8", "surrogatepass"))) > MAX_VALUES:
        raise ValueError(f"{source}: {describe_excess(count, MAX_VALUES)}")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        empty = "" if text else "the file is empty: "
        raise ValueError(
            f"{source}: not JSON ({empty}{error}); a file with an object a line ends in .jsonl"
        ) from error
    yield from _iterate_squad(tree, source)


def _iterate_squad(tree: Any, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over (location, record) of SQuAD's nested form; locations count from 1."""
    for a, article in enumerate(_get_list(tree, "data", source), 1):
        for p, paragraph in enumerate(
            _get_list(article, "paragraphs", f"{source}: article {a}"), 1
        ):
            place = f"{source}: article {a}, paragraph {p}"
            if not isinstance(paragraph, dict) or "context" not in paragraph:
                raise ValueError(f"{place}: no `context`")
            for q, question in enumerate(_get_list(paragraph, "qas", place), 1):
                if not isinstance(question, dict):
                    raise ValueError(f"{place}: question {q} is not an object")
                name = question.get("id")
                yield (
                    f"{place}, question {q}" if name is None else f"{source}: question {name}",
                    question | {"context": paragraph["context"]},
                )


def _get_list(tree: Any, name: str, place: str) -> list[Any]:
    """Return the list `name` of an object; raise a ValueError if it has none."""
    if not isinstance(tree, dict) or not isinstance(tree.get(name), list):
        raise ValueError(
            f"{place}: no list `{name}`; SQuAD's form is "
            '{"data": [{"paragraphs": [{"context", "qas": [...]}]}]}'
        )
    return tree[name]


def _make_question(record: Mapping[str, Any], place: str, unanswerable: bool) -> Question:
    """Return the question of a record."""
    for name in ("context", "question"):
        if name not in record:
            raise ValueError(
                f"{place}: no column {name!r}; there are {', '.join(map(repr, record))[:200]}"
            )
        labelled_examples.parse_text(record[name], f"{place}: column {name!r}")
    answers = _parse_answers(record, place)
    if not answers and not unanswerable:
        raise ValueError(
            f"{place}: it has no answer; --task squad2 allows questions without an answer"
        )
    for text, start in answers:
        _check_answer(text, start, record["context"], place)
    question = labelled_examples.parse_text(record["question"], place)
    return Question(str(record.get("id", place)), question, record["context"], answers, place)


def _parse_answers(record: Mapping[str, Any], place: str) -> tuple[tuple[str, int | None], ...]:
    """Return ((text, start), ...) of a record; the first has a start."""
    if parse_flag(record.get("is_impossible"), f"{place}: column 'is_impossible'"):
        return ()
    if "answers" in record:
        value = record["answers"]
        if isinstance(value, dict):
            texts, starts = (
                _parse_list(value.get(name, ()), name, place) for name in ("text", "answer_start")
            )
        elif isinstance(value, list) and all(
            isinstance(answer, dict) and {"text", "answer_start"} <= answer.keys()
            for answer in value
        ):
            texts, starts = (
                [answer[name] for answer in value] for name in ("text", "answer_start")
            )
        else:
            raise ValueError(
                f"{place}: column 'answers' is neither "
                '{"text": [...], "answer_start": [...]} nor a list of such pairs'
            )
        if len(texts) != len(starts):
            raise ValueError(
                f"{place}: {len(texts)} texts of answers, but {len(starts)} starts (answer_start)"
            )
        return tuple(
            (_parse_answer_text(text, place), _parse_answer_start(start, place))
            for text, start in zip(texts, starts)
        )
    if not {"answer", "answer_start"} <= record.keys():
        known = ", ".join(map(repr, record))[:200]
        raise ValueError(
            f"{place}: no column 'answers', nor 'answer' with 'answer_start'; there are {known}"
        )
    if record["answer"] is None:
        return ()
    further = record.get("validators")
    further = [] if further is None or further == "" else further
    if not isinstance(further, list):
        raise ValueError(f"{place}: column 'validators' is not a list of texts")
    return (
        (
            _parse_answer_text(record["answer"], place),
            _parse_answer_start(record["answer_start"], place),
        ),
        *((_parse_answer_text(answer, place), None) for answer in further),
    )


def parse_flag(value: Any, place: str) -> bool:
    """Return whether a flag is set: a boolean, 0 or 1, or the text of either; null is false."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return bool(value)
    known = FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if isinstance(value, (int, float, np.number)) and value in (0, 1):
        known = bool(value)
    if known is None:
        raise ValueError(f"{place} is {value!r:.60}; expected true or false, or 1 or 0")
    return known


def _parse_list(value: Any, name: str, place: str) -> list[Any]:
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        return list(value)
    kind = type(value).__name__
    raise ValueError(f"{place}: column 'answers': {name!r} is {kind}, not a list")


def _parse_answer_text(value: Any, place: str) -> str:
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(value, str):
        raise ValueError(f"{place}: an answer is {type(value).__name__}, not a text")
    return value


def _parse_answer_start(value: Any, place: str) -> int:
    try:
        start = -1 if isinstance(value, (bool, float)) else int(value)
    except (TypeError, ValueError):
        start = -1
    if start < 0:
        raise ValueError(
            f"{place}: answer_start is {value!r}, not the number of a character of the context"
        )
    return start


def _check_answer(text: str, start: int | None, context: str, place: str) -> None:
    """Raise ValueError unless the answer is at its start."""
    if start is None:
        return
    if not text.strip():
        raise ValueError(f"{place}: an answer is empty")
    if (found := context[start : start + len(text)]) != text:
        first = context.find(text)
        hint = f"it is at {first}" if first >= 0 else "it is nowhere in the context"
        raise ValueError(
            f"{place}: the answer {text[:60]!r} is not at character {start} of its context, "
            f"which has {found[:60]!r} there; {hint}"
        )
