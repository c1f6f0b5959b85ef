"""Pairs of long texts, shortened before they are cut to a row.

A tokenizer that cuts both texts of a pair returns each part of the first with each part of the
second. Of two texts of 12,000 tokens and rows of 128 these are 37,000 rows.
"""

from typing import Any

MAX_PARTS = 2  # of a text, each of a row's length: a row reads the first, the second is its context


def shorten_pair(tokenizer: Any, texts: tuple[str, str], length: int) -> tuple[str, str]:
    """Return a pair of texts of which each has the tokens of at most `MAX_PARTS` rows.

    A row of the pair reads the same tokens as before: it has fewer of either text.

    Args:
      tokenizer: cuts its input to rows of `length` tokens.
    """
    if min(map(len, texts)) <= length:
        return texts  # a text of so few characters has few parts
    first, second = (_shorten_text(tokenizer, text) for text in texts)
    return first, second


def _shorten_text(tokenizer: Any, text: str) -> str:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    parts = [encoding, *encoding.overflowing]
    return text if len(parts) <= MAX_PARTS else text[: parts[MAX_PARTS - 1].offsets[-1][1]]
