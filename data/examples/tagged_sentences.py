"""Tagged text: read and check sentences of words with a tag each; write them as a token store.

SOURCE                          sentences
FILE.conll|.txt|.tsv[.gz]       CoNLL's columns: a word a line, the word first and its tag last,
                                with a tab or blanks between them, and a blank line after each
                                sentence; lines of -DOCSTART- and comments
                                (`# name = value` before a sentence) are skipped
any file with `--as conll`      the same, such as CoNLL's own eng.train
FILE.jsonl[.gz]                 a JSON object a line: `words` (or `tokens`), a list of texts, and
                                `tags` (or `ner_tags`), as many names

As a store (data/store/reader.py), a document is a sentence and a sentence of it is a word, which is
encoded separately. The store also has the files STORE/{train,heldout}/tags.bin, float32 [S]: the
number of each word's tag in the manifest's `labels`.
"""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data.corpus.json_lines import open_text
from data.corpus.other_formats import explain_other_format
from data.examples import tag_schemes
from data.examples.bad_examples import BadExamples, guard_example, keep_good, raise_if_empty
from data.examples.example_store import ExampleStore
from data.examples.file_formats import describe_remedy, find_suffix
from data.examples.labelled_examples import clean_text, parse_class, read_records
from data.examples.tag_columns import Sentence, read_columns
from data.source import SPLITS
from data.store.generations import replace_store
from data.store.writer import StoreWriter
from data.vocabulary.load import Vocabulary

COLUMN_SUFFIXES = (".conll", ".txt", ".tsv")  # of files of columns; other files have records
TAGGED_SUFFIXES = (".conll", ".jsonl")  # that an error proposes
USUAL_KEYS = (("words", "tags"), ("tokens", "tags"), ("tokens", "ner_tags"), ("words", "ner_tags"))


# ---- reading -----------------------------------------------------------------


def read_sentences(
    source: str,
    columns: tuple[str, ...] = (),
    bad: BadExamples | None = None,
    file_format: str | None = None,
) -> list[Sentence]:
    """Return the sentences of a source.

    Args:
      source: a file of columns or of JSON lines.
      columns: names of the words and of the tags in JSON lines; () for the usual names.
      file_format: format of the file, whatever its name, such as "conll".

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a line with another number of columns than the first, different numbers of words
        and tags, a wrong word or tag, or a source without sentences; the message names file and
        line.
    """
    suffix = find_suffix(source, file_format)
    if suffix not in (*COLUMN_SUFFIXES, ".jsonl"):
        raise ValueError(
            f"{source}: tagged text is a file of columns, which ends in "
            f"{', '.join(COLUMN_SUFFIXES)}, or .jsonl, or one of these and .gz; "
            f"{explain_other_format(source, TAGGED_SUFFIXES) or describe_remedy(TAGGED_SUFFIXES)}"
        )
    if suffix in COLUMN_SUFFIXES:
        if columns:
            raise ValueError(
                f"{source}: --columns are names in JSON lines; in a file of columns the first is "
                "the word, the last its tag (`cut -f1,4`)"
            )
        with open_text(source, newline="\n") as file:
            sentences = list(read_columns(file, source, bad=bad))
    else:
        sentences = []
        for place, record in read_records(source, bad, file_format):
            with guard_example(bad):
                sentences.append(_make_sentence(record, place, columns))
    raise_if_empty(source, "sentences", sentences, bad)
    return sentences


