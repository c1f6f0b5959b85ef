"""Span corruption: replace random spans by sentinels; the target is the removed spans.

Raffel et al. (2019), section 3.1.4. Tay et al. (2022, section 3.1) mix several versions of it:
short spans (R), long or many spans (X), and one span at the end of the text (S), which follows from
a `mean_span` of at least the number of removed tokens. The mode token before a row names its
version (section 3.2).

B rows   R raw tokens   L input length   T target length   K spans   N removed tokens of a row
"""

import bisect
import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import SEQ2SEQ, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows import hashing
from data.rows.tables import Batch, TokenReader, WindowRows, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary

MAX_TEXT_RATIO = 100  # tokens of text for each input


@dataclass(frozen=True)
class SpanCorruption(Objective):
    """Inputs of exactly `inputs` tokens.

    The lengths of the targets and of the raw text follow from the paper's formula.
    """

    name: ClassVar[str] = "span_corruption"
    description: ClassVar[str] = (
        "span corruption ({noise_density:.0%} of the tokens, spans of {mean_span:g}, "
        "inputs of {inputs})"
    )
    checks: ClassVar[str] = "spans:check_spans"
    rendering: ClassVar[str] = "rendering:render_span_row"
    gaps: ClassVar[str] = "spans"
    inputs: int = 512  # L: tokens of the encoder's row: text, sentinels and </s>
    noise_density: float = 0.15  # share of raw tokens that are removed
    mean_span: float = 3.0  # average tokens of a removed span
    mode: str = ""  # piece that begins each encoder row, such as [S2S]; "": none

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the input length, "T": the target length}."""
        return {"L": self.inputs, "T": self.target_length}

    @property
    def row_lengths(self) -> tuple[int, int, int]:
        """The result of `find_lengths` for the row after the mode token."""
        return find_lengths(self.inputs - bool(self.mode), self.noise_density, self.mean_span)

    @property
    def raw_length(self) -> int:
        """Tokens of text in one example: the most that leave `inputs` tokens (512 -> 568)."""
        return self.row_lengths[0]

    @property
    def num_noise_tokens(self) -> int:
        """Tokens of text that are removed from one example (512 -> 85)."""
        return self.row_lengths[1]

    @property
    def num_spans(self) -> int:
        """Removed spans, and so sentinels, of one example (512 -> 28)."""
        return self.row_lengths[2]

    @property
    def target_length(self) -> int:
        """T: tokens of the decoder's row: spans, sentinels and </s> (512 -> 114)."""
        return self.num_noise_tokens + self.num_spans + 1

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return SEQ2SEQ

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_special_tokens(self.name, vocabulary, "eos")
        described = f"vocabulary ({vocabulary.kind}, {vocabulary.size} ids)"
        if self.num_spans > self.raw_length - self.num_noise_tokens:
            raise ValueError(
                f"span_corruption: {self.num_spans} spans need as many tokens between them, but "
                f"only {self.raw_length - self.num_noise_tokens} remain; lower "
                f"noise_density={self.noise_density} or raise mean_span={self.mean_span}"
            )
        if self.num_spans > len(vocabulary.sentinels):
            raise ValueError(
                f"span_corruption: inputs={self.inputs}, noise_density={self.noise_density}, "
                f"mean_span={self.mean_span} make {self.num_spans} spans a row, but the "
                f"{described} has {len(vocabulary.sentinels)} sentinels "
                "<extra_id_...>; shorten the inputs, "
                "lengthen the spans, or prepare the store with a vocabulary that has more of them"
            )
        if self.mode and self.mode not in vocabulary.pieces:
            raise ValueError(
                f"span_corruption: mode={self.mode} is not a token of the {described}: prepare the "
                "store with --layout ul2, which has [NLU], [NLG] and [S2S], or name a sentinel "
                "that no span uses, such as <extra_id_99>"
            )
        if self.mode and self.find_mode_id(vocabulary) in vocabulary.sentinels[: self.num_spans]:
            raise ValueError(
                f"span_corruption: mode={self.mode} is the sentinel of one of the {self.num_spans} "
                "spans; take a later one"
            )

    def find_mode_id(self, vocabulary: Vocabulary) -> int:
        """Return the id of the mode token."""
        return vocabulary.pieces.index(self.mode)

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[WindowRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; keys draw the spans."""
        read, table = TokenReader(split.tokens, vocabulary.size), WindowRows(split, self.raw_length)
        sentinel_K = np.array(vocabulary.sentinels[: self.num_spans], np.int32)
        mode = self.find_mode_id(vocabulary) if self.mode else None
        eos = require_id(vocabulary.eos)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            raw_BR = read.read_runs(table.locate_starts(row_B), self.raw_length)
            unmasked_lengths_BK, removed_BK = self.draw_segment_lengths(key_B)
            input_BL, label_BT = replace_spans(
                raw_BR, unmasked_lengths_BK, removed_BK, sentinel_K, eos
            )
            if mode is not None:
                input_BL = np.pad(input_BL, ((0, 0), (1, 0)), constant_values=mode)
            return {
                "encoder_token_ids": input_BL,
                "encoder_attention_mask": np.ones(input_BL.shape, bool),
                "labels": label_BT,
                "label_weights": np.ones(label_BT.shape, np.float32),
            }

        return table, build_batch

    def draw_segment_lengths(self, key_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw the number of unmasked tokens before each span, and of the span: [B, K], at least 1.

        All ways to cut the unmasked and the removed tokens into K segments are equally likely, as
        in Raffel et al.'s code.
        """
        unmasked_lengths_BK = draw_lengths(
            hashing.derive_keys(key_B, hashing.UNMASKED_LENGTHS),
            self.raw_length - self.num_noise_tokens,
            self.num_spans,
        )
        return unmasked_lengths_BK, draw_lengths(
            hashing.derive_keys(key_B, hashing.REMOVED_LENGTHS),
            self.num_noise_tokens,
            self.num_spans,
        )

    def drop_repeats(
        self, table: WindowRows, batch: Batch, row_B: np.ndarray, key_B: np.ndarray
    ) -> None:
        """Set to 0 the weights of tokens that are in another row as well.

        A sentinel counts if a token of its span does; </s> is each row's own.
        """
        own_BR = table.mark_own_tokens(row_B)
        if own_BR.all():
            return
        unmasked_lengths_BK, removed_BK = self.draw_segment_lengths(key_B)
        own_BN = own_BR[mark_removed(unmasked_lengths_BK, removed_BK)].reshape(len(row_B), -1)
        first_BK = np.cumsum(removed_BK, axis=1) - removed_BK
        flat_BK = first_BK + np.arange(len(row_B))[:, None] * own_BN.shape[1]
        counts_BK = np.logical_or.reduceat(own_BN.ravel(), flat_BK.ravel()).reshape(flat_BK.shape)
        heads_BK = first_BK + np.arange(self.num_spans)
        batch["label_weights"][:] = insert_sentinels(own_BN.ravel(), heads_BK, counts_BK, eos=1)


def draw_lengths(key_B: np.ndarray, n: int, k: int) -> np.ndarray:
    """Draw the lengths of `k` segments that sum to `n`: int64 [B, k], each at least 1.

    All such choices are equally likely.
    """
    cut_BK = hashing.choose_subset(key_B, n - 1, k - 1) + 1
    return np.diff(cut_BK, axis=1, prepend=0, append=n)


def replace_spans(
    raw_BR: np.ndarray,
    unmasked_lengths_BK: np.ndarray,
    removed_BK: np.ndarray,
    sentinel_K: np.ndarray,
    eos: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Replace spans of text by sentinels.

    In each row, unmasked_lengths_0 tokens stay, removed_0 are span 0, unmasked_lengths_1 stay, and
    so on to the end.

    Returns:
      inputs: int32 [B, L], unmasked tokens with a sentinel for each span, then `eos`.
      targets: int32 [B, T], each span after its sentinel, then `eos`.
    """
    spans = unmasked_lengths_BK.shape[1]
    removed_BR = mark_removed(unmasked_lengths_BK, removed_BK)
    inputs = insert_sentinels(
        raw_BR[~removed_BR],
        np.cumsum(unmasked_lengths_BK, axis=1) + np.arange(spans),
        sentinel_K,
        eos,
    )
    heads_BK = np.cumsum(removed_BK, axis=1) - removed_BK + np.arange(spans)
    return inputs, insert_sentinels(raw_BR[removed_BR], heads_BK, sentinel_K, eos)


def mark_removed(unmasked_lengths_BK: np.ndarray, removed_BK: np.ndarray) -> np.ndarray:
    """Return which tokens of the text are removed, of segments of these lengths: bool [B, R]."""
    B, K = unmasked_lengths_BK.shape
    lengths_BK2 = np.stack([unmasked_lengths_BK, removed_BK], axis=2)
    removed = np.repeat(np.tile([False, True], B * K), lengths_BK2.ravel())
    return removed.reshape(B, -1)


def insert_sentinels(
    tokens: np.ndarray, position_BK: np.ndarray, sentinel_BK: np.ndarray, eos: int
) -> np.ndarray:
    """Return int32 rows with sentinels at these positions, tokens at the others, and `eos` last.

    sentinel_BK: [B, K], or [K] for the same in all rows.
    """
    B, K = position_BK.shape
    out = np.full((B, len(tokens) // B + K + 1), eos, np.int32)
    free = np.ones(out.shape, bool)
    free[:, -1] = False
    free[np.arange(B)[:, None], position_BK] = False
    out[np.arange(B)[:, None], position_BK] = sentinel_BK
    out[free] = tokens
    return out


def count_noise(raw: int, noise_density: float, mean_span: float) -> tuple[int, int]:
    """Return (tokens removed, spans) of a text of `raw` tokens.

    Both are rounded to the nearest number. There is at least one of each, and at least one token
    stays.
    """
    noise = min(max(round(raw * noise_density), 1), raw - 1)
    return noise, max(round(noise / mean_span), 1)


@functools.cache
def find_lengths(inputs: int, noise_density: float, mean_span: float) -> tuple[int, int, int]:
    """Return the lengths of the longest text whose corrupted form has exactly `inputs` tokens.

    The corrupted form has the tokens that stay, a sentinel for each span, and </s>. It grows by 0
    or 1 with each raw token (because `mean_span` >= 1), so such a text always exists.

    Returns:
      (raw tokens, tokens removed, spans).

    Raises ValueError if it would have more than `MAX_TEXT_RATIO` tokens for each input.
    """
    if not (inputs >= 3 and 0 < noise_density < 1 and 1 <= mean_span):
        raise ValueError(
            f"span_corruption: inputs={inputs}, noise_density={noise_density}, "
            f"mean_span={mean_span}; "
            "allowed are inputs >= 3, 0 < noise_density < 1, mean_span >= 1"
        )

    def measure(raw: int) -> int:
        noise, spans = count_noise(raw, noise_density, mean_span)
        return raw - noise + spans + 1

    most = MAX_TEXT_RATIO * inputs
    raw = bisect.bisect_right(range(2, most + 1), inputs, key=measure) + 1
    if raw == most:
        raise ValueError(
            f"span_corruption: noise_density={noise_density}, mean_span={mean_span} leave so few "
            f"tokens that inputs={inputs} hold a text of more than {most:,}; lower noise_density"
        )
    return raw, *count_noise(raw, noise_density, mean_span)
