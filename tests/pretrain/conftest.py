"""Tiny runs and batches of the treaty's shapes."""

import dataclasses

import numpy as np
import pytest

from data import batches
from data.config import Data
from data.objectives import MaskedLm, SentencePair, SpanCorruption
from models.config import BertConfig, T5Config
from pretrain.config import AdamW, Run, Train

BERT = BertConfig(vocab=128, length=32, width=32, depth=2, heads=8, mlp=64, dropout=0.0, attention_dropout=0.0)
T5 = T5Config(vocab=128, width=32, depth=2, decoder_depth=2, heads=8, head_width=4, mlp=64, dropout=0.0)


def tiny(model, objective, **train):
    return Run(
        model=model,
        data=Data(objective=objective, batch_size=32),
        optimizer=AdamW(learning_rate=1e-2, warmup=2),
        train=Train(steps=10, compute="float32", **train),
    )


RUNS = {
    "bert": tiny(BERT, MaskedLm(length=32, predictions=6)),
    "bert_pairs": tiny(BERT, SentencePair(length=32, predictions=6)),
    "bert_unrolled": tiny(dataclasses.replace(BERT, scan=False, remat=True), MaskedLm(length=32, predictions=6)),
    "t5": tiny(T5, SpanCorruption(inputs=32)),
    "t5_gated": tiny(dataclasses.replace(T5, gated=True, tied=False, remat=True), SpanCorruption(inputs=32)),
}


@pytest.fixture
def runs():
    """The tiny runs by name, without dropout."""
    return RUNS


@pytest.fixture
def random_batch():
    """random_batch(run, seed): a batch of the treaty's shapes with padding and unequal numbers of targets in its rows."""

    def make(run, seed=0):
        rng = np.random.default_rng(seed)
        batch = {}
        for key, (dtype, shape) in batches.shapes(run.data.objective, run.data.batch_size).items():
            if key in ("valid", "inputs_valid"):
                value = np.arange(shape[1])[None] < rng.integers(shape[1] // 2, shape[1] + 1, (shape[0], 1))
            elif key == "weights":
                value = rng.random(shape) < rng.random((shape[0], 1))
            elif key == "next_weights":
                value = np.arange(shape[0]) % 5 > 0
            elif key == "positions":
                value = np.sort(rng.integers(0, run.model.length // 2, shape), axis=1)
            else:
                value = rng.integers(0, {"segments": 2, "next_sentence": 2}.get(key, 128), shape)
            batch[key] = value.astype(dtype)
        batches.check(batch, run.data.objective, run.data.batch_size)
        return batch

    return make
