"""Collections to search, in the form of BEIR: documents, queries and judgements.

    corpus.jsonl    {"_id": "d1", "title": "...", "text": "..."}; the title may be missing
    queries.jsonl   {"_id": "q1", "text": "..."}
    qrels.tsv       query-id, corpus-id and score in columns of these names; a score above 0 is of a
                    relevant document

Any .jsonl, .tsv or .csv file with these columns is read. Without `_id` a text has the number of its
line.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from data.examples.labelled_examples import parse_score, parse_text, read_records

JUDGEMENT = ("query-id", "corpus-id", "score")


class Passage(NamedTuple):
    """A text of a collection: its name, the text with its title, and its file and line."""

    name: str
    text: str
    place: str


def read_passages(source: str, file_format: str | None = None) -> list[Passage]:
    """Return the documents or the queries of a file.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a text is missing, a name occurs twice, or there is none; names file and line.
    """
    passages: dict[str, Passage] = {}
    for place, record in read_records(source, None, file_format):
        name = str(record.get("_id", place.rpartition(":")[2]))
        if name in passages:
            raise ValueError(f"{place}: the _id {name!r} is taken by {passages[name].place}")
        if "text" not in record:
            raise ValueError(f"{place}: no column 'text'; there are {list_keys(record)}")
        title = record.get("title") or ""
        body = parse_text(record["text"] or title, f"{place}: column 'text'")
        if title and record["text"]:
            body = f"{parse_text(title, f'{place}: column title')} {body}"
        passages[name] = Passage(name, body, place)
    if not passages:
        raise ValueError(f"{source}: no texts in it")
    return list(passages.values())


def read_judgements(source: str, file_format: str | None = None) -> dict[str, dict[str, int]]:
    """Return {query: {document: grade}} of a file.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a column is missing, a score is no whole number, or there is none; names the line.
    """
    judgements: dict[str, dict[str, int]] = {}
    for place, record in read_records(source, None, file_format):
        if missing := [name for name in JUDGEMENT if name not in record]:
            raise ValueError(
                f"{place}: no column {missing[0]!r}; expected {', '.join(JUDGEMENT)}, there are "
                f"{list_keys(record)}"
            )
        try:
            grade = parse_score(record["score"])
        except ValueError as error:
            raise ValueError(f"{place}: column 'score': {error}") from None
        if grade != int(grade):
            raise ValueError(f"{place}: column 'score': {grade:g} is not a whole number")
        query, document = str(record["query-id"]), str(record["corpus-id"])
        judgements.setdefault(query, {})[document] = int(grade)
    if not judgements:
        raise ValueError(f"{source}: no judgements in it")
    return judgements


def list_keys(record: Mapping[str, Any]) -> str:
    """Return the keys of a record for an error."""
    return ", ".join(map(repr, record))[:200]


def check_judgements(
    judgements: Mapping[str, Mapping[str, int]],
    queries: list[Passage],
    documents: list[Passage],
    source: str,
) -> None:
    """Raise ValueError if judgements name a query or a document that is not there."""
    for noun, known, names in (
        ("query", {passage.name for passage in queries}, judgements),
        (
            "document",
            {passage.name for passage in documents},
            (name for grades in judgements.values() for name in grades),
        ),
    ):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(
                f"{source}: {len(unknown):,} names of the {noun} are in no file, the first "
                f"{unknown[0]!r}; give the files that the judgements are of"
            )
