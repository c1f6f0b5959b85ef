"""Read sentences of tagged words from CoNLL's columns: a word and its tag a line."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from data.corpus.readers import BOM
from data.examples.bad_examples import BadExamples, guard_example
from data.examples.labelled_examples import clean_text

DOCUMENT_MARK = "-DOCSTART-"
# Before a sentence, as CoNLL-U has them. A word `#` has a tag after it, and no "name = value".
COMMENT = re.compile(r"#\s*[A-Za-z][\w.:]*\s*=\s")


class Sentence(NamedTuple):
    """A sentence of tagged words.

    source, line: location of its first word.
    step: number of lines from a word to the next.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    source: str
    line: int
    step: int

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that decide the sentence's split, as of an `Example`."""
        return self.words

    def locate_word(self, word: int) -> str:
        """Return the location of a word of the sentence, as "file:line"."""
        return f"{self.source}:{self.line + word * self.step}"


def read_columns(
    file: Iterable[str], source: str, least: int = 2, bad: BadExamples | None = None
) -> Iterator[Sentence]:
    """Iterate over the sentences of an open file of at least `least` columns."""
    width = 0
    for lines in _group_lines(file):
        sentence = None
        with guard_example(bad):
            sentence, width = _parse_lines(lines, source, least, width)
        if sentence:
            yield sentence


def _group_lines(file: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Iterate over the (number, line) of the words of each sentence."""
    lines = []
    for number, line in enumerate(file, 1):
        line = line.removeprefix(BOM.decode()) if number == 1 else line
        if not lines and COMMENT.match(line):
            continue
        if not line.startswith(DOCUMENT_MARK) and line.strip():
            lines.append((number, line))
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _parse_lines(
    lines: list[tuple[int, str]], source: str, least: int, width: int
) -> tuple[Sentence, int]:
    """Return the sentence of the lines of its words, and the number of columns.

    width: the number of columns of the sentences before; 0 for the first one.
    """
    words, tags = [], []
    for number, line in lines:
        cells = split_columns(line)
        width = width or len(cells)
        if len(cells) < least or len(cells) != width:
            expected = (
                f"{width}, as the first word's line has"
                if width >= least
                else "a word and its tag, with a tab or blanks between them"
            )
            raise ValueError(
                f"{source}:{number}: columns: {len(cells)} ({line.strip()[:60]!r}); "
                f"expected {expected}"
            )
        if not (cells[0] and cells[-1]):
            raise ValueError(
                f"{source}:{number}: the {'tag' if cells[0] else 'word'} is empty "
                f"({line.strip()[:60]!r})"
            )
        words.append(clean_text(cells[0]))
        tags += cells[1:][-1:]
    return Sentence(tuple(words), tuple(tags), source, lines[0][0], 1), width


def split_columns(line: str) -> list[str]:
    """Return the columns of a line; in a line with a tab, a word may contain blanks."""
    line = line.rstrip("\r\n")
    return (
        [cell.strip(" ") for cell in line.split("\t")]
        if "\t" in line
        else re.split(" +", line.strip(" "))
    )
