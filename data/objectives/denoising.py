"""Denoising: read a text with shuffled sentences and masked spans, write the original text.

Lewis et al. (2020), section 2.2.

B rows   L input length   T target length   N tokens of text in a row   S spans drawn
G = N + 1 gaps between the tokens that stay
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import SEQ2SEQ, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows import hashing
from data.rows.tables import Batch, DocumentRows, TokenReader, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class Denoising(Objective):
    """Rows `<s> text </s>` of one document: sentence permutation, then text infilling.

    The noise of the paper's largest models: a span's length is drawn from a Poisson distribution,
    and each span becomes one mask, even an empty one.
    """

    name: ClassVar[str] = "denoising"
    description: ClassVar[str] = (
        "the text, from one whose sentences were shuffled and whose spans were masked "
        "({noise_density:.0%} of the tokens, rows of {length})"
    )
    checks: ClassVar[str] = "damages:check_denoising"
    rendering: ClassVar[str] = "rendering:render_unpadded_row"
    length: int = 512  # L and T: tokens of a row, special tokens included
    noise_density: float = 0.3  # share of the tokens that are masked
    mean_span: float = 3.0  # average tokens of a span, the paper's lambda
    shuffled: bool = True  # shuffle the sentences; false: text infilling alone

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the input length, "T": the target length}."""
        return {"L": self.length, "T": self.length}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return SEQ2SEQ

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 3:
            raise ValueError(
                f"denoising: length={self.length}; "
                "a row holds <s>, text and </s>, so at least 3 tokens"
            )
        # Below the least span, and above the largest density, there are more spans than gaps.
        if not (0 < self.noise_density <= 0.5 and 1 <= self.mean_span <= self.length):
            raise ValueError(
                f"denoising: noise_density={self.noise_density}, mean_span={self.mean_span}; "
                "allowed are 0 < noise_density <= 0.5 and mean_span >= 1, at most "
                f"length={self.length}"
            )
        check_special_tokens(self.name, vocabulary, "bos", "eos", "mask", "pad")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[DocumentRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; keys draw the noise."""
        read, N = TokenReader(split.tokens, vocabulary.size), self.length - 2
        table, sentence_starts = DocumentRows(split, N), np.asarray(split.sentence_starts)
        bos, eos, mask, pad = (
            require_id(getattr(vocabulary, role)) for role in ("bos", "eos", "mask", "pad")
        )
        cdf = compute_poisson_cdf(self.mean_span)
        # With a mean span of 1, this number is too small for one row in e^16.
        draws = 2 * round(self.noise_density * N) + 16

        def frame_rows(text_BN: np.ndarray, length_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return (ids, mask) [B, N + 2] of `<s> text </s>`."""
            ids_BL = np.full((len(text_BN), N + 2), pad, np.int32)
            ids_BL[:, 1:-1] = text_BN
            ids_BL[:, 0] = bos
            mask_BL = np.arange(N + 2) < length_B[:, None] + 2
            ids_BL[~mask_BL] = pad
            ids_BL[np.arange(len(ids_BL)), length_B + 1] = eos
            return ids_BL, mask_BL

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            start_B, length_B = table.locate_spans(row_B)
            index_BN = start_B[:, None] + np.arange(N)
            text_BN = read(index_BN)
            label_BT, label_mask_BT = frame_rows(text_BN, length_B)
            if self.shuffled:
                sentence_BN = np.searchsorted(sentence_starts, index_BN, side="right")
                sentence_key_B = hashing.derive_keys(key_B, hashing.SENTENCES)
                text_BN = permute_sentences(text_BN, sentence_BN, length_B, sentence_key_B)
            number_B = np.rint(self.noise_density * length_B).astype(np.int64)
            spans_BS, used_BS = draw_spans(
                hashing.derive_keys(key_B, hashing.REMOVED_LENGTHS), number_B, cdf, draws
            )
            gap_key_B = hashing.derive_keys(key_B, hashing.UNMASKED_LENGTHS)
            input_BL, input_mask_BL = frame_rows(
                *infill_text(text_BN, length_B, spans_BS, used_BS, gap_key_B, mask)
            )
            return {
                "encoder_token_ids": input_BL,
                "encoder_attention_mask": input_mask_BL,
                "labels": label_BT,
                "label_weights": label_mask_BT.astype(np.float32),
            }

        return table, build_batch


def compute_poisson_cdf(mean: float) -> np.ndarray:
    """Return P(length <= k) for k = 0, 1, ...: float64, up to where nothing remains."""
    most = math.ceil(mean + 12 * math.sqrt(mean) + 12)
    return np.cumsum(
        [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most)]
    )