def read_column_records(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over (location, {"words", "tags"}) of the sentences of a file of columns.

    Records of a file with a single column have no "tags".
    """
    with open_text(source, newline="\n") as file:
        for sentence in read_columns(file, source, least=1):
            record = {"words": list(sentence.words), "tags": list(sentence.tags)}
            yield sentence.locate_word(0), {name: value for name, value in record.items() if value}


def _make_sentence(record: Mapping[str, Any], place: str, columns: tuple[str, ...]) -> Sentence:
    """Return the sentence of a record."""
    pairs = (columns,) if columns else USUAL_KEYS
    named = next((pair for pair in pairs if set(pair) <= record.keys()), None)
    if named is None:
        expected = " or ".join(" and ".join(pair) for pair in pairs)
        raise ValueError(
            f"{place}: expected {expected}; there are {', '.join(map(repr, record))[:200]}. "
            "--columns WORDS,TAGS names others"
        )
    words, tags = parse_words(record[named[0]], f"{place}: {named[0]!r}"), record[named[1]]
    if not isinstance(tags, list) or len(tags) != len(words):
        problem = (
            f"{len(tags)} tags"
            if isinstance(tags, list)
            else f"{named[1]!r} that is {type(tags).__name__}, not a list"
        )
        raise ValueError(f"{place}: {len(words)} words, {problem}")
    source, _, line = place.rpartition(":")
    try:
        return Sentence(words, tuple(map(parse_class, tags)), source, int(line), 0)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def parse_words(value: Any, place: str) -> tuple[str, ...]:
    """Return words as the vocabulary reads them.

    Raises:
      ValueError: the value is not a list of at least one text; the message begins with `place`.
    """
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{place} is not a list of words, which are texts")
    return tuple(map(clean_text, value))


# ---- tags --------------------------------------------------------------------


def choose_scheme(
    sentences: list[Sentence], given: str | None = None, bad: BadExamples | None = None
) -> tuple[str, list[Sentence]]:
    """Return the scheme of the tags, and the sentences whose tags belong to it.

    Args:
      given: the scheme; None: the scheme that fits most of the tags of entities.

    Raises:
      ValueError: a tag does not belong to the scheme, or all words have the same tag; the message
        names the line or the file.
    """
    scheme = given or tag_schemes.detect_scheme([sentence.tags for sentence in sentences])
    source = sentences[0].source
    sentences = keep_good(sentences, lambda sentence: check_tags(sentence, scheme), bad)
    raise_if_empty(source, "sentences", sentences, bad)
    tags = {tag for sentence in sentences for tag in sentence.tags}
    if len(tags) < 2:
        raise ValueError(
            f"{source}: all words have the tag {tags.pop()!r}; nothing can be learned from that"
        )
    return scheme, sentences


def check_tags(sentence: Sentence, scheme: str) -> None:
    """Raise ValueError, which names the line, for a tag that does not belong to a scheme."""
    for i, tag in enumerate(sentence.tags):
        if tag_schemes.is_foreign_tag(tag, scheme):
            letters = ", ".join(f"{letter}-" for letter in tag_schemes.SCHEME_LETTERS[scheme])
            raise ValueError(
                f"{sentence.locate_word(i)}: {tag!r} is not a tag of {scheme}, which has O and "
                f"{letters}; --scheme names another, plain for names that spell no entities"
            )


def encode_tags(sentences: list[Sentence], names: Sequence[str]) -> list[list[int]]:
    """Return the number of each tag in `names`, sentence by sentence.

    Raises:
      ValueError: a tag is not in `names`; the message names the line.
    """
    numbers = {name: number for number, name in enumerate(names)}
    for sentence in sentences:
        for i, tag in enumerate(sentence.tags):
            if tag not in numbers:
                known = ", ".join(map(repr, names))
                raise ValueError(
                    f"{sentence.locate_word(i)}: the tag {tag!r} is not one of {known}, "
                    "the tags that the model learns"
                )
    return [[numbers[tag] for tag in sentence.tags] for sentence in sentences]


# ---- the store ---------------------------------------------------------------


def encode_words(
    vocabulary: Vocabulary, sentences: Sequence[Sequence[str]]
) -> list[list[list[int]]]:
    """Return the ids of each word of each sentence; [] for a word without tokens.

    In a vocabulary whose pieces contain the blank before them (byte BPE), each word but a
    sentence's first is encoded with that blank, as in running text.
    """
    blank = " " if vocabulary.keeps_spaces else ""
    ids = iter(
        vocabulary.encode_batch(
            [f"{blank if i else ''}{word}" for words in sentences for i, word in enumerate(words)]
        )
    )
    return [[next(ids) for _ in words] for words in sentences]


def write_tagged(
    output: str | os.PathLike[str],
    vocabulary: Vocabulary,
    parts: dict[str, list[Sentence]],
    names: Sequence[str],
    **described: Any,
) -> ExampleStore:
    """Write sentences as the store `output`, which is replaced if it exists, and open it.

    Words for which the vocabulary has no token are skipped; the manifest's `silent` counts them.
    All sentences are in memory at once.

    Raises:
      ValueError: a tag is not in `names`.
    """
    numbers = {split: encode_tags(parts.get(split, []), names) for split in SPLITS}
    output = pathlib.Path(output).absolute()
    silent = dict.fromkeys(SPLITS, 0)
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("sentences")
        for split in SPLITS:
            words = encode_words(vocabulary, [sentence.words for sentence in parts.get(split, [])])
            lengths = [[len(word) for word in sentence if word] for sentence in words]
            silent[split] = sum(map(len, words)) - sum(map(len, lengths))
            flat = np.array([i for sentence in words for word in sentence for i in word], np.int64)
            documents = np.array([sum(sentence) for sentence in lengths if sentence], np.int64)
            word_lengths = np.array([size for sentence in lengths for size in sentence], np.int64)
            writer.add_documents(split, flat, documents, word_lengths)
            tags = [
                tag
                for sentence, own in zip(words, numbers[split])
                for word, tag in zip(sentence, own)
                if word
            ]
            writer.add_labels(split, np.array(tags, np.float32), "tags")
        writer.finish([1.0], labels=list(names), silent=silent, **described)
    return ExampleStore.open(output)
