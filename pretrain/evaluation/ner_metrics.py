"""How well tagged sentences are told: each word's tag, and entities by their type and both their borders (Tjong Kim Sang and De Meulder 2003).

An entity counts as found only where all of it is; counts are summed over all sentences (micro). Words whose first piece is in no row, of
sentences that are longer than one, count as told O: their entities are missed.

N sentences   K columns of `losses.Loss.row_predictions`   S words
"""

import numpy as np

from data.examples.tag_schemes import OUTSIDE, entities


def sentences(rows_NK, config, split):
    """(right, told) of each sentence: the names of its words' tags; None is told where a plain tag stands in no row."""
    word_D = np.searchsorted(split.sentence_starts, split.document_starts)
    unread = OUTSIDE if OUTSIDE in config.labels else None
    for row_K, lo, hi in zip(rows_NK, word_D[:-1], word_D[1:], strict=True):
        told = [config.labels[int(number)] for number in row_K[:-1] if number >= 0]
        right = [config.labels[int(number)] for number in split.tags[lo:hi]]
        yield right, told + [unread] * (len(right) - len(told))


def counts(rows_NK, config, split):
    """How many entities there are, are told, and are both."""
    total = np.zeros(3, np.int64)
    for right, told in sentences(rows_NK, config, split):
        there, said = set(entities(right)), set(entities(told))
        total += len(there), len(said), len(there & said)
    return total.tolist()


def rates(there, said, both):
    """Precision, recall and their harmonic mean, of how many entities are there, are told, and are both; 0 where there are none to count."""
    return {
        "entity_precision": both / max(said, 1),
        "entity_recall": both / max(there, 1),
        "entity_f1": 2 * both / max(there + said, 1),
    }


def scores(rows_NK, config, split):
    """The `rates` of a part of a store; as pretrain/evaluation/task_metrics.py calls it."""
    return rates(*counts(rows_NK, config, split))


def unread(rows_NK, config, split):
    """How many words' tags stand in no row: no score, but what the others were computed with."""
    return len(split.tags) - int((rows_NK[:, :-1] >= 0).sum())


def accuracy(rows_NK, config, split):
    """The share of the words whose tag is told."""
    hits = [
        one == other
        for right, told in sentences(rows_NK, config, split)
        for one, other in zip(right, told)
    ]
    return sum(hits) / len(hits)
