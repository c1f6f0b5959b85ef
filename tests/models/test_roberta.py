"""RoBERTa as in its paper: sizes, BERT's encoder, positions after the padding id, tokens without
types.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config.bert import BertConfig

LENGTHS = np.array([12, 7, 4])
VALID = np.arange(12) < LENGTHS[:, None]
TOKENS = np.where(VALID, np.random.default_rng(0).integers(2, 50, (3, 12)), 1).astype(np.int32)


def test_its_encoder_is_berts(make, tiny_configs):
    """With BERT's parameters under other names, and positions shifted by two rows: the same states,
    bit for bit.
    """
    config = tiny_configs["roberta"]
    shared = {field.name: getattr(config, field.name) for field in dataclasses.fields(BertConfig)}
    model, params = make(config)
    other, there = make(BertConfig(**shared))
    there = dict(there["bert"])
    table = there["embeddings"]["position_embedding"]["embedding"]
    lower = jnp.concatenate(
        [jnp.full((2, config.width), jnp.nan), table]
    )  # the first two are unused
    moved = {
        **params,
        "roberta": {
            **there,
            "embeddings": {**there["embeddings"], "position_embedding": {"embedding": lower}},
        },
    }
    ours, pooled = jax.jit(
        lambda params: model.apply({"params": params}, TOKENS, VALID, method="encode")
    )(moved)
    theirs, of_row = jax.jit(
        lambda params: other.apply({"params": params}, TOKENS, VALID, method="encode")
    )({"bert": there})
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(pooled, of_row)


def test_a_row_may_fill_all_positions_and_no_more(make, tiny_configs):
    model, params = make(tiny_configs["roberta"])
    ids = jnp.full((1, 33), 5, jnp.int32)
    shape = jax.eval_shape(lambda: model.apply({"params": params}, ids[:, :32], ids[:, :32] > 0)[0])
    assert shape.shape == (1, 32, 50)
    with pytest.raises(ValueError, match="33 tokens is longer than the 32 positions"):
        model.apply({"params": params}, ids, ids > 0)
