"""A vocabulary of whole words: those between blanks in the texts that it is made of.

It is saved as a tokenizer.json, whose model is the `WordLevel` of the tokenizers library.
"""

import collections
import re
from collections.abc import Collection, Iterable, Sequence

import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers

from data.vocabulary.base import Vocabulary
from data.vocabulary.layouts import WORD_LEVEL_SPECIAL
from data.vocabulary.tokenizer_checks import MAX_IDS
from data.vocabulary.tokenizer_json import read_tokenizer_json

PAD, UNK, CLS, SEP = WORD_LEVEL_SPECIAL
# As the tokenizers library: four control characters, which Python takes for blanks, are not.
BLANKS = re.compile(r"[^\S\x1c-\x1f]+")


def make_word_vocabulary(
    texts: Iterable[str], min_count: int = 1, wanted: Collection[str] = (), size: int | None = None
) -> Vocabulary:
    """Return the vocabulary of the words of texts, the most frequent first.

    Args:
      min_count: the number of times that a word occurs at least; others are [UNK].
      wanted: words that may occur less often, such as those that have vectors.
      size: the largest number of ids, special tokens included; None: as many as there are words.

    Raises:
      ValueError: there is no word, none occurs so often, or there are more than a vocabulary may
        have.
    """
    if min_count < 1:
        raise ValueError(f"a minimum count of {min_count}: must be at least 1")
    counts = collections.Counter(word for text in texts for word in BLANKS.split(text) if word)
    for special in WORD_LEVEL_SPECIAL:
        counts.pop(special, None)
    if not counts:
        raise ValueError("there is no text to make a vocabulary of words from")
    words = sorted(
        (word for word, count in counts.items() if count >= min_count or word in wanted),
        key=lambda word: (-counts[word], word),
    )
    if not words:
        raise ValueError(
            f"none of the {len(counts):,} words occurs {min_count:,} times: lower the minimum count"
        )
    if size is not None:
        if size <= len(WORD_LEVEL_SPECIAL):
            raise ValueError(
                f"a vocabulary of words needs {len(WORD_LEVEL_SPECIAL) + 1} ids at least, not "
                f"{size}"
            )
        words = words[: size - len(WORD_LEVEL_SPECIAL)]
    return build_word_vocabulary(words)


def make_text_vocabulary(texts: Iterable[str]) -> Vocabulary:
    """Return the vocabulary of all words of texts, so that none loses its characters."""
    words = dict.fromkeys(word for text in texts for word in BLANKS.split(text) if word)
    return build_word_vocabulary([word for word in words if word not in WORD_LEVEL_SPECIAL])


def build_word_vocabulary(words: Sequence[str]) -> Vocabulary:
    """Return the vocabulary of the special tokens and of words, in this order.

    Raises ValueError for more words than a vocabulary may have.
    """
    if len(words) + len(WORD_LEVEL_SPECIAL) > MAX_IDS:
        raise ValueError(
            f"{len(words):,} words are more than the {MAX_IDS:,} of a vocabulary: raise the "
            "minimum count"
        )
    ids = {word: i for i, word in enumerate((*WORD_LEVEL_SPECIAL, *words))}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in WORD_LEVEL_SPECIAL])
    return read_tokenizer_json(tokenizer.to_str())
