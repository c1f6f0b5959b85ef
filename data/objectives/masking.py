"""Choosing and hiding the words to predict: 15 % of them; 80 % as [MASK], 10 % as another word, 10 % as they are.

Devlin et al. (2018), section 3.1. Whole-word masking as in the later version of their code: words are taken in random
order while they fit the row's number of predictions, and each of a word's tokens draws its 80/10/10 by itself. N-grams
of words (Lan et al. 2020, section 4.1): a row's words fall into runs of 1 to N, and runs are taken as words are.

B rows   R of them   L row length   P masked positions of a row   M masked tokens of the batch   W its words   S words looked at together
"""

import numpy as np

from data.rows import hashing

BERTS = (
    0.8,
    0.1,
)  # shares of the chosen words that become [MASK], and another word; the rest stay as they are
UNUSED = np.uint32(0xFFFFFFFF)  # sorts behind every position
MASKABLE, STARTS_WORD, ENDS_WORD = (
    1,
    2,
    4,
)  # kinds of ids, in one table: a look-up costs more than a test of a bit
EDGES = 4  # so many comparisons of all ids cost less than a look-up


class Masker:
    """Masks rows of ids, in place. What it needs of the vocabulary it looks up once.

    ngram: with whole words, the most words that are masked in a row. shares: of them, those that become [MASK], and another word.
    """

    def __init__(self, objective, vocabulary, ngram=1, shares=BERTS):
        self.mask_rate, self.max_predictions = objective.mask_rate, objective.max_predictions
        self.mask, self.shares = vocabulary.mask, shares
        special = np.asarray(vocabulary.special)
        self.ordinary = np.flatnonzero(~special).astype(np.int32)
        self.whole_words, self.ngram = objective.whole_words, ngram
        ends_word = special & (np.arange(len(special)) != vocabulary.unk)
        starts_word = np.asarray(vocabulary.starts_word) | ends_word
        self.kinds = (
            MASKABLE * ~special + STARTS_WORD * starts_word + ENDS_WORD * ends_word
        ).astype(np.uint8)
        self.first_special, self.edges = (
            bool(special[0]),
            (np.flatnonzero(np.diff(special)) + 1).tolist(),
        )  # ids where special turns to ordinary, or back

    def __call__(self, tokens_BL, valid_BL, key_B):
        """Mask contiguous int32 ids in place and give {"masked_positions", "labels", "label_weights"}, [B, P] each, for data/batch_spec.py.

        A row of n tokens that are not special loses mask_rate * n of them, rounded, one at least and `max_predictions` at most;
        whole words that do not fit that number are left alone, so such a row can lose fewer, even none.
        """
        L = tokens_BL.shape[1]
        if self.whole_words or len(self.edges) > EDGES:
            kinds_BL = np.take(self.kinds, tokens_BL)
            candidate_BL = (kinds_BL & MASKABLE).view(np.bool_) & valid_BL
        else:
            candidate_BL = self.maskable(tokens_BL) & valid_BL
        number_B = self.number(count(candidate_BL))
        order_B, hide_B = hashing.key(key_B, np.array([[hashing.ORDER], [hashing.HIDE]]))
        order_BL = hashing.shuffled(order_B, L)
        if self.whole_words:
            chosen_BL = self.words(kinds_BL, candidate_BL, order_BL, number_B, key_B)
            number_B = count(chosen_BL)
        else:
            chosen_BL = self.first(candidate_BL, order_BL, number_B)
        place_M = np.flatnonzero(chosen_BL)
        used_BP = np.arange(self.max_predictions) < number_B[:, None]
        flat = tokens_BL.reshape(-1)  # a view, which takes half the time of np.put
        targets_M = flat[place_M]
        bits_BP = hashing.words(hide_B, self.max_predictions)
        flat[place_M] = self.hide(targets_M, bits_BP[used_BP])
        return {
            "masked_positions": filled(used_BP, place_M % L),
            "labels": filled(used_BP, targets_M),
            "label_weights": used_BP.astype(np.float32),
        }

    def maskable(self, tokens_BL):
        """bool [B, L]: the ids that are not special, by comparisons."""
        maskable_BL = np.full(tokens_BL.shape, not self.first_special)
        for edge in self.edges:
            maskable_BL ^= tokens_BL >= edge
        return maskable_BL

    def number(self, candidates_B):
        """How many tokens of each row to mask."""
        wanted_B = np.maximum(np.rint(candidates_B * self.mask_rate), 1).astype(np.int64)
        return np.minimum(np.minimum(wanted_B, self.max_predictions), candidates_B)

    def first(self, candidate_BL, order_BL, number_B):
        """bool [B, L]: the first `number_B` candidates of each row in the order given."""
        np.copyto(order_BL, UNUSED, where=~candidate_BL)
        p = self.max_predictions
        first_BP = np.partition(order_BL, p - 1, axis=1)[:, :p]
        if (number_B < p).any():  # else the one that counts is in its place
            first_BP.sort(axis=1)
        last_B = first_BP[np.arange(len(first_BP)), np.maximum(number_B, 1) - 1]
        return candidate_BL & (order_BL <= last_B[:, None])

    def words(self, kinds_BL, candidate_BL, order_BL, number_B, key_B):
        """bool [B, L]: the tokens of words, or n-grams, taken in the order of their first tokens, as long as they fit `number_B`.

        A word begins at a piece that begins one, at the row's first token, and behind a special token, because no row
        shows both sides of these. An unknown piece is part of its word, and that word is left alone.
        """
        begins_BL = (kinds_BL & STARTS_WORD) != 0
        begins_BL[:, 1:] |= (kinds_BL[:, :-1] & ENDS_WORD) != 0
        begins_BL[:, 0] = True
        begin_W = np.flatnonzero(begins_BL)
        if self.ngram > 1:
            begin_W = begin_W[starts_of_ngrams(begin_W, candidate_BL, key_B, self.ngram)]
        length_BL = np.zeros(begins_BL.shape, np.int32)
        length_BL.reshape(-1)[begin_W] = np.diff(begin_W, append=begins_BL.size) * complete(
            begin_W, candidate_BL
        )
        np.copyto(order_BL, UNUSED, where=length_BL == 0)
        order_BL.sort(axis=1)
        first_W = self.walk(order_BL, length_BL, number_B)
        length_W = np.take(length_BL, first_W)
        chosen_BL, end_W = np.zeros(begins_BL.shape, bool), np.cumsum(length_W)
        chosen_BL.reshape(-1)[
            np.repeat(first_W - (end_W - length_W), length_W) + np.arange(length_W.sum())
        ] = True
        return chosen_BL

    def walk(self, order_BL, length_BL, number_B):
        """The words taken: places of their first tokens [W], ascending. order_BL: the words in order, UNUSED behind them.

        Most rows are full after the first words, so a few columns are walked at a time, by the rows that have room.
        """
        mask = np.uint32(hashing.position_mask(order_BL.shape[1]))
        taken_BL, left_B, slab = (
            np.zeros(order_BL.shape, bool),
            number_B.copy(),
            2 * self.max_predictions,
        )
        for first in range(0, order_BL.shape[1], slab):
            row_R = np.flatnonzero((left_B > 0) & (order_BL[:, first] != UNUSED))
            if len(row_R) == 0:
                break
            order_RS = order_BL[row_R, first : first + slab]
            real_RS = order_RS != UNUSED
            column_RS = np.where(real_RS, order_RS & mask, 0)
            length_RS = length_BL[row_R[:, None], column_RS] * real_RS
            now_RS = fitting(length_RS, left_B[row_R])
            left_B[row_R] -= (length_RS * now_RS).sum(axis=1)
            row, rank = np.nonzero(now_RS)
            taken_BL[row_R[row], column_RS[row, rank]] = True
        return np.flatnonzero(taken_BL)

    def hide(self, targets_M, bits_M):
        """What stands in the targets' places: [MASK], a random ordinary id, or the target itself, in their shares."""
        low_M = bits_M & np.uint64(0xFFFFFFFF)  # the upper half draws the random id
        as_mask_M, as_either_M = (
            low_M < np.uint64(share * 2**32) for share in (self.shares[0], sum(self.shares))
        )
        hidden_M = targets_M ^ (
            (targets_M ^ np.int32(self.mask)) & -as_mask_M.astype(np.int32)
        )  # np.where's branches cost more
        random = np.flatnonzero(as_mask_M != as_either_M)  # few
        hidden_M[random] = self.ordinary[hashing.below(bits_M[random], len(self.ordinary))]
        return hidden_M


