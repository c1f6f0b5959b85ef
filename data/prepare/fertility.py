"""How well a vocabulary serves each source of a store.

Fertility is the number of tokens for a word (Rust et al. 2021, section 3.1). Words are what blanks
separate, so compare scripts without blanks by bytes a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Fertility(NamedTuple):
    """How much text the tokens of a source are.

    Attributes:
      name: SOURCE of the command line.
      tokens: tokens of both splits, or of a sample.
      tokens_per_word: fertility; 1 is a token for each word.
      bytes_per_token: bytes of UTF-8 that a token is worth; more is shorter rows.
      unknown_share: share of the tokens that are unknown.
    """

    name: str
    tokens: int
    tokens_per_word: float
    bytes_per_token: float
    unknown_share: float


def compute_fertility(name: str, counts: Mapping[str, int]) -> Fertility:
    """Return the fertility of a source.

    Args:
      name: SOURCE of the command line.
      counts: its tokens, words, bytes and unknown tokens.
    """
    tokens = max(counts["tokens"], 1)
    return Fertility(
        name,
        counts["tokens"],
        counts["tokens"] / max(counts["words"], 1),
        counts["bytes"] / tokens,
        counts["unknown"] / tokens,
    )


def list_fertility(manifest: Mapping[str, Any]) -> list[Fertility]:
    """Return the fertility of each source of a store; [] for one of an older version."""
    names = [source["name"] for source in manifest["sources"]]
    return [
        compute_fertility(name, counts)
        for name, counts in zip(names, manifest.get("text_by_source", ()))
    ]


def format_fertility(row: Fertility) -> str:
    """Return the three measures in words."""
    return (
        f"{row.tokens_per_word:.2f} tokens per word, {row.bytes_per_token:.2f} bytes per token, "
        f"{row.unknown_share:.4%} unknown"
    )
