"""Formats that a reader does not take, and the command that turns each into one that it takes.

`prepare` reads some of them (data/corpus/table_files.py); their notes say so.
"""

from __future__ import annotations

import pathlib
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from data.corpus.paths import is_remote


class OtherFormat(NamedTuple):
    """A format that others write.

    name: its name in a message.
    command: a shell command with FILE, the file, and what it writes: TEXT.txt, TEXT.jsonl, UNPACKED
      (a file of unknown content) or FOLDER. "": there is none.
    suffixes: the ends of its files' names.
    beginning: a pattern of the first bytes of its files; b"": only the name says it.
    is_text: whether a reader of text takes it as it is with `--as`.
    note: what a message says between name and command.
    """

    name: str
    command: str
    suffixes: tuple[str, ...]
    beginning: bytes = b""
    is_text: bool = False
    note: str = ", which Cloze does not read:"


# Python with pyarrow; one batch of rows is in memory at a time.
PARQUET = 'python3 -c "import json, sys, pyarrow.parquet as table; [print(json.dumps(row, '
PARQUET += "default=str)) for part in table.ParquetFile(sys.argv[1]).iter_batches() for row in "
PARQUET += 'part.to_pylist()]" FILE > TEXT.jsonl'
ARROW = 'python3 -c "import json, sys, pyarrow; file = pyarrow.ipc.open_{kind}(sys.argv[1]); '
ARROW += '[print(json.dumps(row, default=str)) for row in file.read_all().to_pylist()]" '
ARROW += "FILE > TEXT.jsonl"
CSV = 'python3 -c "import csv, json, sys; [print(json.dumps(row)) for row in '
CSV += 'csv.DictReader(sys.stdin)]" < FILE > TEXT.jsonl'
# The rows are the whole value, or the first list of an object, such as {"data": [...]}.
ROWS = 'python3 -c "import json, sys; top = json.load(sys.stdin); rows = top if isinstance(top, '
ROWS += "list) else next((each for each in top.values() if isinstance(each, list)), [top]); "
ROWS += '[print(json.dumps(row)) for row in rows]" < FILE > TEXT.jsonl'
SQUAD = (
    "python3 -c \"import json, sys; [print(json.dumps({'text': one['context']})) for article in "
)
SQUAD += "json.load(sys.stdin)['data'] for one in article['paragraphs']]\" < FILE > TEXT.jsonl"
LINES = "awk '/^>/ { if (s) print s; s = \"\"; next } { s = s $0 } END { print s }' FILE > TEXT.txt"
SQUAD_BEGINNING = rb'\s*\{(?s:.*?)"data"\s*:\s*\[(?s:.*?)"(?:paragraphs|qas)"\s*:\s*\['
TABLE_NOTE = "; `prepare` reads it with --as {}. As JSON lines:"
FORMATS = (
    OtherFormat("Parquet", PARQUET, (".parquet",), b"PAR1", note=TABLE_NOTE.format("parquet")),
    OtherFormat(
        "Arrow",
        ARROW.format(kind="file"),
        (".feather",),
        b"ARROW1",
        note=TABLE_NOTE.format("arrow"),
    ),
    OtherFormat(
        "a stream of Arrow",
        ARROW.format(kind="stream"),
        (".arrow",),
        rb"\xff{4}",
        note=TABLE_NOTE.format("arrow"),
    ),
    OtherFormat("CSV", CSV, (".csv",), note=TABLE_NOTE.format("csv")),
    OtherFormat(
        "SQuAD's JSON",
        SQUAD,
        (),
        SQUAD_BEGINNING,
        is_text=True,
        note="; models that answer questions read it with --as json. Its contexts as texts:",
    ),
    JSON_ROWS := OtherFormat("JSON that is no lines of JSON", ROWS, (".json",)),
    OtherFormat(
        "Zstandard",
        "zstd -dc FILE > UNPACKED",
        (".zst",),
        rb"\x28\xb5\x2f\xfd",
        note="; `prepare` reads it if its name ends in .zst. Unpacked:",
    ),
    OtherFormat("xz", "xz -dc FILE > UNPACKED", (".xz",), rb"\xfd7zXZ\x00"),
    OtherFormat("bzip2", "bzip2 -dc FILE > UNPACKED", (".bz2",), rb"BZh[1-9]"),
    GZIP := OtherFormat(
        "gzip without .gz in its name", "gzip -dc FILE > UNPACKED", (), rb"\x1f\x8b"
    ),
    OtherFormat(
        "FASTA",
        LINES,
        (".fasta", ".fa", ".faa", ".fna"),
        rb">\S[^\n]*\r?\n[A-Z*-]{10,}\r?(?:\n|$)",
        is_text=True,
        note="; `prepare` reads it with --as fasta. As lines:",
    ),
    OtherFormat("PDF", "pdftotext FILE TEXT.txt", (".pdf",), b"%PDF-"),
    OtherFormat("Word, EPUB or HTML", "pandoc FILE -o TEXT.txt", (".docx", ".epub", ".html")),
    OtherFormat("a zip", "unzip FILE -d FOLDER", (".zip",), rb"PK\x03\x04"),
    OtherFormat(
        "a tar",
        "mkdir FOLDER && tar -xf FILE -C FOLDER",
        (".tar", ".tgz", ".tar.gz"),
        rb"(?s:.{257})ustar",
    ),
    OtherFormat(
        "a picture",
        "",
        (".png", ".jpg", ".jpeg"),
        rb"\x89PNG|\xff\xd8\xff",
        note=", not text; `prepare-images` reads a folder of pictures",
    ),
    OtherFormat(
        "MIDI", "", (".mid", ".midi"), b"MThd", note=", not text; `prepare-music` reads it"
    ),
    OtherFormat("a NumPy array", "", (".npy",), rb"\x93NUMPY", note=", not text"),
)
TABLES = (".jsonl", ".tsv", ".csv")  # ends of the names of files that have columns
HEAD_BYTES = 1024  # of a file, in which a format is looked for