def count(chosen_BL):
    """How many of each row are True: int32 [B]."""
    return chosen_BL.view(np.int8).sum(axis=1, dtype=np.int32)


def complete(begin_W, candidate_BL):
    """bool [W]: the words all of whose tokens may be masked. begin_W: the place of each word's first token in the flattened rows."""
    complete_W = np.take(candidate_BL, begin_W)
    within_BL = (
        ~candidate_BL
    )  # tokens that spoil a word without being its first, of which there are few
    within_BL.reshape(-1)[begin_W] = False
    complete_W[np.searchsorted(begin_W, np.flatnonzero(within_BL)) - 1] = False
    return complete_W


def filled(used_BP, values_M):
    """int32 [B, P]: the values in the slots that are used, row by row, and 0 in the others."""
    values_BP = np.zeros(used_BP.shape, np.int32)
    values_BP[used_BP] = values_M
    return values_BP


def starts_of_ngrams(begin_W, candidate_BL, key_B, most):
    """bool [W]: the words that begin an n-gram, 1 <= n <= `most`, n having a chance in proportion to 1 / n.

    begin_W: the place of each word's first token in the flattened rows. A word that may not be masked stands alone, and so an n-gram
    that comes to it, or to its row's end, is shorter.
    """
    B, L = candidate_BL.shape
    row_W = begin_W // L
    place_W = (
        np.arange(len(begin_W)) - np.searchsorted(begin_W, np.arange(B) * L)[row_W]
    )  # of a word in its row
    width = int(place_W.max()) + 1
    chances = np.cumsum(1 / np.arange(1, most + 1))
    bits_BK = hashing.halfwords(hashing.key(key_B, hashing.GRAMS), width)
    n_BK = np.ones(bits_BK.shape, np.int32)
    for limit in np.ceil(chances[:-1] / chances[-1] * 2.0**32).astype(np.uint32):
        n_BK += bits_BK >= limit
    begin_BK = (
        np.cumsum(n_BK, axis=1) - n_BK
    )  # the place of each n-gram's first word, were there words without end
    starts_BK = np.zeros((B, width), bool)
    np.put(starts_BK, (begin_BK + np.arange(0, B * width, width)[:, None])[begin_BK < width], True)
    alone_W = ~complete(begin_W, candidate_BL)
    return starts_BK[row_W, place_W] | alone_W | np.append(True, alone_W[:-1])


