"""Questions, each with a context and the answers that stand in it, read and checked one by one.

SOURCE                       questions
FILE.json[.gz]               SQuAD's own form: articles, their paragraphs, and the questions about each (Rajpurkar et al. 2016, 2018)
FILE.jsonl[.gz], .tsv, .csv  a question a line, as data/examples/labelled.py reads them: `context`, `question`, and `answers`, or `answer` and `answer_start`
tfds:squad[/CONFIG][:SPLIT]  of a TensorFlow dataset

`answers` is {"text": [...], "answer_start": [...]}, or a list of {"text", "answer_start"}; where there are none, or `is_impossible` is true,
the context has no answer. `answer` and `answer_start` are one, and `validators`, a list of texts, are further ones that are right (QAMR,
Michael et al. 2018). A place is counted in characters (code points) of the context as it is written.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

from data.corpus.json_lines import open_text
from data.corpus.readers import BOM
from data.examples import labelled

ODD = labelled.BLANK | dict.fromkeys(
    range(0xD800, 0xE000), "\ufffd"
)  # one character for one, so that places stay


class Question(NamedTuple):
    """A question about a context, which is kept as it was written.

    answers: (text, place of its first character; None where only the text is known) of each, the first of which is learned; () where the
    context has none. place: where the question stands, as "file:line" or "file: question ID".
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int | None], ...]
    place: str

    @property
    def texts(self):
        """By which `labelled_store.part` draws: questions about the same context are on one side."""
        return (self.context,)

    @property
    def readable(self):
        """The context as the vocabulary reads it, character for character."""
        return self.context.translate(ODD)


class BadAnswer(ValueError):
    """An answer that does not stand in its context where it is said to."""


def read(source: str, unanswerable: bool, skip: bool = False) -> tuple[list[Question], int]:
    """(the questions of a source, the number of those left out); unanswerable: some may have no answer.

    Questions with an answer that is not where it is said to be are refused, or left out with `skip`. Raises FileNotFoundError, or ValueError
    that names the file and the line, or the question: for such an answer, a column that is missing, a question or a context that is
    empty, a question without an answer where each needs one, and a source without questions.
    """
    found, bad = [], 0
    for place, record in records(source):
        try:
            found.append(_question(record, place, unanswerable))
        except BadAnswer as error:
            if not skip:
                raise ValueError(
                    f"{error}; --on-bad-answer skip leaves such questions out"
                ) from None
            bad += 1
    if not found:
        raise ValueError(
            f"{source}: no questions in it"
            + (f" but {bad:,} whose answer is not in its context" if bad else "")
        )
    return found, bad


def records(source: str) -> Iterator[tuple[str, dict]]:
    """(place, record) of each question of a source."""
    if not source.removesuffix(".gz").endswith(".json"):
        yield from labelled.records(source)
        return
    with open_text(source) as file:
        text = file.read().removeprefix(BOM.decode())
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        empty = "" if text else "the file is empty: "
        raise ValueError(
            f"{source}: not JSON ({empty}{error}); a file with an object a line ends in .jsonl"
        ) from error
    yield from _nested(tree, source)


def _nested(tree, source):
    """SQuAD's articles, paragraphs and questions; the numbers in a place count from 1."""
    for a, article in enumerate(_list(tree, "data", source), 1):
        for p, paragraph in enumerate(_list(article, "paragraphs", f"{source}: article {a}"), 1):
            place = f"{source}: article {a}, paragraph {p}"
            if not isinstance(paragraph, dict) or "context" not in paragraph:
                raise ValueError(f"{place}: no `context`")
            for q, question in enumerate(_list(paragraph, "qas", place), 1):
                if not isinstance(question, dict):
                    raise ValueError(f"{place}: question {q} is no object")
                name = question.get("id")
                yield (
                    f"{place}, question {q}" if name is None else f"{source}: question {name}",
                    question | {"context": paragraph["context"]},
                )


def _list(tree, name, place):
    if not isinstance(tree, dict) or not isinstance(tree.get(name), list):
        raise ValueError(
            f'{place}: no list `{name}`; SQuAD\'s form is {{"data": [{{"paragraphs": [{{"context", "qas": [...]}}]}}]}}'
        )
    return tree[name]


def _question(record, place, unanswerable):
    for name in ("context", "question"):
        if name not in record:
            raise ValueError(
                f"{place}: no column {name!r}; there are {', '.join(map(repr, record))[:200]}"
            )
        labelled.text_of(record[name], f"{place}: column {name!r}")
    answers = _answers(record, place)
    if not answers and not unanswerable:
        raise ValueError(
            f"{place}: it has no answer; --task squad2 is for questions of which some have none"
        )
    for text, start in answers:
        _check(text, start, record["context"], place)
    question = labelled.text_of(record["question"], place)
    return Question(str(record.get("id", place)), question, record["context"], answers, place)


def _answers(record, place):
    """((text, start), ...) of a record, the first of them with a start."""
    if record.get("is_impossible"):
        return ()
    if "answers" in record:
        value = record["answers"]
        if isinstance(value, dict):
            texts, starts = (list(value.get(name, ())) for name in ("text", "answer_start"))
        elif isinstance(value, list) and all(
            isinstance(one, dict) and {"text", "answer_start"} <= one.keys() for one in value
        ):
            texts, starts = ([one[name] for one in value] for name in ("text", "answer_start"))
        else:
            raise ValueError(
                f'{place}: column \'answers\' is neither {{"text": [...], "answer_start": [...]}} nor a list of such pairs'
            )
        if len(texts) != len(starts):
            raise ValueError(
                f"{place}: {len(texts)} texts of answers, but {len(starts)} places (answer_start)"
            )
        return tuple(
            (_text(text, place), _start(start, place)) for text, start in zip(texts, starts)
        )
    if not {"answer", "answer_start"} <= record.keys():
        told = ", ".join(map(repr, record))[:200]
        raise ValueError(
            f"{place}: no column 'answers', nor 'answer' with 'answer_start'; there are {told}"
        )
    if record["answer"] is None:
        return ()
    further = record.get("validators") or []
    if not isinstance(further, list):
        raise ValueError(f"{place}: column 'validators' is not a list of texts")
    return (
        (_text(record["answer"], place), _start(record["answer_start"], place)),
        *((_text(one, place), None) for one in further),
    )


def _text(value, place):
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(value, str):
        raise ValueError(f"{place}: an answer is {type(value).__name__}, not a text")
    return value


def _start(value, place):
    try:
        start = -1 if isinstance(value, (bool, float)) else int(value)
    except (TypeError, ValueError):
        start = -1
    if start < 0:
        raise ValueError(
            f"{place}: answer_start is {value!r}, not the number of a character of the context"
        )
    return start


def _check(text, start, context, place):
    if start is None:
        return
    if not text.strip():
        raise BadAnswer(f"{place}: an answer is empty")
    if (there := context[start : start + len(text)]) != text:
        at = context.find(text)
        hint = f"it stands at {at}" if at >= 0 else "it stands nowhere in it"
        raise BadAnswer(
            f"{place}: the answer {text[:60]!r} is not at character {start} of its context, where {there[:60]!r} stands; {hint}"
        )