def identify_head(head: bytes) -> OtherFormat | None:
    """Return the format of a file by its first HEAD_BYTES bytes."""
    return next(
        (known for known in FORMATS if known.beginning and re.match(known.beginning, head)), None
    )


def refuse_other_format(head: bytes, name: Any, takes_text: bool = False) -> None:
    """Raise ValueError if the unpacked first bytes of a file are of a format that is not read.

    takes_text: whether formats that are text are taken as they are.
    """
    known = identify_head(head)
    if known and not (takes_text and known.is_text):
        own = pathlib.Path(str(name).removesuffix(".gz")).suffix
        wanted = (own,) if own in TABLES else (".txt",)
        raise ValueError(f"{name}: {explain_format(known, name, wanted)}")


def explain_line(line: str, name: Any) -> str:
    """Return what a file is, and a command, if a line that is no record is of other JSON; or "".

    A list, the first line of an object over many lines, and an object that holds the records.
    """
    is_json = re.match(r'\s*(?:\[|\{\s*$|\{[^\[]*"\s*:\s*\[\s*\{)', line)
    return explain_format(JSON_ROWS, name) if is_json else ""


def explain_record(record: Mapping[str, Any], name: Any) -> str:
    """Return what a file is, and a command, if a record without texts holds the records; or ""."""
    holds = any(
        isinstance(value, list) and value and isinstance(value[0], dict)
        for value in record.values()
    )
    return explain_format(JSON_ROWS, name) if holds else ""


def find_other_format(name: str) -> OtherFormat | None:
    """Return the format of a file by its first bytes, on this machine, or the end of its name."""
    path = pathlib.Path(name)
    if not is_remote(name) and path.is_file():
        with path.open("rb") as file:
            known = identify_head(file.read(HEAD_BYTES))
        if known and not (known is GZIP and name.endswith(".gz")):
            return known
    lower = name.lower()
    return next((known for known in FORMATS if lower.endswith(known.suffixes or ("\0",))), None)


def explain_other_format(name: str, wanted: Collection[str] = (".txt",)) -> str:
    """Return what a file is and the command that makes a file of it that Cloze reads; or "".

    Args:
      wanted: ends of the names of the files that the caller reads.
    """
    known = find_other_format(name)
    return explain_format(known, name, wanted) if known else ""


def explain_format(known: OtherFormat, name: Any, wanted: Collection[str] = (".txt",)) -> str:
    """Return the explanation of a file whose format is known; see `explain_other_format`."""
    path, unpack = str(name), ""
    if path.endswith(".gz") and not path.lower().endswith(known.suffixes or ("\0",)):
        unpack = f"gunzip -k {shlex.quote(path)} && "
        path = path.removesuffix(".gz")
    if not known.command:
        return f"it is {known.name}{known.note}"
    if "TEXT.txt" in known.command and ".txt" not in wanted:
        return f"it is {known.name}, which has no columns: write a file of {' or '.join(wanted)}"
    suffix = next((end for end in known.suffixes if path.lower().endswith(end)), "")
    own = suffix or pathlib.Path(path).suffix
    stem = path[: len(path) - len(own)]
    stem = stem if suffix else f"{stem}.new"  # never the file itself
    command = unpack + known.command.replace("FILE", shlex.quote(path))
    for mark, made in (
        ("TEXT.jsonl", f"{stem}.jsonl"),
        ("TEXT.txt", f"{stem}.txt"),
        ("UNPACKED", stem if suffix else stem + own),
        ("FOLDER", stem),
    ):
        command = command.replace(mark, shlex.quote(made))
    return f"it is {known.name}{known.note} {command}"