def fitting(length_BW, number_B):
    """bool: walk each row of lengths from left to right and take what still fits `number_B` in total; 0 is no length.

    In step for all rows: take everything up to the first that no longer fits, then look only at those that fit what
    is left. A length that was too long once stays too long, so the result is that of the walk; it takes two or three
    rounds.
    """
    taken_BW, left_B = np.zeros(length_BW.shape, bool), number_B
    while True:
        length_BW = np.where(taken_BW | (length_BW > left_B[:, None]), 0, length_BW)
        if not length_BW.any():
            return taken_BW
        now_BW = (length_BW > 0) & (np.cumsum(length_BW, axis=1) <= left_B[:, None])
        taken_BW |= now_BW
        left_B = left_B - (length_BW * now_BW).sum(axis=1)


def check_masking(objective, vocabulary, body, roles=("cls", "sep", "mask", "pad")):
    """Raise a ValueError unless rows of `body` tokens can be masked as the settings say, with this vocabulary.

    roles: of the special tokens that a row is built with.
    """
    name = objective.name
    if not 0 < objective.mask_rate < 1:
        raise ValueError(
            f"{name}: mask_rate={objective.mask_rate}; the share of masked tokens lies between 0 and 1"
        )
    if objective.dupe_factor < 0:
        raise ValueError(
            f"{name}: dupe_factor={objective.dupe_factor}; allowed are 0 (a new mask every epoch) and more"
        )
    needed = max(int(np.rint(body * objective.mask_rate)), 1)
    if objective.max_predictions < needed:
        raise ValueError(
            f"{name}: max_predictions={objective.max_predictions} is fewer than the {needed} tokens that mask_rate={objective.mask_rate} "
            f"masks in a row of length={objective.length}; set max_predictions to {needed} or more, or lower mask_rate"
        )
    if objective.max_predictions > objective.length:
        raise ValueError(
            f"{name}: max_predictions={objective.max_predictions} is more than length={objective.length}"
        )
    needs(name, vocabulary, *roles)


def check_masked_pair(objective, vocabulary, shares):
    """Raise ValueError unless an objective of masked rows `[CLS] A [SEP] B [SEP]` makes sense; shares: its fields from 0 to 1."""
    if objective.length < 8:
        raise ValueError(
            f"{objective.name}: length={objective.length}; a row holds [CLS] A [SEP] B [SEP], so 8 at least"
        )
    for name in shares:
        if not 0 <= getattr(objective, name) <= 1:
            raise ValueError(
                f"{objective.name}: {name}={getattr(objective, name)}; a share of rows lies between 0 and 1"
            )
    check_masking(objective, vocabulary, objective.length - 3)


def needs(name, vocabulary, *specials):
    """Raise a ValueError that names what the vocabulary lacks of the special tokens an objective needs."""
    lacking = [special for special in specials if getattr(vocabulary, special) is None]
    if lacking:
        raise ValueError(
            f"{name} needs the special token(s) {', '.join(lacking)}, which the store's vocabulary ({vocabulary.kind}, "
            f"{vocabulary.size} ids) does not have; prepare the store with another vocabulary (see prepare --help) "
            "or choose another objective"
        )
