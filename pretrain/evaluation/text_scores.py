"""Scores of a text that do not depend on the vocabulary: bits per byte, perplexity per word.

A loss per token depends on how long the tokens are, and a token that is unknown costs nothing where
it is never predicted. So the share of unknown tokens is reported with these scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from data.mixed_stream import MixedStream
from data.pipeline import Stream
from data.store.unknown_tokens import measure_unknown
from data.vocabulary.base import Vocabulary

# Bytes of a word of the text at most, on average: in a script without blanks there are no words.
MAX_WORD_BYTES = 24


def score_text(
    stream: Stream | MixedStream, split: str, manifest: Mapping[str, Any], scores: Mapping[str, Any]
) -> dict[str, float]:
    """Return {"unknown", "bits_per_byte", "perplexity_per_word"}, as far as they are known.

    Args:
      scores: the scores of the rows, with the perplexity.
    """
    first = next(iter(stream.streams.values()))
    if not isinstance(first.vocabulary, Vocabulary):
        return {}
    unknown = measure_unknown(first.split, first.vocabulary)
    text_scores = {"unknown": unknown}
    kind = "" if isinstance(stream, MixedStream) else first.objective.scored_tokens
    sizes = find_sizes(manifest, split)
    if not kind or not sizes.get("bytes") or "perplexity" not in scores:
        return text_scores
    num_tokens = len(first.split.tokens) * (1 if kind == "all" else 1 - unknown)
    nats = math.log(scores["perplexity"]) * num_tokens
    text_scores["bits_per_byte"] = nats / sizes["bytes"] / math.log(2)
    if (words := sizes.get("words")) and sizes["bytes"] <= MAX_WORD_BYTES * words:
        text_scores["perplexity_per_word"] = math.exp(min(nats / words, 700))
    return text_scores


def find_sizes(manifest: Mapping[str, Any], split: str) -> dict[str, float]:
    """Return the number of bytes and words of a split; {} for a store that does not record them.

    A store of an earlier version records the bytes of both splits together.
    """
    recorded = manifest.get("sizes")
    if isinstance(recorded, dict) and isinstance(sizes := recorded.get(split), dict):
        return {unit: value for unit, value in sizes.items() if type(value) is int and value > 0}
    totals = manifest.get("totals")
    if not isinstance(totals, dict):
        return {}
    num_bytes, tokens = totals.get("bytes"), totals.get("tokens")
    if not (type(num_bytes) is int and type(tokens) is int and num_bytes > 0 and tokens > 0):
        return {}
    return {"bytes": num_bytes * manifest["splits"][split]["tokens"] / tokens}
