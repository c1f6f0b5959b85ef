"""Denoising: read a text whose sentences were shuffled and whose spans were hidden, write the text (Lewis et al. 2020, section 2.2).

B rows   N tokens of text in a row   S spans drawn   G = N + 1 gaps between the tokens that stay
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import SEQ2SEQ
from data.inspection.damages import damages
from data.inspection.rendering import part_row
from data.objectives.base import Objective
from data.objectives.masking import needs
from data.rows import hashing
from data.rows.tables import DocumentRows, TokenReader


@dataclass(frozen=True)
class Denoising(Objective):
    """Rows `<s> text </s>` of one document: sentence permutation, then text infilling, as in the paper's largest models.

    A span's length is drawn from a Poisson distribution; each span becomes one mask, so a mask may stand for many tokens, or for none.
    """

    name: ClassVar[str] = "denoising"
    description: ClassVar[str] = (
        "the text, from one whose sentences were shuffled and whose spans were hidden ({noise_density:.0%} of the tokens, rows of {length})"
    )
    length: int = 512  # L and T: tokens of a row, <s> and </s> included
    noise_density: float = 0.3  # share of the tokens that are hidden
    mean_span: float = 3.0  # the paper's lambda
    shuffled: bool = True  # the sentences; without, text infilling alone

    def dims(self):
        return {"L": self.length, "T": self.length}

    def spec(self):
        return SEQ2SEQ

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.length < 3:
            raise ValueError(
                f"denoising: length={self.length}; a row holds <s>, text and </s>, so 3 at least"
            )
        if not (
            0 < self.noise_density <= 0.5 and self.mean_span >= 1
        ):  # else there are more spans than gaps for them
            raise ValueError(
                f"denoising: noise_density={self.noise_density}, mean_span={self.mean_span}; allowed are 0 < noise_density <= 0.5 and mean_span >= 1"
            )
        needs(self.name, vocabulary, "bos", "eos", "mask", "pad")

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, corrupted as the keys say."""
        read, N = TokenReader(split.tokens, vocabulary.size), self.length - 2
        table, sentence_starts = DocumentRows(split, N), np.asarray(split.sentence_starts)
        cdf, draws = (
            poisson(self.mean_span),
            2 * round(self.noise_density * N) + 16,
        )  # with a mean of 1 these do, but for one row in e^16

        def row(text_BN, length_B):
            """(ids, bool) [B, N + 2] of `<s> text </s>`."""
            ids_BL = np.full((len(text_BN), N + 2), vocabulary.pad, np.int32)
            ids_BL[:, 1:-1] = text_BN
            ids_BL[:, 0] = vocabulary.bos
            valid_BL = np.arange(N + 2) < length_B[:, None] + 2
            ids_BL[~valid_BL] = vocabulary.pad
            ids_BL[np.arange(len(ids_BL)), length_B + 1] = vocabulary.eos
            return ids_BL, valid_BL

        def build(row_B, key_B):
            start_B, length_B = table.spans(row_B)
            index_BN = start_B[:, None] + np.arange(N)
            text_BN = read(index_BN)
            targets_BT, written_BT = row(text_BN, length_B)
            if self.shuffled:
                sentence_BN = np.searchsorted(sentence_starts, index_BN, side="right")
                text_BN = permute(
                    text_BN, sentence_BN, length_B, hashing.key(key_B, hashing.SENTENCES)
                )
            number_B = np.rint(self.noise_density * length_B).astype(np.int64)
            spans_BS, used_BS = draw_spans(hashing.key(key_B, hashing.GONE), number_B, cdf, draws)
            inputs_BL, read_BL = row(
                *infill(
                    text_BN,
                    length_B,
                    spans_BS,
                    used_BS,
                    hashing.key(key_B, hashing.KEPT),
                    vocabulary.mask,
                )
            )
            return {
                "encoder_token_ids": inputs_BL,
                "encoder_attention_mask": read_BL,
                "labels": targets_BT,
                "label_weights": written_BT.astype(np.float32),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return damages(stream, seen, token_id)

    def render(self, stream, seen, i):
        return part_row(stream, seen, i)


def poisson(mean):
    """P(length <= k) for k = 0, 1, ...: float64, up to where nothing is left."""
    most = math.ceil(mean + 12 * math.sqrt(mean) + 12)
    return np.cumsum(
        [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most)]
    )


def permute(text_BN, sentence_BN, length_B, key_B):
    """The first length_B tokens of each row with their sentences in random order, each order alike likely.

    sentence_BN: a number for each token, the same throughout its sentence. A sentence that a row cuts is as two.
    """
    place_BN = hashing.key(key_B[:, None], sentence_BN)
    place_BN[np.arange(text_BN.shape[1]) >= length_B[:, None]] = np.iinfo(np.uint64).max
    return np.take_along_axis(text_BN, np.argsort(place_BN, axis=1, kind="stable"), axis=1)


def draw_spans(key_B, number_B, cdf, draws):
    """(lengths of spans, which count) [B, S]: drawn one after the other until they hide number_B tokens; the last is cut to that.

    Spans of no token that would make a row longer than it was are left out, so there are at most number_B spans.
    """
    spans_BS = np.searchsorted(cdf, hashing.fractions(key_B, draws), side="right").astype(np.int64)
    before_BS = np.cumsum(spans_BS, axis=1) - spans_BS
    used_BS = before_BS < number_B[:, None]
    spans_BS = np.where(used_BS, np.minimum(spans_BS, number_B[:, None] - before_BS), 0)
    surplus_B = used_BS.sum(axis=1) - spans_BS.sum(axis=1)
    empty_BS = used_BS & (spans_BS == 0)
    return spans_BS, used_BS & ~(empty_BS & (np.cumsum(empty_BS, axis=1) <= surplus_B[:, None]))


def infill(text_BN, length_B, spans_BS, used_BS, key_B, mask):
    """(text with a mask in the place of each span [B, N], its length [B]): spans lie in random gaps of what stays, one a gap at most."""
    B, N = text_BN.shape
    stay_B, number_B = length_B - spans_BS.sum(axis=1), used_BS.sum(axis=1)
    gap_BG = hashing.shuffled(key_B, N + 1)
    gap_BG[np.arange(N + 1) > stay_B[:, None]] = np.iinfo(np.uint32).max
    order_BG = np.argsort(gap_BG, axis=1, kind="stable")
    row, _ = np.nonzero(used_BS)
    chosen = order_BG[np.arange(N + 1) < number_B[:, None]]
    hidden_BG, masks_BG = np.zeros((B, N + 1), np.int64), np.zeros((B, N + 1), np.int64)
    hidden_BG[row, chosen] = spans_BS[used_BS]
    masks_BG[row, chosen] = 1
    hidden_BG, behind_BG = np.cumsum(hidden_BG, axis=1), np.cumsum(masks_BG, axis=1)
    out_BN = np.empty((B, N), text_BN.dtype)
    row, kept = np.nonzero(
        np.arange(N) < stay_B[:, None]
    )  # the kept-th token that stays has those gaps and itself in front
    out_BN[row, kept + behind_BG[row, kept]] = text_BN[row, kept + hidden_BG[row, kept]]
    row, gap = np.nonzero(masks_BG)
    out_BN[row, gap + behind_BG[row, gap] - 1] = mask
    return out_BN, stay_B + behind_BG[:, -1]
