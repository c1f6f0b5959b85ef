"""Read the sequences of FASTA and FASTQ files: letters, one record after the other.

A sequence is in capitals (lower case is a mask of repeats, which may stay), without blanks and
without the `*` that ends a protein. A FASTA record may have many lines; lines with `;` are
comments.
"""

from collections.abc import Iterator
from typing import Any

from data.corpus.lines import LineReader

FORMATS = ("fasta", "fastq")
SEQUENCE_NAME = "id"  # the field of a record that is the first word of its header
BLANKS = b" \t\r\n\x0b\f"
HEADER, COMMENT, READ, QUALITY = b">", b";", b"@", b"+"


def clean_letters(line: bytes, keeps_case: bool) -> bytes:
    """Return the letters of a line, in capitals unless their case stays."""
    letters = line.translate(None, BLANKS)
    return letters if keeps_case else letters.upper()


def read_name(header: bytes) -> bytes:
    """Return the name of a record: the first word of its header."""
    return next(iter(header[1:].split()), b"")


def read_fasta(lines: LineReader) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (sequence, line of its header, its name) of the records that begin in a part of a file.

    Raises:
      ValueError: letters before the first header, or a sequence above the limit.
    """
    parts: list[bytes] | None = None
    size, first, name = 0, 0, b""
    for line, offset in lines.iterate_past_stop():
        if line.startswith(HEADER):
            if parts is not None:
                yield b"".join(parts).removesuffix(b"*"), first, name
            if offset >= lines.stop:
                return
            parts, size, first, name = [], 0, lines.number, read_name(line)
        elif line.startswith(COMMENT) or line.isspace():
            continue
        elif parts is not None:
            parts.append(clean_letters(line, lines.keeps_case))
            size += len(parts[-1])
            if size > lines.limit:
                raise lines.make_size_error(first)
        elif not lines.start:
            kind = "FASTQ, which --as fastq reads" if line.startswith(READ) else "no FASTA"
            raise lines.make_error(
                f"{line[:40].decode('utf-8', 'replace').strip()!r} comes before the first line "
                f"that begins with >: it is {kind}"
            )
    if parts is not None:
        yield b"".join(parts).removesuffix(b"*"), first, name


def read_fastq(lines: LineReader) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (sequence, line of its header, its name) of the records of a file: four lines each.

    Raises:
      ValueError: a line that is not what its place in a record asks for, or a last record that is
        cut off.
    """
    rows: Any = (line for line, _ in lines.iterate_past_stop())
    for header in rows:
        if header.isspace():
            continue
        first = lines.number
        if not header.startswith(READ):
            kind = "FASTA, which --as fasta reads" if header.startswith(HEADER) else "no FASTQ"
            raise lines.make_error(f"a record begins with {READ.decode()}: it is {kind}")
        letters, plus, quality = (next(rows, b"") for _ in range(3))
        if not quality:
            raise lines.make_error("the last record is cut off", first)
        if not plus.startswith(QUALITY):
            raise lines.make_error(
                "the third line of a record begins with +; sequences over several lines are not "
                "read",
                first + 2,
            )
        sequence = clean_letters(letters, lines.keeps_case)
        if len(quality.strip(b"\r\n")) != len(sequence):
            raise lines.make_error(
                f"{len(sequence):,} letters have {len(quality.strip(BLANKS)):,} qualities", first
            )
        yield sequence, first, read_name(header)
