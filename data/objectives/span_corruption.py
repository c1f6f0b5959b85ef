"""Span corruption: replace random spans by sentinels and write the spans out (Raffel et al. 2019, section 3.1.4).

Tay et al. (2022, section 3.1) mix several: short spans (R), long spans or many of them (X), and one span at the end of the text (S),
which is what `mean_span` of no less than the removed tokens gives. A mode token first tells the model which it is (section 3.2).

B rows   R raw tokens   L inputs   T targets   K spans
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import SEQ2SEQ
from data.inspection.rendering import span_row
from data.inspection.spans import spans
from data.objectives.base import Objective
from data.objectives.masking import needs
from data.rows import hashing
from data.rows.tables import TokenReader, WindowRows


@dataclass(frozen=True)
class SpanCorruption(Objective):
    """Inputs of exactly `inputs` tokens; the targets' and the raw text's lengths follow from the paper's formula."""

    name: ClassVar[str] = "span_corruption"
    description: ClassVar[str] = (
        "span corruption ({noise_density:.0%} of the tokens, spans of {mean_span:g}, inputs of {inputs})"
    )
    gaps: ClassVar[str] = "spans"
    inputs: int = 512  # L: tokens of the encoder's row: text, sentinels and </s>
    noise_density: float = 0.15  # share of the raw tokens that are removed
    mean_span: float = 3.0  # tokens of a removed span, on average
    mode: str = (
        ""  # piece of the vocabulary that each encoder's row begins with, such as [S2S]; "": none
    )

    def dims(self):
        return {"L": self.inputs, "T": self.targets}

    @property
    def lengths(self):
        """What `find_lengths` gives for the row behind the mode token."""
        return find_lengths(self.inputs - bool(self.mode), self.noise_density, self.mean_span)

    @property
    def raw_length(self):
        """Tokens of text that make one example: the most that leave `inputs` tokens (512 -> 568)."""
        return self.lengths[0]

    @property
    def noise(self):
        """Tokens of text that are removed from one example (512 -> 85)."""
        return self.lengths[1]

    @property
    def spans(self):
        """Removed spans, and so sentinels, of one example (512 -> 28)."""
        return self.lengths[2]

    @property
    def targets(self):
        """T: tokens of the decoder's row: spans, sentinels and </s> (512 -> 114)."""
        return self.noise + self.spans + 1

    def spec(self):
        return SEQ2SEQ

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        needs(self.name, vocabulary, "eos")
        if self.spans > self.raw_length - self.noise:
            raise ValueError(
                f"span_corruption: {self.spans} spans do not lie apart in {self.raw_length - self.noise} kept tokens; "
                f"lower noise_density={self.noise_density} or raise mean_span={self.mean_span}"
            )
        if self.spans > len(vocabulary.sentinels):
            raise ValueError(
                f"span_corruption: inputs={self.inputs}, noise_density={self.noise_density}, mean_span={self.mean_span} make "
                f"{self.spans} spans a row, but the vocabulary ({vocabulary.kind}, {vocabulary.size} ids) has "
                f"{len(vocabulary.sentinels)} sentinels "
                "<extra_id_...>; shorten the inputs, lengthen the spans, or prepare the store with a vocabulary that has more of them"
            )
        if self.mode and self.mode not in vocabulary.pieces:
            raise ValueError(
                f"span_corruption: mode={self.mode} is no piece of the vocabulary ({vocabulary.kind}, {vocabulary.size} ids): prepare "
                "the store with --layout ul2, which has [NLU], [NLG] and [S2S], or name a sentinel that no span uses, such as <extra_id_99>"
            )
        if self.mode and self.find_mode(vocabulary) in vocabulary.sentinels[: self.spans]:
            raise ValueError(
                f"span_corruption: mode={self.mode} is the sentinel of one of the {self.spans} spans; take a later one"
            )

    def find_mode(self, vocabulary) -> int:
        """Return the id of the mode token."""
        return vocabulary.pieces.index(self.mode)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, corrupted as the keys say."""
        read, table = TokenReader(split.tokens, vocabulary.size), WindowRows(split, self.raw_length)
        sentinel_K = np.array(vocabulary.sentinels[: self.spans], np.int32)
        mode = self.find_mode(vocabulary) if self.mode else None

        def build(row_B, key_B):
            raw_BR = read.runs(table.starts(row_B), self.raw_length)
            kept_BK, gone_BK = self.segments(key_B)
            inputs_BL, targets_BT = corrupt(raw_BR, kept_BK, gone_BK, sentinel_K, vocabulary.eos)
            if mode is not None:
                inputs_BL = np.pad(inputs_BL, ((0, 0), (1, 0)), constant_values=mode)
            return {
                "encoder_token_ids": inputs_BL,
                "encoder_attention_mask": np.ones(inputs_BL.shape, bool),
                "labels": targets_BT,
                "label_weights": np.ones(targets_BT.shape, np.float32),
            }

        return table, build

    def segments(self, key_B):
        """(kept, gone) [B, K]: numbers of tokens kept before each span, and of the span: random, at least one each.

        All ways to cut the kept and the removed tokens into K segments are alike likely, as in Raffel et al.'s code.
        """
        kept_BK = lengths_of(
            hashing.key(key_B, hashing.KEPT), self.raw_length - self.noise, self.spans
        )
        return kept_BK, lengths_of(hashing.key(key_B, hashing.GONE), self.noise, self.spans)

    def measure(self, stream, seen, token_id):
        return spans(stream, seen, token_id)

    def render(self, stream, seen, i):
        return span_row(stream, seen, i)


def lengths_of(key_B, n, k):
    """Random lengths [B, k] of `k` segments, 1 at least, that make `n` together; all such choices are alike likely."""
    cut_BK = hashing.choose(key_B, n - 1, k - 1) + 1
    return np.diff(cut_BK, axis=1, prepend=0, append=n)


def corrupt(raw_BR, kept_BK, gone_BK, sentinel_K, eos):
    """(inputs [B, L], targets [B, T]), int32: kept tokens with a sentinel for each span; each span behind its sentinel.

    Row by row: kept_0 tokens stay, gone_0 are span 0, kept_1 stay, and so on to the end. Both results end with `eos`.
    """
    rows, spans = kept_BK.shape
    lengths_B2K = np.stack([kept_BK, gone_BK], axis=2)
    gone_BR = np.repeat(np.tile([False, True], rows * spans), lengths_B2K.ravel()).reshape(
        raw_BR.shape
    )
    inputs = filled(
        raw_BR[~gone_BR], np.cumsum(kept_BK, axis=1) + np.arange(spans), sentinel_K, eos
    )
    heads_BK = np.cumsum(gone_BK, axis=1) - gone_BK + np.arange(spans)
    return inputs, filled(raw_BR[gone_BR], heads_BK, sentinel_K, eos)


def filled(tokens, place_BK, sentinel_K, eos):
    """int32 rows that end with `eos`, with the sentinels at the places given and the tokens in all others."""
    rows, spans = place_BK.shape
    out = np.full((rows, len(tokens) // rows + spans + 1), eos, np.int32)
    free = np.ones(out.shape, bool)
    free[:, -1] = False
    free[np.arange(rows)[:, None], place_BK] = False
    out[np.arange(rows)[:, None], place_BK] = sentinel_K
    out[free] = tokens
    return out


def corruption(raw, noise_density, mean_span):
    """(tokens removed, spans) of `raw` tokens: both rounded to the nearest, at least one of each, never all tokens."""
    noise = min(max(round(raw * noise_density), 1), raw - 1)
    return noise, max(round(noise / mean_span), 1)


@functools.cache
def find_lengths(inputs, noise_density, mean_span) -> tuple[int, int, int]:
    """(raw tokens, tokens removed, spans) of the longest text whose corrupted form fills `inputs` exactly.

    The corrupted form is what stays, a sentinel a span, and </s>. It grows by 0 or 1 with each raw token (because
    `mean_span` >= 1), so there is always a text that fills `inputs` without a gap.
    """
    if not (inputs >= 3 and 0 < noise_density < 1 and 1 <= mean_span):
        raise ValueError(
            f"span_corruption: inputs={inputs}, noise_density={noise_density}, mean_span={mean_span}; "
            "allowed are inputs >= 3, 0 < noise_density < 1, mean_span >= 1"
        )
    raw, fitting = 2, None
    while True:
        noise, spans = corruption(raw, noise_density, mean_span)
        if raw - noise + spans + 1 > inputs:
            assert fitting is not None  # two tokens and a span fit into the fewest inputs, three
            return fitting
        raw, fitting = raw + 1, (raw, noise, spans)
