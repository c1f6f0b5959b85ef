"""Read the files of `predict`, by the suffixes of their names, and write lines.

FILE.jsonl       an object a line
FILE.tsv, .csv   a table with a line of column names (data/examples/labelled_examples.py)
FILE.conll       columns, a word a line, for models that tag words; also FILE.tsv for these models
                 (data/examples/tagged_sentences.py)
FILE.fasta       sequences; also FILE.fastq and the other names of data/corpus/formats.py
FILE.json        SQuAD's format, for models that answer questions (data/examples/qa.py)
a folder         images, for models that read them
any other        a text a line, or the path of an image

`--as FORMAT` reads a file of any name as FILE.FORMAT.

Each of them may be gzipped, with .gz after its name. `finetune` reads these files in the same way.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from data.corpus.formats import SYNONYMS, choose_reader
from data.corpus.json_lines import read_all_lines, read_json_lines
from data.corpus.other_formats import explain_other_format, explain_record
from data.corpus.readers import read_file
from data.corpus.sequences import FORMATS as SEQUENCES
from data.examples.file_formats import find_suffix
from data.mixed import Mixed
from data.objectives.objective import Objective
from data.store.atomic import replace_file
from pretrain.config import Run

Reader = Callable[[str], Iterator[tuple[str, dict[str, Any]]]]  # path -> (place, record) pairs
BLANK_LINE: dict[str, Any] = {"text": ""}  # the record of each blank line
FOLDER = "folder"  # key of the reader of a folder
SPECIAL_SUFFIXES = {
    ".conll": "columns of words are read by models that tag them",
    ".json": "SQuAD's form is read by models that answer questions",
}


def read_records(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of each text of a file, for any model.

    A record has the field `text`, a string, and any other fields. Blank lines are left out.
    """
    for place, record in iterate_records(path, make_text_readers()):
        if record is not BLANK_LINE:
            get_text(record, place)
            yield place, record


def get_text(record: Mapping[str, Any], place: str) -> str:
    """Return the text of a record.

    Raises:
      ValueError: it has none, or one with an unpaired surrogate; begins with the place.
    """
    if not isinstance(record.get("text"), str):
        hint = explain_record(record, place.rpartition(":")[0])
        raise ValueError(
            f"{place}: expected an object with the field text, a string; this has "
            f"{', '.join(map(repr, record))[:200]}{hint and f'; {hint}'}"
        )
    check_characters(record["text"], f"{place}: the field text")
    return record["text"]


def check_characters(text: str, place: str) -> None:
    """Raise a ValueError that begins with `place` if a text has an unpaired surrogate."""
    if half := next((char for char in text if "\ud800" <= char <= "\udfff"), None):
        raise ValueError(
            f"{place} has half of a character in it, {half!a}, which no tokenizer reads; leave it "
            "out"
        )


def iterate_records(
    path: str | os.PathLike[str], readers: Mapping[str, Reader], file_format: str | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of each example of a file.

    Of a file of lines, the records are {"text": line}, and BLANK_LINE for a blank one, so that each
    line has a record.

    Args:
      readers: {suffix: reader}.
      file_format: format of the file, whatever its name; "txt" is a text a line.

    Raises:
      ValueError: the suffix belongs to a format that the model cannot read.
    """
    suffix = find_suffix(str(path), file_format)
    if FOLDER in readers and os.path.isdir(path):
        yield from readers[FOLDER](str(path))
    elif suffix in readers:
        yield from readers[suffix](str(path))
    elif suffix in SPECIAL_SUFFIXES:
        hint = explain_other_format(str(path))
        raise ValueError(
            f"{path}: {SPECIAL_SUFFIXES[suffix]}; this one reads {', '.join(readers)}, or any "
            f"other file as a text a line{hint and f'; {hint}'}"
        )
    else:
        if file_format is None and (hint := explain_other_format(str(path))):
            raise ValueError(f"{path}: {hint}; --as txt reads a text a line")
        for place, line in read_all_lines(path, takes_text=file_format is not None):
            yield place, {"text": line} if line.strip() else BLANK_LINE


def make_text_readers() -> dict[str, Reader]:
    """Return the readers for any model."""
    from data.examples import labelled_examples

    return {
        ".jsonl": read_json_lines,
        ".tsv": functools.partial(labelled_examples.read_records, file_format="tsv"),
        ".csv": functools.partial(labelled_examples.read_records, file_format="csv"),
    } | {f".{name}": read_sequences for name in (*SEQUENCES, *SYNONYMS)}


def read_sequences(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of each sequence of a FASTA or FASTQ file."""
    for document in read_file(path, choose_reader(path, "record", None), 0, None, "text"):
        yield f"{path}:{document.line}", {"text": document.raw.decode()}


def make_readers(run: Run) -> dict[str, Reader]:
    """Return the readers for the model of a run."""
    from data.examples import qa, tagged_sentences

    readers = make_text_readers()
    if run.data.objective.reads_images:
        from pretrain.inference.images.image_labels import list_image_files

        readers[FOLDER] = list_image_files
    if is_tagging(run.data.objective):
        readers |= {
            ".conll": tagged_sentences.read_column_records,
            ".tsv": tagged_sentences.read_column_records,
        }
    if is_question_answering(run.data.objective):
        readers |= {".json": functools.partial(qa.read_records, file_format="json")}
    return readers


def is_tagging(objective: Objective | Mixed) -> bool:
    """Return whether an objective trains a model to tag words."""
    return objective.name == "tagging" or bool(objective.scheme)


def is_question_answering(objective: Objective | Mixed) -> bool:
    """Return whether an objective trains a model to answer questions about a context."""
    return objective.name == "answer_span" or bool(objective.questions)


@contextlib.contextmanager
def open_line_writer(path: str | os.PathLike[str] | None) -> Iterator[Callable[[str], Any]]:
    """Yield a function that writes a line: to the standard output, or to a file.

    The file appears when all lines are written. Half of a character, which UTF-8 has not, becomes
    its escape, such as \\ud83d, by which JSON has it too.
    """
    if path is None:
        yield lambda line: print(line.encode("utf-8", "backslashreplace").decode())
        return
    with (
        replace_file(path) as new,
        open(new, "w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        yield lambda line: file.write(line + "\n")
