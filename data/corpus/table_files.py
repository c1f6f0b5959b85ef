"""Read the rows of Parquet, Arrow and CSV files; the one corpus reader that imports pyarrow.

A row becomes a record {name: value} of the fields that are asked for. A name is a column, or a path
into nested columns, such as a.b. Some pages of a Parquet file are in memory at a time, or one batch
of an Arrow file. Parquet has an index of its row groups, so that a part of a file can be read.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from data.corpus.byte_files import (
    BROKEN,
    UrlError,
    explain_broken,
    open_bytes,
    peek_head,
    refuse_head,
)
from data.corpus.record_texts import NOT_UTF8
from data.corpus.web_archives import read_conversions
from data.members import import_extra

BATCH_ROWS = 256  # of an Arrow file
# Rows of Parquet at a time. A file of 600 bytes can name one text of 4 MB in each row, and they are
# as many copies, so a row group of more bytes has fewer rows at a time.
MOST_ROWS, LEAST_ROWS, GROUP_BYTES = 16, 4, 64 << 20
FIELD_BYTES = 1 << 28  # characters of the largest field of a CSV file
ARCHIVES = ("wet", "warc")  # formats of web archives
FILE_MAGIC = b"ARROW1"
# Without this end, a stream that was cut off between two batches would be whole.
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class TableRow(NamedTuple):
    """A row of a table.

    Attributes:
      number: counted from 1 in the file.
      record: {name: value} of the fields that are asked for and that the table has.
      place: bytes of the file before it, about.
      repair: why a text was repaired; None if all are UTF-8.
    """

    number: int
    record: dict[str, Any]
    place: int
    repair: str | None = None


def read_rows(
    path: str, table_format: str, start: int, stop: int | None, names: Sequence[str]
) -> Iterator[TableRow]:
    """Yield the rows of a part of a file.

    Args:
      table_format: parquet, arrow, csv, wet or warc.
      start: first byte, 0 for other formats than Parquet.
      stop: byte after the last one; None: the end of the file.
      names: fields that are read.

    Raises:
      ValueError: the file is of another format, broken, or has none of the fields.
    """
    with contextlib.ExitStack() as stack:
        file, consumed = open_bytes(path, stack)
        if table_format in ("csv", *ARCHIVES):
            read = _read_csv if table_format == "csv" else _read_archive
            try:
                refuse_head(peek_head(file), path, takes_text=True)
                yield from read(file, path, consumed, names)
            except BROKEN as error:
                raise explain_broken(path, error) from error
            return
        arrow = import_extra("pyarrow", "parquet", f"{path}: reading it")
        try:
            if table_format == "parquet":
                yield from _read_parquet(file, path, start, stop, names)
            else:
                yield from _read_arrow(file, path, consumed, names)
        except UrlError:
            raise
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, OSError) as error:
            kind = table_format.capitalize()
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{path}: the {kind} file is broken or cut off ({reason})") from error


# ---- Parquet and Arrow -------------------------------------------------------


def _read_parquet(
    file: IO[bytes], path: str, start: int, stop: int | None, names: Sequence[str]
) -> Iterator[TableRow]:
    """Yield the rows of the row groups of a part of the file.

    A group counts as beginning at the byte that is the share of the file's rows before it. Its real
    beginning is in the metadata of its columns, and pyarrow ends the process at broken ones.
    """
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    columns = _find_columns(table.schema_arrow, path, names)
    metadata, size, before = table.metadata, file.seek(0, io.SEEK_END), 0
    sizes = [max(metadata.row_group(i).num_rows, 0) for i in range(metadata.num_row_groups)]
    bytes_per_row = size / max(sum(sizes), 1)
    for i, num_rows in enumerate(sizes):
        place = min(int(before * bytes_per_row), size - 1)
        if place >= start and (stop is None or place < stop):
            rows = GROUP_BYTES // max(metadata.row_group(i).total_byte_size, 1)
            rows = max(min(rows, MOST_ROWS), LEAST_ROWS)
            batches = table.iter_batches(rows, [i], list(columns.values()), use_threads=False)
            for row in _split_batches(batches, columns):
                number = before + row.number
                yield row._replace(number=number + 1, place=int(number * bytes_per_row))
        before += num_rows


def _read_arrow(file: Any, path: str, consumed: Any, names: Sequence[str]) -> Iterator[TableRow]:
    """Yield the rows of an Arrow file or stream; `datasets` saves streams."""
    ipc = importlib.import_module("pyarrow.ipc")
    if file.peek(len(FILE_MAGIC)).startswith(FILE_MAGIC):
        reader = ipc.open_file(file)
        parts: Iterable[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - len(END_OF_STREAM), 0))
        if file.read() != END_OF_STREAM:
            raise OSError("the mark of the end is missing")
        file.seek(0)
        reader = parts = ipc.open_stream(file)
    columns = _find_columns(reader.schema, path, names)
    batches = (
        part.slice(i, BATCH_ROWS) for part in parts for i in range(0, part.num_rows, BATCH_ROWS)
    )
    for row in _split_batches(batches, columns):
        yield row._replace(number=row.number + 1, place=consumed())


def _find_columns(schema: Any, path: str, names: Sequence[str]) -> dict[str, str]:
    """Return {name: its column or path} of the fields that a table has.

    Raises ValueError if it has none of them.
    """
    known = {name: name for name in names if _has_field(schema, name)}
    _check_once(schema.names, known, path)
    if not known:
        raise ValueError(
            f"{path}: no column {' or '.join(map(repr, names))}; it has "
            f"{', '.join(_list_paths(schema))[:300]}; --field names the text"
        )
    return known


def _check_once(columns: Sequence[str], names: Iterable[str], path: str) -> None:
    """Raise ValueError if two columns have one of the names."""
    for name in names:
        if columns.count(name) > 1:
            raise ValueError(f"{path}: {columns.count(name)} columns are called {name!r}")


def _has_field(schema: Any, name: str) -> bool:
    """Return whether a table has a column, or a path into structs."""
    if name in schema.names:
        return True
    fields: Any = schema
    for part in name.split("."):
        known = {field.name: field.type for field in fields}
        if part not in known:
            return False
        fields = known[part] if hasattr(known[part], "fields") else ()
    return True


def _list_paths(fields: Any, before: str = "") -> Iterator[str]:
    """Yield the columns of a table, with paths into structs."""
    types = importlib.import_module("pyarrow").types
    for field in fields:
        if types.is_struct(field.type):
            yield from _list_paths(field.type, f"{before}{field.name}.")
        else:
            yield before + field.name


def _split_batches(batches: Iterable[Any], columns: dict[str, str]) -> Iterator[TableRow]:
    """Yield the rows of batches; their numbers count from 0, their places are 0."""
    number = 0
    for batch in batches:
        values, repaired = {}, [None] * batch.num_rows
        for name, path in columns.items():
            values[name], repairs = _list_values(_select_field(batch, path))
            if len(repairs) != batch.num_rows:
                raise OSError(f"{len(repairs)} values of {name!r} in {batch.num_rows} rows")
            repaired = [one or other for one, other in zip(repaired, repairs, strict=True)]
        for i, repair in enumerate(repaired):
            record = {name: column[i] for name, column in values.items()}
            yield TableRow(number + i, record, 0, repair)
        number += batch.num_rows


def _select_field(batch: Any, path: str) -> Any:
    """Return the array of a column, or of a path into structs."""
    if path in batch.schema.names:
        return batch.column(path)
    compute = importlib.import_module("pyarrow.compute")
    first, *rest = path.split(".")
    return compute.struct_field(batch.column(first), rest)


def _list_values(array: Any) -> tuple[list[Any], list[str | None]]:
    """Return the values of an array, and for each why it was repaired.

    A text whose bytes are not UTF-8 has U+FFFD in their place. Offsets and indices are checked
    before they are followed: nothing else checks the ones of an Arrow file.
    """
    arrow = importlib.import_module("pyarrow")
    try:
        array.validate(full=True)
        return array.to_pylist(), [None] * len(array)
    except arrow.ArrowInvalid:
        if arrow.types.is_dictionary(array.type):
            array.indices.validate(full=True)
            texts, repairs = _list_values(array.dictionary)
            places = array.indices.to_pylist()
            if any(place is not None and not 0 <= place < len(texts) for place in places):
                raise
            return (
                [None if place is None else texts[place] for place in places],
                [None if place is None else repairs[place] for place in places],
            )
        if (raws := _view_as_bytes(array)) is None:
            raise
    raws.validate(full=True)
    texts, repairs = [], []
    for raw in raws.to_pylist():
        texts.append(None if raw is None else raw.decode("utf-8", "replace"))
        repairs.append(None if raw is None or texts[-1].encode() == raw else NOT_UTF8)
    return texts, repairs


def _view_as_bytes(array: Any) -> Any:
    """Return an array of texts as one of bytes, unchecked; None for an array of other values."""
    arrow = importlib.import_module("pyarrow")
    types = {
        arrow.string(): arrow.binary(),
        arrow.large_string(): arrow.large_binary(),
        arrow.string_view(): arrow.binary_view(),
    }
    return array.view(types[array.type]) if array.type in types else None


# ---- web archives ------------------------------------------------------------


def _read_archive(
    file: IO[bytes], path: str, consumed: Any, names: Sequence[str]
) -> Iterator[TableRow]:
    """Yield the texts of a web archive; names of headers may have capitals."""
    for number, found in enumerate(read_conversions(file, path, consumed), 1):
        fields = found.fields
        named = {name: fields[name.lower()] for name in names if name.lower() in fields}
        record = fields | named
        yield TableRow(number, record, found.consumed, found.repair)


# ---- CSV ---------------------------------------------------------------------


def _read_csv(
    file: IO[bytes], path: str, consumed: Any, names: Sequence[str]
) -> Iterator[TableRow]:
    """Yield the rows of a CSV file whose first line names the columns."""
    csv.field_size_limit(FIELD_BYTES)
    repaired = False

    def decode_lines() -> Iterator[str]:
        nonlocal repaired
        while line := file.readline(FIELD_BYTES):
            try:
                yield line.decode()
            except UnicodeDecodeError:
                repaired = True
                yield line.decode("utf-8", "replace")

    lines = csv.reader(decode_lines(), strict=True)
    try:
        header = [name.removeprefix("\ufeff") for name in next(lines, [])]
        columns = {name: header.index(name) for name in names if name in header}
        _check_once(header, columns, "the first line")
        if not columns:
            shown = " ".join(", ".join(header)[:300].split())
            raise ValueError(
                f"no column {' or '.join(map(repr, names))}; the first line has "
                f"{shown or 'no text'}; --field names the text"
            )
        number = 0
        for values in lines:
            if not values:
                continue  # a blank line
            number += 1
            if len(values) != len(header):
                raise ValueError(
                    f"{len(values)} fields instead of {len(header)}, which the first line has; put "
                    'quotation marks around a field with commas, and write "" for one in it'
                )
            record = {name: values[i] for name, i in columns.items()}
            yield TableRow(number, record, consumed(), NOT_UTF8 if repaired else None)
            repaired = False
    except (csv.Error, ValueError) as error:
        place = f"{path}, line {lines.line_num}" if lines.line_num else path
        raise ValueError(f"{place}: {error}") from error
