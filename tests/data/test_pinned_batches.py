"""The bits of batches stay what they are: a run that a newer version goes on with reads on as it began.

The digests are of batches made before a change of the code that makes them. Whoever changes what batches hold, which ends every run
that is under way, says so in LOG.md and writes the new digests here.
"""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from data.config import Data
from data.objectives import (
    CausalLm,
    Denoising,
    MaskedLm,
    PrefixLm,
    ReplacedToken,
    SentenceOrder,
    SentencePair,
    SpanCorruption,
)
from data.pipeline import Stream
from data.store.reader import Source, Split

PINNED = (
    ("a61dd40d3152d98d", MaskedLm(length=32, predictions=6, rows="documents")),
    ("e6f470feb8624184", MaskedLm(length=27, predictions=27, rate=0.4, rows="documents")),
    ("c427c9ca92439c35", MaskedLm(length=32, predictions=6, rows="windows")),
    ("42fdc6dfaceec8a5", MaskedLm(length=700, predictions=300, rows="windows")),
    ("7ecf1b76d94b9796", MaskedLm(length=32, predictions=6, rows="sentences")),
    ("2e11e5ca72a8dbd1", MaskedLm(length=64, predictions=10, rows="packed")),
    ("508798f34a0f3580", MaskedLm(length=250, predictions=60, rows="packed")),
    (
        "1d79ab767395e991",
        MaskedLm(length=21, predictions=9, rate=0.3, whole_words=True, rows="packed"),
    ),
    (
        "e8f8079e464cadc8",
        MaskedLm(length=32, predictions=6, whole_words=True, duplicates=3, rows="documents"),
    ),
    ("b5a6e98114ad133b", SentencePair(length=32, predictions=6)),
    ("dfa3f5b7d8af9f3c", SentencePair(length=35, predictions=6, whole_words=True, short=0.5)),
    ("0053b83f691d87b5", SentenceOrder(length=48, predictions=9)),
    ("1325bb3c1a21726f", ReplacedToken(length=32, predictions=6, rows="packed")),
    ("d9ca3e326296b07d", SpanCorruption(inputs=40)),
    ("705a540202ee5d7d", Denoising(length=48)),
    ("497682ad36ab1847", CausalLm(length=32)),
    ("0ec512f32012aded", PrefixLm(length=32)),
)


@pytest.fixture(scope="module")
def corpus():
    """What a Stream asks of a store, made of arithmetic alone: two sources, documents of 0 to 160 tokens, ids that are unknown or special among them."""
    sentences_D = [(7 * d * d + 3 * d) % 11 for d in range(60)]
    tokens_S = np.array([1 + (5 * i * i + 3 * i) % 29 for i in range(sum(sentences_D))])
    starts_S = np.concatenate([[0], np.cumsum(tokens_S)])
    starts_D = starts_S[np.concatenate([[0], np.cumsum(sentences_D)])]
    number = np.arange(starts_S[-1])
    ids = (number * number * 31 + number * 17 + number // 5) % 690 + 10
    ids[ids % 61 == 0] = 1
    sources = (Source("one", (0, 45), 0.7), Source("other", (45, 60), 0.3))
    split = Split(ids.astype(np.uint16), starts_D, starts_S, sources)
    special = np.arange(800) < 10
    special[700:] = True
    vocabulary = SimpleNamespace(
        kind="arithmetic", size=800, special=special, starts_word=(np.arange(800) % 3 != 0) | special, sentinels=tuple(range(799, 699, -1)),
        **{role: i for i, role in enumerate(("pad", "unk", "cls", "sep", "mask", "bos", "eos"))},
    )  # fmt: skip
    return SimpleNamespace(path="nowhere", vocabulary=vocabulary, split=lambda name: split)


def digest(made):
    """Hash of batches: keys, types, shapes and values."""
    found = hashlib.sha256()
    for batch in made:
        for key in sorted(batch):
            found.update(f"{key} {batch[key].dtype} {batch[key].shape} ".encode())
            found.update(np.ascontiguousarray(batch[key]).tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(("pinned", "objective"), PINNED)
def test_batches_are_what_they_were(corpus, pinned, objective):
    stream = Stream(corpus, Data(objective=objective, batch_size=12), seed=77)
    made = [stream.batch(step) for step in (0, 1, 2, 3, 17, 18, 10**9)] + [stream.batch(40, 5, 8)]
    made += [stream.evaluation_batch(index) for index in (0, stream.evaluation_steps - 1)]
    assert digest(made) == pinned
