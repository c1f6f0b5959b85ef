"""RoBERTa as in its paper: sizes, BERT's encoder, positions after the padding id, tokens without
types.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.bert import BertConfig
from models.config.roberta import RobertaConfig

LENGTHS = np.array([12, 7, 4])
VALID = np.arange(12) < LENGTHS[:, None]
TOKENS = np.where(VALID, np.random.default_rng(0).integers(2, 50, (3, 12)), 1).astype(np.int32)


@pytest.mark.parametrize(
    ("config", "encoder"),
    [
        (RobertaConfig(), 124_645_632),
        (RobertaConfig(width=1024, depth=24, num_heads=16, mlp=4096), 355_359_744),
    ],
)
def test_published_sizes(config, encoder):
    """The encoder with its pooler, as the released base and large are counted; the head adds a
    layer, a norm and a bias per token.
    """
    ids = jnp.ones((1, 2), jnp.int32)
    params = jax.eval_shape(lambda: build(config).init(jax.random.key(0), ids, ids > 0))["params"]
    sizes = {
        part: sum(leaf.size for leaf in jax.tree.leaves(tree)) for part, tree in params.items()
    }
    assert sizes == {
        "roberta": encoder,
        "mlm_head": config.width * (config.width + 3) + config.vocab,
    }


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
