"""Choice and replacement of masked tokens (Devlin et al. 2018, section 3.1).

15 % of the tokens are predicted: 80 % of these become [MASK], 10 % another token, 10 % stay.

Whole-word masking follows the later version of their code: words are taken in random order while
they fit the row's number of predictions, and each token of a word draws its own replacement. N-gram
masking (Lan et al. 2020, section 4.1) cuts a row's words into runs of 1 to N words and takes runs
instead of words.

B rows   R some of them   L row length   P masked positions of a row   M masked tokens of the batch
W words of the batch   S words looked at together   K words of the longest row
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from data.rows import hashing
from data.rows.tables import Batch
from data.vocabulary.base import Vocabulary

if TYPE_CHECKING:
    from data.rows.word_finder import WordFinder

# Shares of the chosen tokens that become [MASK], and another token; the rest stay as they are.
REPLACEMENT_SHARES = (0.8, 0.1)
UNUSED = np.uint32(0xFFFFFFFF)  # sorts after every position
# Kinds of ids, as bits of one table.
MASKABLE, STARTS_WORD, ENDS_WORD = 1, 2, 4


class Masker:
    """Masks rows of ids in place. The constructor does all look-ups in the vocabulary."""

    def __init__(
        self,
        objective: Any,
        vocabulary: Vocabulary,
        ngram: int = 1,
        shares: tuple[float, float] = REPLACEMENT_SHARES,
    ) -> None:
        """Prepare to mask rows.

        Args:
          objective: has `mask_rate`, `max_predictions` and `whole_words`; with whole words, it is
            a `WholeWords`.
          ngram: with whole words, the largest number of words that are masked as one run.
          shares: shares of the chosen tokens that become [MASK], and another token.
        """
        self.mask_rate, self.max_predictions = objective.mask_rate, objective.max_predictions
        self.mask_id, self.shares = vocabulary.mask, shares
        special = np.asarray(vocabulary.special)
        self.ordinary_ids = np.flatnonzero(~special).astype(np.int32)
        self.words = objective.find_words(vocabulary) if objective.whole_words else None
        self.ngram = ngram
        self.kind_of_id = (MASKABLE * ~special).astype(np.uint8)
        if self.words:
            self.kind_of_id |= (
                STARTS_WORD * self.words.starts_N + ENDS_WORD * self.words.ends_N
            ).astype(np.uint8)

    def __call__(
        self,
        tokens_BL: np.ndarray,
        mask_BL: np.ndarray,
        key_B: np.ndarray,
        rate_B: np.ndarray | None = None,
    ) -> Batch:
        """Mask contiguous int32 ids in place and return the labels.

        A row of n tokens that are not special loses mask_rate * n of them, rounded, at least one
        and at most `max_predictions`. Whole words that do not fit this number are not masked, so a
        row can lose fewer tokens, or none. `rate_B` are rates instead of `mask_rate`.

        Returns:
          {"masked_positions", "labels", "label_weights"}, [B, P] each, as data/batch_spec.py says.
        """
        L = tokens_BL.shape[1]
        kinds_BL = np.take(self.kind_of_id, tokens_BL)
        candidate_BL = ((kinds_BL & MASKABLE) != 0) & mask_BL
        rate_B = np.array(self.mask_rate) if rate_B is None else rate_B
        number_B = self.count_masks(count_true(candidate_BL), rate_B)
        order_B, hide_B = hashing.derive_keys(key_B, np.array([[hashing.ORDER], [hashing.HIDE]]))
        order_BL = hashing.shuffle_columns(order_B, L)
        if self.words:
            masked_BL = self.choose_words(
                self.words, kinds_BL, candidate_BL, order_BL, number_B, key_B
            )
            number_B = count_true(masked_BL)
        else:
            masked_BL = self.choose_tokens(candidate_BL, order_BL, number_B)
        position_M = np.flatnonzero(masked_BL)
        used_BP = np.arange(self.max_predictions) < number_B[:, None]
        flat = tokens_BL.reshape(-1)  # a view, which takes half the time of np.put
        targets_M = flat[position_M]
        bits_BP = hashing.draw_uint64(hide_B, self.max_predictions)
        flat[position_M] = self.replace_tokens(targets_M, bits_BP[used_BP])
        return {
            "masked_positions": fill_slots(used_BP, position_M % L),
            "labels": fill_slots(used_BP, targets_M),
            "label_weights": used_BP.astype(np.float32),
        }

    def count_masks(self, candidates_B: np.ndarray, rate_B: np.ndarray) -> np.ndarray:
        """Return how many tokens of each row to mask: [B]."""
        wanted_B = np.maximum(np.rint(candidates_B * rate_B), 1).astype(np.int64)
        return np.minimum(np.minimum(wanted_B, self.max_predictions), candidates_B)

    def choose_tokens(
        self, candidate_BL: np.ndarray, order_BL: np.ndarray, number_B: np.ndarray
    ) -> np.ndarray:
        """Return the first `number_B` candidates of each row in the given order: bool [B, L]."""
        np.copyto(order_BL, UNUSED, where=~candidate_BL)
        p = self.max_predictions
        first_BP = np.partition(order_BL, p - 1, axis=1)[:, :p]
        if (number_B < p).any():  # otherwise the partition has put entry p - 1 in its place
            first_BP.sort(axis=1)
        last_B = first_BP[np.arange(len(first_BP)), np.maximum(number_B, 1) - 1]
        return candidate_BL & (order_BL <= last_B[:, None])

    def choose_words(
        self,
        words: "WordFinder",
        kinds_BL: np.ndarray,
        candidate_BL: np.ndarray,
        order_BL: np.ndarray,
        number_B: np.ndarray,
        key_B: np.ndarray,
    ) -> np.ndarray:
        """Return the tokens of the words, or n-grams, to mask: bool [B, L].

        They are taken in the order of their first tokens, as long as they fit `number_B`. A word
        begins at a piece that begins one, at the row's first token, after a special token, because
        no row shows both sides of these, and after a piece of a script without blanks. An unknown
        piece is part of its word, and that word is left alone.
        """
        begins_BL = words.mark_starts(
            (kinds_BL & STARTS_WORD) != 0, (kinds_BL & ENDS_WORD) != 0, key_B
        )
        begin_W = np.flatnonzero(begins_BL)
        if self.ngram > 1:
            begin_W = begin_W[find_ngram_starts(begin_W, candidate_BL, key_B, self.ngram)]
        length_BL = np.zeros(begins_BL.shape, np.int32)
        length_BL.reshape(-1)[begin_W] = np.diff(
            begin_W, append=begins_BL.size
        ) * find_complete_words(begin_W, candidate_BL)
        np.copyto(order_BL, UNUSED, where=length_BL == 0)
        order_BL.sort(axis=1)
        first_W = self.take_words(order_BL, length_BL, number_B)
        length_W = np.take(length_BL, first_W)
        masked_BL, end_W = np.zeros(begins_BL.shape, bool), np.cumsum(length_W)
        masked_BL.reshape(-1)[
            np.repeat(first_W - (end_W - length_W), length_W) + np.arange(length_W.sum())
        ] = True
        return masked_BL

    def take_words(
        self, order_BL: np.ndarray, length_BL: np.ndarray, number_B: np.ndarray
    ) -> np.ndarray:
        """Return the positions of the first tokens of the words to mask, ascending: [W].

        Most rows are full after the first words, so this looks at a few columns at a time, for the
        rows that have room.

        Args:
          order_BL: the words of each row in random order, then UNUSED.
          length_BL: the length of each word at its first token, else 0.
          number_B: how many tokens of each row to mask at most.
        """
        mask = np.uint32(hashing.make_position_mask(order_BL.shape[1]))
        taken_BL, room_B = np.zeros(order_BL.shape, bool), number_B.copy()
        slab = 2 * self.max_predictions
        for first in range(0, order_BL.shape[1], slab):
            row_R = np.flatnonzero((room_B > 0) & (order_BL[:, first] != UNUSED))
            if len(row_R) == 0:
                break
            order_RS = order_BL[row_R, first : first + slab]
            real_RS = order_RS != UNUSED
            column_RS = np.where(real_RS, order_RS & mask, 0)
            length_RS = length_BL[row_R[:, None], column_RS] * real_RS
            now_RS = take_fitting(length_RS, room_B[row_R])
            room_B[row_R] -= (length_RS * now_RS).sum(axis=1)
            row, rank = np.nonzero(now_RS)
            taken_BL[row_R[row], column_RS[row, rank]] = True
        return np.flatnonzero(taken_BL)

    def replace_tokens(self, targets_M: np.ndarray, bits_M: np.ndarray) -> np.ndarray:
        """Return the ids that replace the targets: [MASK], a random id, or the target, [M]."""
        assert self.mask_id is not None  # `check_masking` refuses other vocabularies
        # The lower half of the bits draws the kind of replacement, the upper half the random id.
        low_M, (as_mask, as_other) = bits_M & np.uint64(0xFFFFFFFF), self.shares
        random_M = self.ordinary_ids[hashing.bits_to_ints(bits_M, len(self.ordinary_ids))]
        other_M = np.where(low_M < np.uint64((as_mask + as_other) * 2**32), random_M, targets_M)
        return np.where(low_M < np.uint64(as_mask * 2**32), np.int32(self.mask_id), other_M)


def count_true(mask_BL: np.ndarray) -> np.ndarray:
    """Return the number of True values of each row: int32 [B]."""
    return mask_BL.view(np.int8).sum(axis=1, dtype=np.int32)


def find_complete_words(begin_W: np.ndarray, candidate_BL: np.ndarray) -> np.ndarray:
    """Return the words all of whose tokens may be masked: bool [W].

    begin_W: the position of each word's first token in the flattened rows.
    """
    complete_W = np.take(candidate_BL, begin_W)
    # Tokens after the first that exclude their word; there are few.
    within_BL = ~candidate_BL
    within_BL.reshape(-1)[begin_W] = False
    complete_W[np.searchsorted(begin_W, np.flatnonzero(within_BL)) - 1] = False
    return complete_W


def fill_slots(used_BP: np.ndarray, values_M: np.ndarray) -> np.ndarray:
    """Return the values in the used slots, row by row, and 0 in the others: int32 [B, P]."""
    values_BP = np.zeros(used_BP.shape, np.int32)
    values_BP[used_BP] = values_M
    return values_BP


def find_ngram_starts(
    begin_W: np.ndarray, candidate_BL: np.ndarray, key_B: np.ndarray, max_ngram: int
) -> np.ndarray:
    """Return the words that begin an n-gram, 1 <= n <= `max_ngram`: bool [W].

    The probability of n is proportional to 1 / n. A word that may not be masked is an n-gram of its
    own, so an n-gram that reaches such a word, or the end of its row, is shorter.

    begin_W: the position of each word's first token in the flattened rows.
    """
    B, L = candidate_BL.shape
    row_W = begin_W // L
    # The number of each word in its row.
    number_W = np.arange(len(begin_W)) - np.searchsorted(begin_W, np.arange(B) * L)[row_W]
    width = int(number_W.max()) + 1
    cdf = np.cumsum(1 / np.arange(1, max_ngram + 1))
    bits_BK = hashing.draw_uint32(hashing.derive_keys(key_B, hashing.NGRAMS), width)
    n_BK = np.ones(bits_BK.shape, np.int32)
    for limit in np.ceil(cdf[:-1] / cdf[-1] * 2.0**32).astype(np.uint32):
        n_BK += bits_BK >= limit
    # The first word of each n-gram, if the row had words without end.
    begin_BK = np.cumsum(n_BK, axis=1) - n_BK
    starts_BK = np.zeros((B, width), bool)
    np.put(starts_BK, (begin_BK + np.arange(0, B * width, width)[:, None])[begin_BK < width], True)
    alone_W = ~find_complete_words(begin_W, candidate_BL)
    return starts_BK[row_W, number_W] | alone_W | np.append(True, alone_W[:-1])


def take_fitting(length_BW: np.ndarray, number_B: np.ndarray) -> np.ndarray:
    """Return the words that a greedy scan takes while their lengths fit `number_B`: bool [B, W].

    Length 0 means no word. All rows are scanned together: a round takes everything up to the first
    length that does not fit, and the next round considers only lengths that fit the rest. A length
    that was too long once stays too long, so a sequential scan from left to right gives the
    same result. It takes two or three rounds.
    """
    taken_BW, room_B = np.zeros(length_BW.shape, bool), number_B
    while True:
        length_BW = np.where(taken_BW | (length_BW > room_B[:, None]), 0, length_BW)
        if not length_BW.any():
            return taken_BW
        now_BW = (length_BW > 0) & (np.cumsum(length_BW, axis=1) <= room_B[:, None])
        taken_BW |= now_BW
        room_B = room_B - (length_BW * now_BW).sum(axis=1)
