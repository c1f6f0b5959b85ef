"""One vocabulary of words and visual tokens, so that a model of words needs no change.

    [PAD] [UNK] [CLS] [SEP] [MASK] [unusedN]  words, the most frequent first  [patch0] [patch1] ...

It is a WordPiece vocabulary of whole words, in lower case, split as BERT's. No text is read as a
visual token, because brackets are words of their own. N is a hash of the centroids: vocabularies of
other centroids are different ones.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from etils import epath
from tokenizers import normalizers, pre_tokenizers

from data.corpus.paths import as_path
from data.images.codebook import FOLDER, Codebook, load_codebook
from data.vocabulary.load import load_vocabulary
from data.vocabulary.released import ReleasedVocabulary, read_wordpiece

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FIRST_PATCH = "[patch0]"
MAX_WORDS = 30_000


class CaptionedVocabulary(ReleasedVocabulary):
    """A vocabulary of words and of the visual tokens of a codebook.

    Attributes:
      first_patch: id of the first visual token; the last one has the last id.
    """

    def __init__(self, words: ReleasedVocabulary, codebook: Codebook) -> None:
        """Join them. Raises ValueError if the vocabulary belongs to another codebook."""
        super().__init__(
            words.kind,
            words._encoder,
            words._decoder,
            "wordpiece",
            files=words.export_files(),
            options=words.options,
        )
        self.codebook = codebook
        count = len(codebook.centroids_KN)
        if self.pieces[len(SPECIAL)] != name_codebook(codebook) or self.pieces[-count:] != tuple(
            map("[patch{}]".format, range(count))
        ):
            raise ValueError("the vocabulary belongs to other centroids; put the right ones back")
        self.first_patch = self.size - count

    @property
    def artefacts(self) -> dict[str, Callable[[Any], None]]:
        """{folder of a workdir: function that writes it}, as data/source.py describes."""
        return super().artefacts | {FOLDER: self.codebook.save}

    def encode_pixels(self, pixels_BHWC: np.ndarray) -> np.ndarray:
        """Return the ids of the visual tokens of pictures, int64 [B, T]."""
        return self.first_patch + self.codebook.encode(pixels_BHWC)


def name_codebook(codebook: Codebook) -> str:
    """Return the piece that names a codebook."""
    return f"[unused{codebook.number}]"


def make_captioned_vocabulary(captions: Iterable[str], codebook: Codebook) -> CaptionedVocabulary:
    """Return the vocabulary of the MAX_WORDS most frequent words of captions, and of a codebook."""
    fold, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    counts = collections.Counter(
        word
        for caption in captions
        for word, _ in split.pre_tokenize_str(fold.normalize_str(caption))
    )
    words = sorted(counts, key=lambda word: (-counts[word], word))[:MAX_WORDS]
    patches = map("[patch{}]".format, range(len(codebook.centroids_KN)))
    pieces = (*SPECIAL, name_codebook(codebook), *words, *patches)
    text = "".join(f"{piece}\n" for piece in pieces)
    return CaptionedVocabulary(read_wordpiece(text, lowercase=True), codebook)


def load_captioned_vocabulary(folder: epath.PathLike) -> CaptionedVocabulary:
    """Return the vocabulary of a generation of a store, or of a workdir.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is damaged, or belongs to another codebook; the message names it.
    """
    words = load_vocabulary(as_path(folder) / "vocabulary")
    codebook = load_codebook(as_path(folder) / FOLDER)
    if not isinstance(words, ReleasedVocabulary) or words.size <= len(SPECIAL):
        raise ValueError(f"{as_path(folder) / 'vocabulary'}: not one of words and visual tokens")
    try:
        return CaptionedVocabulary(words, codebook)
    except ValueError as error:
        raise ValueError(f"{as_path(folder) / FOLDER}: {error}") from None
