"""Tagged text: sentences of words with a tag each, read and checked line by line, and written as a token store with the tags.

SOURCE                          sentences
FILE.conll|.txt|.tsv[.gz]       CoNLL's columns: a word a line, the word first and its tag last, with a tab or blanks between them, a blank line
                                behind each sentence; lines of -DOCSTART- are left out
FILE.jsonl[.gz]                 a JSON object a line: `words` (or `tokens`), a list of texts, and `tags` (or `ner_tags`), as many names

The store is one of data/store/reader.py in which a document is a sentence and a sentence of it a word, cut into pieces by itself, and beside them
lie STORE/{train,heldout}/tags.bin, float32 [S]: the number of each word's tag in the manifest's `labels`.
"""

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data.corpus.json_lines import open_text
from data.corpus.readers import BOM
from data.examples import tag_schemes
from data.examples.example_store import ExampleStore
from data.examples.labelled import class_of, records, tidy
from data.store.generations import replace_store
from data.store.writer import SPLITS, StoreWriter
from data.vocabulary.load import Vocabulary

COLUMNS = (".conll", ".txt", ".tsv")  # files of columns; others are records
USUAL = (("words", "tags"), ("tokens", "tags"), ("tokens", "ner_tags"), ("words", "ner_tags"))
DOCUMENT = "-DOCSTART-"


