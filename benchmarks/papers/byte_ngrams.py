"""Byte n-gram models of orders 1 to N with interpolated modified Kneser-Ney smoothing.

Chen and Goodman 1998, section 3, of all orders at once:

    p(w | h) = max(0, c(hw) - D(c(hw))) / c(h.) + gamma(h) p(w | h')

c of the highest order are counts, of the lower orders the numbers of different bytes before
the n-gram; h' is h without its first byte, gamma(h) what the discounts leave. Below order 1 all
bytes have 1 / 256. A context that the text does not have leaves the lower order's probability.

An n-gram is the pair of its first n - 1 bytes, as a number, and its last byte; the numbers of one
order are made from the order before. Memory holds two orders, so that N may be 20.

T bytes of the training text   S bytes of the scored text   U different n-grams
"""

from typing import NamedTuple

import numpy as np

BYTES = 256


class Order(NamedTuple):
    """The n-grams of one order.

    Attributes:
      key_U: int64, (number of the first n - 1 bytes) * 256 + last byte, ascending: the n-gram at
        index u has the number u.
      number_T: int64, the number of the n-gram that begins at each byte of the training text.
      first_U: int64, where each n-gram begins first.
      count_U: int64, how often each occurs.
    """

    key_U: np.ndarray
    number_T: np.ndarray
    first_U: np.ndarray
    count_U: np.ndarray


def number_ngrams(shorter_T: np.ndarray, text_T: np.ndarray, n: int) -> Order:
    """Return the n-grams of a text.

    Args:
      shorter_T: the number of the n-gram of n - 1 bytes that begins at each byte.
      text_T: the bytes.
      n: the order.
    """
    key_T = shorter_T[: len(text_T) - n + 1] * BYTES + text_T[n - 1 :]
    return Order(*_select(np.unique(key_T, True, True, True)))


def _select(unique: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    key_U, first_U, number_T, count_U = unique
    return key_U, number_T.reshape(-1), first_U, count_U


def find_numbers(order: Order, shorter_S: np.ndarray, text_S: np.ndarray, n: int) -> np.ndarray:
    """Return the number of the n-gram at each byte of another text; -1: the model has none."""
    key_S = shorter_S[: len(text_S) - n + 1] * BYTES + text_S[n - 1 :]
    place_S = np.minimum(np.searchsorted(order.key_U, key_S), len(order.key_U) - 1)
    is_known_S = (order.key_U[place_S] == key_S) & (shorter_S[: len(key_S)] >= 0)
    return np.where(is_known_S, place_S, -1)


def choose_discounts(count_U: np.ndarray) -> np.ndarray:
    """Return D(0), D(1), D(2), D(3 and more) of Chen and Goodman's equation 26.

    A text so small that one of the counts of counts is 0 has D(1) for all of them, or 0.5.
    """
    n1, n2, n3, n4 = (int((count_U == count).sum()) for count in (1, 2, 3, 4))
    if not n1 or not n2:
        return np.array([0.0, 0.5, 0.5, 0.5])
    y = n1 / (n1 + 2 * n2)
    if not n3 or not n4:
        return np.array([0.0, y, y, y])
    found = np.array([0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    return np.clip(found, 0.0, [0, 1, 2, 3])


def smooth(
    order: Order,
    count_U: np.ndarray,
    number_S: np.ndarray,
    shorter_S: np.ndarray,
    lower_S: np.ndarray,
) -> np.ndarray:
    """Return the probabilities of one order.

    Args:
      order: the n-grams.
      count_U: c of each.
      number_S: the n-gram that ends with each scored byte, -1 for an unknown one.
      shorter_S: the number of its first n - 1 bytes.
      lower_S: the lower order's probability.
    """
    context_U = order.key_U // BYTES
    discount_U = choose_discounts(count_U)[np.minimum(count_U, 3)]
    total = np.bincount(context_U, count_U)
    left = np.bincount(context_U, discount_U)
    known_S = np.flatnonzero((shorter_S >= 0) & (shorter_S < len(total)))
    known_S = known_S[total[shorter_S[known_S]] > 0]
    own = np.append(count_U - discount_U, 0.0)[number_S[known_S]]  # -1 is the last, 0
    context = shorter_S[known_S]
    p_S = lower_S.copy()
    p_S[known_S] = (own + left[context] * lower_S[known_S]) / total[context]
    return p_S


def score_bytes(training: bytes, scored: bytes, max_order: int) -> np.ndarray:
    """Return the probability of each byte of `scored` by the model of each order, [N, S].

    A byte is predicted from those before it in `scored`, at most order - 1 of them.

    Raises:
      ValueError: the training text is shorter than the order, or a text is empty.
    """
    if len(training) <= max_order or not scored:
        raise ValueError(
            f"{len(training):,} bytes of training text and {len(scored):,} of scored text for "
            f"order {max_order}: the first must be more than the order, the second at least 1"
        )
    text_T, text_S = (np.frombuffer(text, np.uint8).astype(np.int64) for text in (training, scored))
    shorter_T, shorter_S = np.zeros_like(text_T), np.zeros_like(text_S)
    lower_S, found = np.full(len(text_S), 1 / BYTES), []
    order = number_ngrams(shorter_T, text_T, 1)
    for n in range(1, max_order + 1):
        number_S = find_numbers(order, shorter_S, text_S, n)
        ends = slice(n - 1, None)  # the bytes that have n - 1 before them
        now = (number_S, shorter_S[: len(number_S)])
        p_S = lower_S.copy()
        p_S[ends] = smooth(order, order.count_U, *now, lower_S[ends])
        found.append(p_S)
        if n == max_order:
            break
        longer = number_ngrams(order.number_T, text_T, n + 1)
        # An n-gram is what follows the first byte of each different (n + 1)-gram.
        before_U = np.bincount(order.number_T[longer.first_U + 1], minlength=len(order.key_U))
        lower_S = lower_S.copy()
        lower_S[ends] = smooth(order, before_U, *now, lower_S[ends])
        order, shorter_S = longer, number_S
    return np.stack(found)
