"""Metrics of tagging: tag accuracy, and precision, recall and F1 of entities (CoNLL 2003).

An entity is correct if its type and both its borders are (Tjong Kim Sang and De Meulder 2003);
counts are summed over all sentences (micro average). Words beyond the end of a row are predicted as
O, so their entities are missed.

N sentences   K columns of `losses.Loss.row_predictions`   S words   D documents
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from data.examples.tag_schemes import OUTSIDE, find_entities


def pair_tags(
    rows_NK: np.ndarray, config: Any, split: Any
) -> Iterator[tuple[list[str], list[Any]]]:
    """Yield the reference tags and the predicted tags of each sentence.

    A prediction is None for a word beyond the end of its row if the scheme has no tag O.

    Args:
      rows_NK: predicted tag numbers of each word, padded with -1; the last column is the weight.
    """
    first_word_D = np.searchsorted(split.sentence_starts, split.document_starts)
    unread = OUTSIDE if OUTSIDE in config.labels else None
    for row_K, start, end in zip(rows_NK, first_word_D[:-1], first_word_D[1:], strict=True):
        predicted = [config.labels[int(number)] for number in row_K[:-1] if number >= 0]
        right = [config.labels[int(number)] for number in split.tags[start:end]]
        yield right, predicted + [unread] * (len(right) - len(predicted))


def count_entities(rows_NK: np.ndarray, config: Any, split: Any) -> list[int]:
    """Return the numbers of reference entities, of predicted entities and of correct ones."""
    total = np.zeros(3, np.int64)
    for right_tags, predicted_tags in pair_tags(rows_NK, config, split):
        right, predicted = set(find_entities(right_tags)), set(find_entities(predicted_tags))
        total += len(right), len(predicted), len(right & predicted)
    return total.tolist()


def compute_rates(num_reference: int, num_predicted: int, num_correct: int) -> dict[str, float]:
    """Return precision, recall and F1; 0 if there is nothing to count."""
    return {
        "entity_precision": num_correct / max(num_predicted, 1),
        "entity_recall": num_correct / max(num_reference, 1),
        "entity_f1": 2 * num_correct / max(num_reference + num_predicted, 1),
    }


def compute_entity_metrics(rows_NK: np.ndarray, config: Any, split: Any) -> dict[str, float]:
    """Return the `compute_rates` of a split; task_metrics.py calls it."""
    return compute_rates(*count_entities(rows_NK, config, split))


def count_unread_words(rows_NK: np.ndarray, config: Any, split: Any) -> int:
    """Return the number of words beyond the end of their rows. It is not a score."""
    return len(split.tags) - int((rows_NK[:, :-1] >= 0).sum())


def compute_tag_accuracy(rows_NK: np.ndarray, config: Any, split: Any) -> float:
    """Return the share of words whose tag is correct."""
    hits = [
        right == predicted
        for right_tags, predicted_tags in pair_tags(rows_NK, config, split)
        for right, predicted in zip(right_tags, predicted_tags)
    ]
    return sum(hits) / len(hits)