class Sentence(NamedTuple):
    """source, line: where its first word stands; step: lines from a word to the next one."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    source: str
    line: int
    step: int

    @property
    def texts(self) -> tuple[str, ...]:
        """What tells it from others, as that of an `Example`."""
        return self.words

    def place(self, word: int) -> str:
        """Where a word of it stands, as "file:line"."""
        return f"{self.source}:{self.line + word * self.step}"


# ---- reading -----------------------------------------------------------------


def read(source: str, columns: tuple[str, ...] = ()) -> list[Sentence]:
    """The sentences of a source. columns: names of the words and of the tags of JSON lines, if not the usual ones.

    Raises FileNotFoundError, or ValueError that names file and line: for a line of other columns than the first one, words and tags that are
    not as many, what is no word or no tag, and a source without sentences.
    """
    suffix = pathlib.Path(source.removesuffix(".gz")).suffix
    if suffix not in (*COLUMNS, ".jsonl"):
        raise ValueError(
            f"{source}: tagged text is a file of columns, which ends in {', '.join(COLUMNS)}, or .jsonl; or .gz behind it"
        )
    if suffix in COLUMNS:
        if columns:
            raise ValueError(
                f"{source}: --columns are names in JSON lines; in a file of columns the first is the word, the last its tag (`cut -f1,4`)"
            )
        with open_text(source) as file:
            sentences = list(_of_columns(file, source))
    else:
        sentences = [_of_record(record, place, columns) for place, record in records(source)]
    if not sentences:
        raise ValueError(f"{source}: no sentences in it")
    return sentences


def column_records(source: str) -> Iterator[tuple[str, dict]]:
    """(place, {"words", "tags"}) of each sentence of a file of columns; {"words"} alone where it has one column, of words without tags."""
    with open_text(source) as file:
        for sentence in _of_columns(file, source, least=1):
            record = {"words": list(sentence.words), "tags": list(sentence.tags)}
            yield sentence.place(0), {name: value for name, value in record.items() if value}


def _of_columns(file, source: str, least: int = 2) -> Iterator[Sentence]:
    """Its sentences; least: columns that it must have."""
    words, tags, width = [], [], 0
    for number, line in enumerate(file, 1):
        line = line.removeprefix(BOM.decode()) if number == 1 else line
        if line.startswith(DOCUMENT) or not line.strip():
            if words:
                yield Sentence(tuple(words), tuple(tags), source, number - len(words), 1)
            words, tags = [], []
            continue
        cells = cells_of(line)
        width = width or len(cells)
        if len(cells) < least or len(cells) != width:
            expected = (
                f"{width}, as the first word's line has"
                if width >= least
                else "a word and its tag, with a tab or blanks between them"
            )
            raise ValueError(
                f"{source}:{number}: columns: {len(cells)} ({line.strip()[:60]!r}); expected {expected}"
            )
        if not (cells[0] and cells[-1]):
            raise ValueError(
                f"{source}:{number}: the {'tag' if cells[0] else 'word'} is empty ({line.strip()[:60]!r})"
            )
        words.append(tidy(cells[0]))
        tags += cells[1:][-1:]
    if words:
        yield Sentence(tuple(words), tuple(tags), source, number + 1 - len(words), 1)


def cells_of(line: str) -> list[str]:
    """The columns of a line; where it has a tab, a word may have blanks in it."""
    line = line.rstrip("\r\n")
    return (
        [cell.strip(" ") for cell in line.split("\t")]
        if "\t" in line
        else re.split(" +", line.strip(" "))
    )


def _of_record(record: dict, place: str, columns: tuple[str, ...]) -> Sentence:
    pairs = (columns,) if columns else USUAL
    named = next((pair for pair in pairs if set(pair) <= record.keys()), None)
    if named is None:
        expected = " or ".join(" and ".join(pair) for pair in pairs)
        raise ValueError(
            f"{place}: expected {expected}; there are {', '.join(map(repr, record))[:200]}. --columns WORDS,TAGS names others"
        )
    words, tags = words_of(record[named[0]], f"{place}: {named[0]!r}"), record[named[1]]
    if not isinstance(tags, list) or len(tags) != len(words):
        told = (
            f"{len(tags)} tags"
            if isinstance(tags, list)
            else f"{named[1]!r} that is {type(tags).__name__}, not a list"
        )
        raise ValueError(f"{place}: {len(words)} words, {told}")
    source, _, line = place.rpartition(":")
    try:
        return Sentence(words, tuple(map(class_of, tags)), source, int(line), 0)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def words_of(value, place: str) -> tuple[str, ...]:
    """Words as the vocabulary reads them. Raises ValueError, which begins with `place`, for what is not a list of texts, one at least."""
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{place} is not a list of words, which are texts")
    return tuple(map(tidy, value))


# ---- tags --------------------------------------------------------------------


def scheme_of(sentences: list[Sentence], given: str | None = None) -> str:
    """The scheme that the tags are written in: the one given, or what they look like.

    Raises ValueError for a tag that the given one does not have, which is named with its line, and where all words have the same tag.
    """
    scheme = given or tag_schemes.detect([sentence.tags for sentence in sentences])
    seen = set()
    for sentence in sentences:
        for i, tag in enumerate(sentence.tags):
            if tag_schemes.wrong(tag, scheme):
                letters = ", ".join(f"{letter}-" for letter in tag_schemes.LETTERS[scheme])
                raise ValueError(
                    f"{sentence.place(i)}: {tag!r} is no tag of {scheme}, which has O and {letters}; --scheme names another"
                )
        seen.update(sentence.tags)
    if len(seen) < 2:
        raise ValueError(
            f"{sentences[0].source}: all words have the tag {seen.pop()!r}; nothing can be learned from that"
        )
    return scheme


def numbered(sentences: list[Sentence], names: Sequence[str]) -> list[list[int]]:
    """The number of each tag in `names`, sentence by sentence. Raises ValueError, which names the line, for one that is not there."""
    numbers = {name: number for number, name in enumerate(names)}
    for sentence in sentences:
        for i, tag in enumerate(sentence.tags):
            if tag not in numbers:
                known = ", ".join(map(repr, names))
                raise ValueError(
                    f"{sentence.place(i)}: the tag {tag!r} is not one of {known}, which are those that are learned"
                )
    return [[numbers[tag] for tag in sentence.tags] for sentence in sentences]


# ---- the store ---------------------------------------------------------------


def word_ids(vocabulary: Vocabulary, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """The ids of each word, of each sentence, cut into pieces one by one; [] of a word of which the vocabulary makes no token.

    In a vocabulary whose pieces keep their blanks (byte BPE), each word but a sentence's first has the blank before it, as in running text.
    """
    blank = " " if vocabulary.keeps_spaces else ""
    ids = iter(
        vocabulary.encode_batch(
            [f"{blank if i else ''}{word}" for words in sentences for i, word in enumerate(words)]
        )
    )
    return [[next(ids) for _ in words] for words in sentences]


def write_tagged(
    output,
    vocabulary: Vocabulary,
    parts: dict[str, list[Sentence]],
    names: Sequence[str],
    **described,
) -> ExampleStore:
    """Write sentences as the store `output`, in place of what is there, and open it.

    parts: those of each split; names: of the tags; described: further entries of the manifest, whose `silent` has the numbers of words of
    which the vocabulary makes no token: they are left out. All is in memory at once. Raises ValueError for a tag that is not among the names.
    """
    numbers = {split: numbered(parts.get(split, []), names) for split in SPLITS}
    output = pathlib.Path(output).absolute()
    silent = dict.fromkeys(SPLITS, 0)
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("sentences")
        for split in SPLITS:
            words = word_ids(vocabulary, [sentence.words for sentence in parts.get(split, [])])
            lengths = [[len(word) for word in sentence if word] for sentence in words]
            silent[split] = sum(map(len, words)) - sum(map(len, lengths))
            flat = np.array([i for sentence in words for word in sentence for i in word], np.int64)
            documents = np.array([sum(sentence) for sentence in lengths if sentence], np.int64)
            writer.add(
                split,
                flat,
                documents,
                np.array([length for sentence in lengths for length in sentence], np.int64),
            )
            tags = [
                tag
                for sentence, own in zip(words, numbers[split])
                for word, tag in zip(sentence, own)
                if word
            ]
            writer.add_labels(split, np.array(tags, np.float32), "tags")
        writer.finish([1.0], labels=list(names), silent=silent, **described)
    return ExampleStore.open(output)
