"""Collators of spans and sentence pairs that work example by example, for `collate`.

They are written from the published descriptions. transformers has removed both: its script that
pretrained T5 in Flax together with Flax, its data set of sentence pairs in version 5.

Axes: B rows, R raw tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence

import numpy as np


class SpanCollator:
    """Span corruption (Raffel et al. 2019, section 3.1.4) as in that script's collator.

    Each example gets its own mask; the rest is computed on the batch.
    """

    def __init__(
        self, noise: int, spans: int, size: int, eos: int, pad: int, rng: np.random.Generator
    ) -> None:
        """Set the number of noise tokens and spans of a row, and the vocabulary's size and ids."""
        self.noise, self.spans, self.size, self.eos, self.pad, self.rng = (
            noise,
            spans,
            size,
            eos,
            pad,
            rng,
        )

    def __call__(self, examples: Sequence[Mapping[str, list[int]]]) -> dict[str, np.ndarray]:
        """Return input_ids, labels and decoder_input_ids, int64 [B, ...]."""
        ids_BR = np.array([example["input_ids"] for example in examples])
        noise_BR = np.array([self.draw_noise_mask(ids_BR.shape[1]) for _ in examples])
        labels = self.replace_spans(ids_BR, self.make_sentinels(~noise_BR))
        start_ids = np.full((len(labels), 1), self.pad)
        decoder = np.concatenate([start_ids, labels[:, :-1]], axis=1)
        return {
            "input_ids": self.replace_spans(ids_BR, self.make_sentinels(noise_BR)),
            "labels": labels,
            "decoder_input_ids": decoder,
        }

    def draw_noise_mask(self, length: int) -> np.ndarray:
        """Return a noise mask, bool [R], in which unmasked and masked stretches alternate.

        All lengths of at least 1 with the right sums are equally probable.
        """
        stretches = np.stack(
            [self.draw_partition(length - self.noise), self.draw_partition(self.noise)], axis=1
        ).reshape(-1)
        first_of_stretch = np.zeros(length, np.int8)
        first_of_stretch[np.cumsum(stretches)[:-1]] = 1
        return np.cumsum(first_of_stretch) % 2 == 1

    def draw_partition(self, total: int) -> np.ndarray:
        """Return the sizes of a random partition of `total` items into `spans` parts."""
        begins_part = np.arange(total - 1) < self.spans - 1
        self.rng.shuffle(begins_part)
        return np.bincount(np.cumsum(np.append(False, begins_part)), minlength=self.spans)

    def make_sentinels(self, mask_BR: np.ndarray) -> np.ndarray:
        """Return the replacements of masked tokens [B, R].

        A span's sentinel for its first token, -1 for the others, 0 for unmasked tokens.
        """
        before_BR = np.concatenate([np.zeros((len(mask_BR), 1), bool), mask_BR[:, :-1]], axis=1)
        first_BR = mask_BR & ~before_BR
        return np.where(
            first_BR, self.size - np.cumsum(first_BR, axis=1), -mask_BR.astype(np.int64)
        )

    def replace_spans(self, ids_BR: np.ndarray, sentinels_BR: np.ndarray) -> np.ndarray:
        """Return the ids with each span replaced by its sentinel, and with EOS at the end."""
        merged_BR = np.where(sentinels_BR != 0, sentinels_BR, ids_BR)
        filtered = merged_BR[merged_BR >= 0].reshape(len(ids_BR), -1)
        return np.concatenate([filtered, np.full((len(filtered), 1), self.eos)], axis=1)


def iterate_sentence_pairs(
    documents: Sequence[Sequence[list[int]]],
    index: int,
    width: int,
    rng: random.Random,
    short_rate: float = 0.1,
    random_next_rate: float = 0.5,
) -> Iterator[tuple[list[int], list[int], bool]]:
    """Yield (first segment, second segment, whether the second is random) of one document.

    The algorithm of Devlin et al. (2018, appendix A.2) as in the authors' code and in that data
    set: sentences are collected until they fill a row and are split in two at random. If the
    second segment is taken from another document, the unused sentences are visited again.

    Args:
      documents: lists of sentences, which are lists of ids.
      index: the document.
      width: tokens of a pair at most.
      short_rate: share of documents with a shorter random length.
      random_next_rate: share of pairs with a random second segment.
    """
    document = documents[index]
    target = rng.randint(2, width) if rng.random() < short_rate else width
    gathered, tokens, position = [], 0, 0
    while position < len(document):
        gathered.append(document[position])
        tokens += len(document[position])
        if position == len(document) - 1 or tokens >= target:
            cut = rng.randint(1, len(gathered) - 1) if len(gathered) > 1 else 1
            first, second = join_sentences(gathered[:cut]), join_sentences(gathered[cut:])
            is_random = len(gathered) == 1 or rng.random() < random_next_rate
            if is_random:
                second = draw_continuation(documents, index, target - len(first), rng)
                position -= len(gathered) - cut
            truncate_pair(first, second, width, rng)
            if first and second:
                yield first, second, is_random
            gathered, tokens = [], 0
        position += 1


def join_sentences(sentences: Iterable[list[int]]) -> list[int]:
    """Return the ids of several sentences as one list."""
    return [i for sentence in sentences for i in sentence]


def draw_continuation(
    documents: Sequence[Sequence[list[int]]], index: int, num_tokens: int, rng: random.Random
) -> list[int]:
    """Return sentences of another document from a random one on, with `num_tokens` ids or fewer."""
    other = index
    while other == index:
        other = rng.randrange(len(documents))
    ids = []
    for sentence in documents[other][rng.randrange(len(documents[other])) :]:
        ids += sentence
        if len(ids) >= num_tokens:
            break
    return ids


def truncate_pair(
    first: MutableSequence[int], second: MutableSequence[int], width: int, rng: random.Random
) -> None:
    """Remove tokens at random ends of the longer segment, in place, until both fit into `width`."""
    while len(first) + len(second) > width:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if rng.random() < 0.5 else -1)
