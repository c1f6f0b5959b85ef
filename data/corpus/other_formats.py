"""Formats that Cloze does not read, and the command that turns each into one that it reads."""

from __future__ import annotations

import pathlib
import shlex
from typing import NamedTuple

from data.corpus.paths import is_remote


class OtherFormat(NamedTuple):
    """A format that others write.

    name: its name in a message.
    command: a command with FILE, the file, and STEM, its name without the suffix.
    suffixes: the ends of its files' names.
    magic: the first bytes of its files; b"": they have none.
    """

    name: str
    command: str
    suffixes: tuple[str, ...]
    magic: bytes = b""


PANDAS = 'python3 -c "import pandas, sys; pandas.read_{kind}(sys.argv[1]).to_json(sys.argv[2], '
PANDAS += "orient='records', lines=True)\" FILE STEM.jsonl"
CSV = 'python3 -c "import csv, json, sys; [print(json.dumps(row)) for row in '
CSV += 'csv.DictReader(sys.stdin)]" < FILE > STEM.jsonl'
ARRAY = 'python3 -c "import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin)]" '
ARRAY += "< FILE > STEM.jsonl"
LINES = "awk '/^>/ { if (s) print s; s = \"\"; next } { s = s $0 } END { print s }' FILE > STEM.txt"
FORMATS = (
    OtherFormat("Parquet", PANDAS.format(kind="parquet"), (".parquet",), b"PAR1"),
    OtherFormat("Arrow", PANDAS.format(kind="feather"), (".arrow", ".feather"), b"ARROW1"),
    OtherFormat("CSV", CSV, (".csv",)),
    OtherFormat("JSON that is no lines of JSON", ARRAY, (".json",)),
    OtherFormat("Zstandard", "zstd -d FILE", (".zst",), b"\x28\xb5\x2f\xfd"),
    OtherFormat("xz", "xz -dk FILE", (".xz",), b"\xfd7zXZ\x00"),
    OtherFormat("bzip2", "bunzip2 -k FILE", (".bz2",), b"BZh"),
    OtherFormat("FASTA", LINES, (".fasta", ".fa", ".faa", ".fna")),
    OtherFormat("PDF", "pdftotext FILE STEM.txt", (".pdf",), b"%PDF"),
    OtherFormat("Word, EPUB or HTML", "pandoc FILE -o STEM.txt", (".docx", ".epub", ".html")),
    OtherFormat("a zip", "unzip FILE -d STEM", (".zip",), b"PK\x03\x04"),
    OtherFormat("a tar", "mkdir STEM && tar -xf FILE -C STEM", (".tar", ".tgz", ".tar.gz")),
)
LONGEST_MAGIC = max(len(known.magic) for known in FORMATS)


def find_other_format(name: str) -> OtherFormat | None:
    """Return the format of a file by the end of its name or, on this machine, its first bytes."""
    lower = name.lower()
    for known in FORMATS:
        if lower.endswith(known.suffixes):
            return known
    path = pathlib.Path(name)
    if is_remote(name) or not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(LONGEST_MAGIC)
    return next((known for known in FORMATS if known.magic and start.startswith(known.magic)), None)


def explain_other_format(name: str) -> str:
    """Return what a file is and the command that makes a file of it that Cloze reads; or ""."""
    known = find_other_format(name)
    if known is None:
        return ""
    suffix = next((end for end in known.suffixes if name.lower().endswith(end)), "")
    stem = name[: len(name) - len(suffix)] if suffix else f"{name}.out"
    words = {"FILE": shlex.quote(name)}
    command = known.command.replace("FILE", words["FILE"])
    for end in (".jsonl", ".txt", ""):
        command = command.replace(f"STEM{end}", shlex.quote(f"{stem}{end}"))
    return f"it is {known.name}, which Cloze does not read: {command}"
