"""Words as the characters that they are written with, for models that read characters.

A word is [begin] bytes of its UTF-8 [end] and then [pad], in `width` ids. A byte is its value + 1,
and the special characters follow; 0 is where there is no word. These are the ids of the released
code of Peters et al. 2018.

V words of a vocabulary   C characters of a word
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from data.vocabulary.base import SPELLED, Vocabulary
from data.vocabulary.layouts import WORD_LEVEL_SPECIAL

NO_WORD = 0
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, WORD_PAD = range(257, 262)
NUM_CHARACTERS = WORD_PAD + 1  # ids, including "no word"
LEAST_WIDTH = 3  # a byte and the two ends of a word


def spell_word(word: bytes, width: int) -> np.ndarray:
    """Return the characters of a word, uint16 [C]; of a longer word, its first bytes."""
    return frame_characters([byte + 1 for byte in word[: width - 2]], width)


def frame_characters(ids: list[int], width: int) -> np.ndarray:
    """Return characters between the two ends of a word, uint16 [C]."""
    spelled_C = np.full(width, WORD_PAD, np.uint16)
    spelled_C[: len(ids) + 2] = [WORD_BEGIN, *ids, WORD_END]
    return spelled_C


def spell_vocabulary(vocabulary: Vocabulary, width: int) -> np.ndarray:
    """Return the characters of each word of a vocabulary, uint16 [V, C].

    [CLS] and [SEP] are the beginning and the end of a sentence, and [PAD] is no word. [UNK] is
    spelled as it is written.
    """
    if width < LEAST_WIDTH:
        raise ValueError(
            f"characters={width}: a word has its two ends and a byte, so {LEAST_WIDTH} at least"
        )
    if not is_word_vocabulary(vocabulary):
        raise ValueError(
            f"a {vocabulary.kind} vocabulary of pieces of words: a model of characters reads whole "
            "words. Use `prepare --algorithm words`"
        )
    spelled_VC = np.stack([spell_word(piece.encode(), width) for piece in vocabulary.pieces])
    spelled_VC[vocabulary.pad] = NO_WORD
    spelled_VC[vocabulary.cls] = frame_characters([SENTENCE_BEGIN], width)
    spelled_VC[vocabulary.sep] = frame_characters([SENTENCE_END], width)
    return spelled_VC


def is_word_vocabulary(vocabulary: Vocabulary) -> bool:
    """Return whether a vocabulary is one of `data.vocabulary.word_level`."""
    files = vocabulary.export_files() if vocabulary.kind == "tokenizer_json" else {}
    text = files.get("tokenizer.json", b"")
    return b'"WordLevel"' in text and vocabulary.pieces[: len(WORD_LEVEL_SPECIAL)] == (
        WORD_LEVEL_SPECIAL
    )


def make_speller(vocabulary: Vocabulary, width: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that returns the characters [..., C] of token ids [...]."""
    spelled_VC = spell_vocabulary(vocabulary, width)
    return lambda ids: spelled_VC[np.asarray(ids)]


def read_word_list(path: str | os.PathLike[str]) -> list[str]:
    """Return the words of a file with one a line, without the names of special tokens.

    Raises:
      ValueError: a line has a blank in it, or a word occurs twice; names the line.
    """
    from data.corpus.json_lines import read_lines

    words: dict[str, None] = {}
    for place, line in read_lines(path):
        word = line.strip()
        if not word or word in ("<S>", "</S>", "<UNK>", *WORD_LEVEL_SPECIAL):
            continue
        if len(word.split()) > 1:
            raise ValueError(f"{place}: a word has a blank in it: {word[:60]!r}")
        if word in words:
            raise ValueError(f"{place}: the word {word[:60]!r} occurs twice")
        words[word] = None
    return list(words)


def spell_batches(
    build: Callable[..., dict[str, np.ndarray]], vocabulary: Vocabulary, width: int
) -> Callable[..., dict[str, np.ndarray]]:
    """Return a function that builds batches with characters [B, L, C] for ids in `SPELLED` keys.

    Args:
      width: C; 0: the batches stay as they are.
    """
    if not width:
        return build
    spell = make_speller(vocabulary, width)

    def build_spelled(*arguments: np.ndarray) -> dict[str, np.ndarray]:
        batch = build(*arguments)
        return {key: spell(array) if key in SPELLED else array for key, array in batch.items()}

    return build_spelled


def make_id_restorer(
    objective: Any, split: Any, vocabulary: Vocabulary
) -> Callable[[Any, np.ndarray, np.ndarray], Any]:
    """Return `RowSet.restore` of an objective whose batches have characters instead of ids."""
    plain = dataclasses.replace(objective, characters=0)
    _, build = plain.make_rows(split, vocabulary)

    def restore(batch: Any, row_B: np.ndarray, key_B: np.ndarray) -> Any:
        ids = build(row_B, key_B)
        return {key: ids[key] if key in SPELLED else array for key, array in batch.items()}

    return restore
