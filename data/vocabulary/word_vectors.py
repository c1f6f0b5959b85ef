"""Read word vectors that one brings: the text format of word2vec, GloVe and fastText.

A line is a word and its numbers, with blanks between. A first line of two whole numbers, the
numbers of words and of dimensions, is skipped. A name that ends in .gz is decompressed.

V ids   D width
"""

import math
import os
from collections.abc import Collection

import numpy as np

from data.corpus.json_lines import read_lines
from data.vocabulary.base import Vocabulary


def read_word_vectors(
    path: str | os.PathLike[str], width: int, words: Collection[str]
) -> dict[str, np.ndarray]:
    """Return {word: float32 [D]} of the words with a vector; of one that occurs twice, the first.

    Args:
      words: the words that are wanted; the vectors of others are checked and dropped.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is damaged, its vectors have another width, or none is of a wanted word;
        names file and line.
    """
    vectors: dict[str, np.ndarray] = {}
    num_read = 0
    for number, (place, line) in enumerate(read_lines(path)):
        # Words of some released vectors have blanks in them.
        word, *numbers = line.rstrip(" ").rsplit(" ", width)
        fields = line.split()
        if number == 0 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            if int(fields[1]) != width:
                raise ValueError(describe_width(place, int(fields[1]), width))
            continue
        if number <= 1 and not num_read and len(fields) - 1 != width:
            raise ValueError(describe_width(place, len(fields) - 1, width))
        try:
            vector = np.array([float(text) for text in numbers], np.float32)
        except ValueError as error:
            raise ValueError(
                f"{place}: a word and {width} numbers are expected ({error})"
            ) from None
        if len(vector) != width or not word:
            raise ValueError(
                f"{place}: a word and {width} numbers are expected: the line is cut off"
            )
        if not math.isfinite(float(vector.sum())):
            raise ValueError(
                f"{place}: the vector of {word[:60]!r} has a number that is not finite"
            )
        num_read += 1
        if word in words:
            vectors.setdefault(word, vector)
    if not num_read:
        raise ValueError(f"{path}: has no word vectors")
    if not vectors:
        raise ValueError(
            f"{path}: none of its {num_read:,} words is one of the {len(words):,} of the texts: "
            "give vectors of the same language, written with the same capitals"
        )
    return vectors


def describe_width(place: str, actual: int, width: int) -> str:
    """Return the error of vectors of another width than the model's."""
    return (
        f"{place}: vectors of {actual} numbers, and the model's words have {width}: set "
        f"model.encoder.width={actual}"
    )


def fill_embeddings(
    embedding_VD: np.ndarray, vocabulary: Vocabulary, vectors: dict[str, np.ndarray]
) -> np.ndarray:
    """Return an embedding table with the vectors of the words that have one.

    The others are scaled to the variance of the vectors (Kim 2014, section 3.2).
    """
    ids = [i for i, word in enumerate(vocabulary.pieces) if word in vectors]
    found = np.stack([vectors[vocabulary.pieces[i]] for i in ids])
    filled = embedding_VD * (found.std() / max(float(embedding_VD.std()), 1e-30))
    filled[ids] = found
    return filled.astype(embedding_VD.dtype)
