"""Read documents from files of text and of records, plain or packed.

A document is a whole file, a block between blank lines, a line, or a field of a record: a JSON
line, or a row of a table (data/corpus/table_files.py). It may also be a pair of a source and a
target: two columns of a line, or two fields of a record. A pair becomes a document of two lines. An
article of a record becomes a document of its fields with a NUL between them
(data/corpus/record_texts.py).

Unreadable input raises a ValueError that names the file and the line. Invalid UTF-8 is repaired,
and `RawDocument.repair` says why, so that the caller can count the repairs. Files are read in
blocks, and a document above the size limit raises an error before it fills the memory.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from data.corpus.byte_files import (
    BROKEN,
    explain_broken,
    open_bytes,
    peek_head,
    refuse_head,
)
from data.corpus.lines import BOM, MAX_DOCUMENT_BYTES, LineReader
from data.corpus.other_formats import explain_line
from data.corpus.record_lines import (
    MakeDocument,
    ParsedLine,
    parse_json_line,
    parse_molecule,
    parse_tsv_pair,
    repair_utf8,
    split_names,
)
from data.corpus.record_texts import join_article, join_sides, join_text, read_values
from data.corpus.sequences import FORMATS as SEQUENCES
from data.corpus.sequences import SEQUENCE_NAME, read_fasta, read_fastq
from data.corpus.table_files import ARCHIVES, read_rows

BLANKS = b" \t\n\r\x0b\f"  # of a line that is no record
BAD_RECORDS = "records that could not be read (skipped)"


class RawDocument(NamedTuple):
    """A document.

    Attributes:
      raw: its text in valid UTF-8.
      line: its first line, counted from 1 at the start of the chunk that is read.
      bytes_read: number of (compressed) bytes of the file read so far, for the progress bar.
      repair: why the text was repaired, or is empty where a bad record is skipped; None if it was
        valid.
      values: the text of each further field that is asked for, None where the record lacks it.
      name: of a sequence of letters; None for other documents.
    """

    raw: bytes
    line: int
    bytes_read: int
    repair: str | None = None
    values: tuple[str | None, ...] = ()
    name: bytes | None = None


def read_file(
    path: str,
    file_format: str,
    start: int,
    stop: int | None,
    field: str,
    skips_bad: bool = False,
    takes_text: bool = False,
    more_fields: Sequence[str] = (),
    keeps_case: bool = False,
) -> Iterator[RawDocument]:
    """Yield the documents that begin in bytes [start, stop) of a file; None reads to its end.

    Args:
      file_format: a key of `FORMAT_READERS` or `TABLE_READERS`.
      start: first byte.
      stop: byte after the last one.
      field: name of the JSON field with the text, or the names, separated by commas, of the two
        fields of a pair or of the fields of an article.
      skips_bad: whether a line that is no record gives an empty document, instead of an error.
      takes_text: whether formats of others that are text, such as FASTA, are read as they are.
      more_fields: names of further fields of records, whose values come with the documents.
      keeps_case: whether sequences of letters keep their lower case.

    Raises:
      ValueError: if the file is of another format, or a document cannot be read; the message names
        the file and the line.
    """
    if read_table := TABLE_READERS.get(file_format):
        yield from read_table(path, start, stop, field, skips_bad, more_fields)
        return
    with contextlib.ExitStack() as stack:
        file, consumed = open_bytes(path, stack)
        try:
            if not start:
                refuse_head(peek_head(file), path, takes_text or file_format in SEQUENCES)
            yield from FORMAT_READERS[file_format](
                LineReader(file, path, start, stop, skips_bad, more_fields, keeps_case),
                consumed,
                field,
            )
        except BROKEN as error:
            raise explain_broken(path, error) from error


def _read_whole_file(
    lines: LineReader, consumed: Callable[[], int], field: str
) -> Iterator[RawDocument]:
    raw = lines.file.read(lines.limit + 1)
    if len(raw) > lines.limit:
        raise lines.make_size_error(1)
    yield RawDocument(*repair_utf8(raw.removeprefix(BOM), 1, consumed()))


def _read_line_documents(
    lines: LineReader, consumed: Callable[[], int], field: str
) -> Iterator[RawDocument]:
    for line, _ in lines:
        if not line.isspace():
            yield RawDocument(*repair_utf8(line, lines.number, consumed()))


def _read_blocks(
    lines: LineReader, consumed: Callable[[], int], field: str
) -> Iterator[RawDocument]:
    """Yield the blocks between blank lines.

    To a range of a file belong the blocks after its first blank line, up to the first blank line
    after its end; to the first range also the block before its first blank line.
    """
    block, size, first = [], 0, 1
    is_owned = not lines.start
    for line, offset in lines.iterate_past_stop():
        blank = line.isspace()
        if not is_owned:
            if offset >= lines.stop:
                return
            is_owned = blank
        elif not blank:
            first = first if block else lines.number
            block.append(line)
            size += len(line)
            if size > lines.limit:
                raise lines.make_size_error(first)
        if blank and block:
            yield RawDocument(*repair_utf8(b"".join(block), first, consumed()))
            block, size = [], 0
        if blank and offset >= lines.stop:
            return
    if block:
        yield RawDocument(*repair_utf8(b"".join(block), first, consumed()))


def _read_sequences(
    read: Callable[[LineReader], Iterator[tuple[bytes, int, bytes]]],
    lines: LineReader,
    consumed: Callable[[], int],
    field: str,
) -> Iterator[RawDocument]:
    """Yield the document of each sequence, whose one further field is its name."""
    for sequence, line, name in read(lines):
        names = {SEQUENCE_NAME: name.decode("utf-8", "backslashreplace")}
        values = tuple(map(names.get, lines.more_fields))
        yield RawDocument(*repair_utf8(sequence, line, consumed()), values, name)


def _read_records(
    parse: Callable[[bytes, str, Sequence[str]], ParsedLine],
    blanks: bytes,
    lines: LineReader,
    consumed: Callable[[], int],
    field: str,
) -> Iterator[RawDocument]:
    """Yield the document of each line that does not consist of `blanks`.

    parse: (line, field, further fields) -> its text, why it was repaired, and the values of the
      further fields; raises ValueError for a bad record.
    """
    for line, _ in lines:
        if not line.strip(blanks):
            continue
        number, bytes_read = lines.number, consumed()
        try:
            raw, repair, values = parse(line, field, lines.more_fields)
        except ValueError as error:
            if not lines.skips_bad:
                hint = explain_line(line.decode("utf-8", "replace"), lines.path)
                raise lines.make_error("; ".join(filter(None, (str(error), hint)))) from error
            raw, repair, values = b"", BAD_RECORDS, ()
        yield RawDocument(raw, number, bytes_read, repair, values)


def _read_table(
    make: MakeDocument,
    table_format: str,
    path: str,
    start: int,
    stop: int | None,
    field: str,
    skips_bad: bool,
    more_fields: Sequence[str],
) -> Iterator[RawDocument]:
    """Yield the document of each row of a table."""
    names = split_names(make, field)
    for row in read_rows(
        path, table_format, start, stop, list(dict.fromkeys([*names, *more_fields]))
    ):
        try:
            raw, repair = make(row.record, names)
        except ValueError as error:
            if not skips_bad:
                raise ValueError(f"{path}, row {row.number}: {error}") from error
            raw, repair = b"", BAD_RECORDS
        if len(raw) > MAX_DOCUMENT_BYTES:
            raise ValueError(
                f"{path}, row {row.number}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB"
            )
        values = read_values(row.record, more_fields)
        yield RawDocument(raw, row.number, row.place, repair or row.repair, values)


# {what begins the name of a reader of pairs or articles: the document of a record}
MAKERS: dict[str, MakeDocument] = {"": join_text, "pair_": join_sides, "fields_": join_article}
FORMAT_READERS = (
    {
        "file": _read_whole_file,
        "record": _read_line_documents,
        "block": _read_blocks,
        "pair_tsv": functools.partial(_read_records, parse_tsv_pair, b"\r\n"),
    }
    | {
        f"{prefix}jsonl": functools.partial(
            _read_records, functools.partial(parse_json_line, make), BLANKS
        )
        for prefix, make in MAKERS.items()
    }
    | {
        "fasta": functools.partial(_read_sequences, read_fasta),
        "fastq": functools.partial(_read_sequences, read_fastq),
        "smi": functools.partial(_read_records, parse_molecule, BLANKS),
    }
)
TABLES = ("csv", "parquet", "arrow", *ARCHIVES)
TABLE_READERS = {
    f"{prefix}{name}": functools.partial(_read_table, make, name)
    for name in TABLES
    for prefix, make in MAKERS.items()
}
