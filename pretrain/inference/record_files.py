"""The files that `predict` reads, by the ends of their names; what `finetune` learned from is read as it was there.

FILE.jsonl       an object a line
FILE.tsv, .csv   a table under a line of names (data/examples/labelled.py)
FILE.conll       columns, a word a line, for models that tag words, and so is their FILE.tsv (data/examples/tagging.py)
FILE.json        SQuAD's own form, for models that answer questions (data/examples/qa.py)
any other        a text a line

Each of them may be gzipped, with .gz behind its name.
"""

import pathlib

from data.corpus.json_lines import read_json_lines, read_lines

OTHERS = {
    ".conll": "columns of words are read by models that tag them",
    ".json": "SQuAD's form is read by models that answer questions",
}


def read_records(path):
    """Yield (place, record) of each text of a file, for any model: a record has `text`, a string, and whatever else stands there."""
    for place, record in records_of(path, texts()):
        text_in(record, place)
        yield place, record


def text_in(record, place):
    """The text of a record. Raises ValueError, which names the place, where there is none."""
    if not isinstance(record.get("text"), str):
        raise ValueError(
            f"{place}: expected an object with the field text, a string; this has {', '.join(map(repr, record))[:200]}"
        )
    return record["text"]


def records_of(path, readers):
    """Yield (place, record) of each example of a file: of a file of lines {"text": line} of each that is not blank.

    readers: {the end of a name: a function path -> (place, record)}. Raises ValueError for a file that they do not read and that is no file of
    lines.
    """
    suffix = pathlib.Path(str(path).removesuffix(".gz")).suffix
    if suffix in readers:
        yield from readers[suffix](str(path))
    elif suffix in OTHERS:
        raise ValueError(
            f"{path}: {OTHERS[suffix]}; this one reads {', '.join(readers)}, or any other file as a text a line"
        )
    else:
        yield from ((place, {"text": line}) for place, line in read_lines(path))


def texts():
    """Readers for any model."""
    from data.examples import labelled

    return {".jsonl": read_json_lines, ".tsv": labelled.records, ".csv": labelled.records}


def readers_of(run):
    """Readers for the model of a run."""
    from data.examples import qa, tagging

    columns = (
        {".conll": tagging.column_records, ".tsv": tagging.column_records}
        if tags(run.data.objective)
        else {}
    )
    return texts() | columns | ({".json": qa.records} if asks(run.data.objective) else {})


def tags(objective):
    """Whether it is to tag words."""
    return objective.name == "tagging" or bool(getattr(objective, "scheme", ""))


def asks(objective):
    """Whether it is to answer questions about a context."""
    return objective.name == "answer_span" or bool(getattr(objective, "questions", ""))
