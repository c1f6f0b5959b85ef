"""The competitors of the input benchmarks do complete work: spans can be restored, pairs come from
their documents.
"""

import random

import numpy as np

from benchmarks.speed.collate import CASES
from benchmarks.speed.collate_peers import SpanCollator, iterate_sentence_pairs


def test_spans_are_in_the_labels_and_nowhere_else():
    rng, objective = np.random.default_rng(0), CASES["span_corruption"][0]
    collate = SpanCollator(
        objective.num_noise_tokens, objective.num_spans, size=1000, eos=1, pad=0, rng=rng
    )
    texts = rng.integers(2, 900, (8, objective.raw_length))
    batch = collate([{"input_ids": text.tolist()} for text in texts])
    assert batch["input_ids"].shape == (8, 512) and batch["labels"].shape == (
        8,
        objective.target_length,
    )
    assert (batch["decoder_input_ids"][:, 1:] == batch["labels"][:, :-1]).all() and (
        batch["decoder_input_ids"][:, 0] == 0
    ).all()
    for text, inputs, labels in zip(
        texts.tolist(), batch["input_ids"].tolist(), batch["labels"].tolist()
    ):
        assert inputs.pop() == labels.pop() == 1
        assert [i for i in inputs if i >= 900] == list(range(999, 999 - objective.num_spans, -1))
        heads = [i for i in labels if i >= 900]
        unmasked, gone = split_at_sentinels(inputs), split_at_sentinels(labels)
        assert (
            heads[0] == 999
            and len(unmasked) == len(gone) == objective.num_spans + 1
            and gone[0] == []
            and unmasked[-1] == []
        )
        assert [i for a, b in zip(unmasked, gone[1:]) for i in a + b] == text


def split_at_sentinels(ids):
    """Return the tokens between the sentinels."""
    found = [[]]
    for i in ids:
        if i >= 900:
            found.append([])
        else:
            found[-1].append(i)
    return found


def test_pairs_are_of_their_documents():
    rng = random.Random(0)
    documents = [
        [
            [1000 * d + 20 * s + i for i in range(rng.randint(3, 15))]
            for s in range(rng.randint(2, 12))
        ]
        for d in range(40)
    ]
    follows = total = 0
    for index in range(40):
        for first, second, elsewhere in iterate_sentence_pairs(documents, index, 40, rng):
            assert first and second and len(first) + len(second) <= 40
            assert {i // 1000 for i in first} == {index} and len({i // 1000 for i in second}) == 1
            assert (second[0] // 1000 != index) == elsewhere and (
                elsewhere or second[0] > first[-1]
            )
            follows, total = follows + (not elsewhere), total + 1
    assert total > 100 and abs(follows / total - 0.5) < 0.15