def permute_sentences(
    text_BN: np.ndarray, sentence_BN: np.ndarray, length_B: np.ndarray, key_B: np.ndarray
) -> np.ndarray:
    """Return the first length_B tokens of each row with their sentences in random order.

    All orders are equally likely. A sentence that a row cuts counts as two.

    sentence_BN: a number for each token, the same throughout its sentence.
    """
    order_BN = hashing.derive_keys(key_B[:, None], sentence_BN)
    order_BN[np.arange(text_BN.shape[1]) >= length_B[:, None]] = np.iinfo(np.uint64).max
    return np.take_along_axis(text_BN, np.argsort(order_BN, axis=1, kind="stable"), axis=1)


def draw_spans(
    key_B: np.ndarray, number_B: np.ndarray, cdf: np.ndarray, num_draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the lengths of spans, one after the other, until they hide number_B tokens.

    The last span is cut to that number. Empty spans that would make a row longer than its text are
    left out, so there are at most number_B spans.

    Args:
      key_B: uint64 keys of the draws.
      number_B: number of tokens to hide in each row.
      cdf: cumulative distribution of the lengths.
      num_draws: S, the largest number of spans of a row.

    Returns:
      spans_BS: int64 [B, S], lengths; 0 where unused.
      used_BS: bool [B, S], which of them count.
    """
    spans_BS = np.searchsorted(cdf, hashing.draw_uniforms(key_B, num_draws), side="right").astype(
        np.int64
    )
    before_BS = np.cumsum(spans_BS, axis=1) - spans_BS
    used_BS = before_BS < number_B[:, None]
    spans_BS = np.where(used_BS, np.minimum(spans_BS, number_B[:, None] - before_BS), 0)
    surplus_B = used_BS.sum(axis=1) - spans_BS.sum(axis=1)
    empty_BS = used_BS & (spans_BS == 0)
    return spans_BS, used_BS & ~(empty_BS & (np.cumsum(empty_BS, axis=1) <= surplus_B[:, None]))


def infill_text(
    text_BN: np.ndarray,
    length_B: np.ndarray,
    spans_BS: np.ndarray,
    used_BS: np.ndarray,
    key_B: np.ndarray,
    mask: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Replace each span by one mask; return the texts [B, N] and their lengths [B].

    The spans are placed in random gaps between the remaining tokens, at most one in a gap.
    """
    B, N = text_BN.shape
    stay_B, number_B = length_B - spans_BS.sum(axis=1), used_BS.sum(axis=1)
    gap_BG = hashing.shuffle_columns(key_B, N + 1)
    gap_BG[np.arange(N + 1) > stay_B[:, None]] = np.iinfo(np.uint32).max
    order_BG = np.argsort(gap_BG, axis=1, kind="stable")
    row, _ = np.nonzero(used_BS)
    gap = order_BG[np.arange(N + 1) < number_B[:, None]]
    hidden_BG, masks_BG = np.zeros((B, N + 1), np.int64), np.zeros((B, N + 1), np.int64)
    hidden_BG[row, gap] = spans_BS[used_BS]
    masks_BG[row, gap] = 1
    # Hidden tokens, and masks, up to each gap.
    hidden_BG, num_masks_BG = np.cumsum(hidden_BG, axis=1), np.cumsum(masks_BG, axis=1)
    out_BN = np.empty((B, N), text_BN.dtype)
    # Token `stay` of those that stay comes after gaps 0 to `stay` and `stay` other tokens.
    row, stay = np.nonzero(np.arange(N) < stay_B[:, None])
    out_BN[row, stay + num_masks_BG[row, stay]] = text_BN[row, stay + hidden_BG[row, stay]]
    row, gap = np.nonzero(masks_BG)
    out_BN[row, gap + num_masks_BG[row, gap] - 1] = mask
    return out_BN, stay_B + num_masks_BG[:, -1]
