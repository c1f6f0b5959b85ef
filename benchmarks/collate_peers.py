"""How others make batches of spans and of sentence pairs: an example at a time. Written for benchmarks/collate.py from the published descriptions.

Neither is in `transformers` any more: its script that pretrained T5 in Flax went with Flax, its data set of sentence pairs with version 5.

B rows   R raw tokens
"""

import numpy as np


class SpanCollator:
    """Span corruption (Raffel et al. 2019, section 3.1.4) as that script's collator did it: a mask for each example, the rest on the batch.

    Returns input_ids, labels and decoder_input_ids, int64 [B, ...].
    """

    def __init__(self, noise, spans, size, eos, pad, rng):
        self.noise, self.spans, self.size, self.eos, self.pad, self.rng = (
            noise,
            spans,
            size,
            eos,
            pad,
            rng,
        )

    def __call__(self, examples):
        ids_BR = np.array([example["input_ids"] for example in examples])
        noise_BR = np.array([self.noise_mask(ids_BR.shape[1]) for _ in examples])
        labels = self.filtered(ids_BR, self.sentinels(~noise_BR))
        begins = np.full((len(labels), 1), self.pad)
        decoder = np.concatenate([begins, labels[:, :-1]], axis=1)
        return {
            "input_ids": self.filtered(ids_BR, self.sentinels(noise_BR)),
            "labels": labels,
            "decoder_input_ids": decoder,
        }

    def noise_mask(self, length):
        """bool [R]: stretches that stay and stretches that go, in turn; all lengths, 1 at least, that make the right sums are alike likely."""
        stretches = np.stack(
            [self.partition(length - self.noise), self.partition(self.noise)], axis=1
        ).reshape(-1)
        first_of_stretch = np.zeros(length, np.int8)
        first_of_stretch[np.cumsum(stretches)[:-1]] = 1
        return np.cumsum(first_of_stretch) % 2 == 1

    def partition(self, total):
        """The sizes of a random partition of `total` things into as many parts as there are spans."""
        begins_part = np.arange(total - 1) < self.spans - 1
        self.rng.shuffle(begins_part)
        return np.bincount(np.cumsum(np.append(False, begins_part)), minlength=self.spans)

    def sentinels(self, mask_BR):
        """What takes the place of masked tokens: a span's sentinel for its first, -1 for the others; 0 where there is no mask."""
        before_BR = np.concatenate([np.zeros((len(mask_BR), 1), bool), mask_BR[:, :-1]], axis=1)
        first_BR = mask_BR & ~before_BR
        return np.where(
            first_BR, self.size - np.cumsum(first_BR, axis=1), -mask_BR.astype(np.int64)
        )

    def filtered(self, ids_BR, sentinels_BR):
        """The ids with their sentinels in, without what the spans hide, and with the end of the text."""
        merged_BR = np.where(sentinels_BR != 0, sentinels_BR, ids_BR)
        kept = merged_BR[merged_BR >= 0].reshape(len(ids_BR), -1)
        return np.concatenate([kept, np.full((len(kept), 1), self.eos)], axis=1)


def sentence_pairs(documents, index, width, rng, short=0.1, random_next=0.5):
    """(first segment, second segment, whether that is from elsewhere) of one document, a list of sentences, which are lists of ids.

    The walk of Devlin et al. (2018, appendix A.2), as the authors' code and that data set take it: sentences are gathered until they fill
    a row and cut in two at random; where the second part is from another document, the walk goes back to what it did not use.
    """
    document = documents[index]
    target = rng.randint(2, width) if rng.random() < short else width
    gathered, tokens, at = [], 0, 0
    while at < len(document):
        gathered.append(document[at])
        tokens += len(document[at])
        if at == len(document) - 1 or tokens >= target:
            cut = rng.randint(1, len(gathered) - 1) if len(gathered) > 1 else 1
            first, second = joined(gathered[:cut]), joined(gathered[cut:])
            elsewhere = len(gathered) == 1 or rng.random() < random_next
            if elsewhere:
                second = continuation(documents, index, target - len(first), rng)
                at -= len(gathered) - cut
            truncate(first, second, width, rng)
            if first and second:
                yield first, second, elsewhere
            gathered, tokens = [], 0
        at += 1


def joined(sentences):
    return [i for sentence in sentences for i in sentence]


def continuation(documents, index, wanted, rng):
    """Ids from a random sentence of another document on, `wanted` of them or its rest."""
    other = index
    while other == index:
        other = rng.randrange(len(documents))
    ids = []
    for sentence in documents[other][rng.randrange(len(documents[other])) :]:
        ids += sentence
        if len(ids) >= wanted:
            break
    return ids


def truncate(first, second, width, rng):
    """Takes tokens from either end of the longer segment until both fit, in place."""
    while len(first) + len(second) > width:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if rng.random() < 0.5 else -1)
