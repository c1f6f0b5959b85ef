"""Span corruption: replace random spans by sentinels and write the spans out (Raffel et al. 2019, section 3.1.4)."""

import functools
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class SpanCorruption:
    """Inputs of exactly `inputs` tokens; the targets' and the raw text's lengths follow from the paper's formula."""

    name: ClassVar[str] = "span_corruption"
    inputs: int = 512  # L: tokens of the encoder's row: text, sentinels and </s>
    rate: float = 0.15  # share of the raw tokens that are removed
    mean_span: float = 3.0  # tokens of a removed span, on average

    def dims(self):
        return {"L": self.inputs, "T": self.targets}

    @property
    def raw_length(self):
        """Tokens of text that make one example: the most that leave `inputs` tokens (512 -> 568)."""
        return lengths(self.inputs, self.rate, self.mean_span)[0]

    @property
    def noise(self):
        """Tokens of text that are removed from one example (512 -> 85)."""
        return lengths(self.inputs, self.rate, self.mean_span)[1]

    @property
    def spans(self):
        """Removed spans, and so sentinels, of one example (512 -> 28)."""
        return lengths(self.inputs, self.rate, self.mean_span)[2]

    @property
    def targets(self):
        """T: tokens of the decoder's row: spans, sentinels and </s> (512 -> 114)."""
        return self.noise + self.spans + 1


def corruption(raw, rate, mean_span):
    """(tokens removed, spans) of `raw` tokens: both rounded to the nearest, at least one of each, never all tokens."""
    noise = min(max(round(raw * rate), 1), raw - 1)
    return noise, max(round(noise / mean_span), 1)


@functools.cache
def lengths(inputs, rate, mean_span):
    """(raw tokens, tokens removed, spans) of the longest text whose corrupted form fills `inputs` exactly.

    The corrupted form is what stays, a sentinel a span, and </s>. It grows by 0 or 1 with each raw token (because
    `mean_span` >= 1), so there is always a text that fills `inputs` without a gap.
    """
    if not (inputs >= 3 and 0 < rate < 1 and 1 <= mean_span):
        raise ValueError(
            f"span_corruption: inputs={inputs}, rate={rate}, mean_span={mean_span}; "
            "allowed are inputs >= 3, 0 < rate < 1, mean_span >= 1"
        )
    raw, fitting = 2, None
    while True:
        noise, spans = corruption(raw, rate, mean_span)
        if raw - noise + spans + 1 > inputs:
            return fitting
        raw, fitting = raw + 1, (raw, noise, spans)
