"""BERT as in its paper: sizes, inputs, dropout, and the same result however it is computed."""

import dataclasses
from functools import partial

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.bert import BertConfig

LENGTHS = np.array([12, 7, 4])
VALID = np.arange(12) < LENGTHS[:, None]
TOKENS = np.where(VALID, np.random.default_rng(0).integers(1, 50, (3, 12)), 0).astype(np.int32)
SEGMENTS = (VALID & (np.arange(12) >= 3)).astype(np.int32)
POSITIONS = np.array([[1, 5, 11], [0, 2, 6], [1, 2, 3]], np.int32)


def test_initialisation():
    """Kernels are normal with deviation 0.02, truncated at two deviations, not rescaled; biases 0,
    norms 1.
    """
    config = BertConfig(vocab=300, length=64, width=64, depth=2, num_heads=4, mlp=200)
    ids = jnp.ones((1, 2), jnp.int32)
    init = jax.jit(lambda: build(config).init(jax.random.key(0), ids, ids > 0)["params"])
    params = jax.device_get(init())
    for path, leaf in flax.traverse_util.flatten_dict(params, sep="/").items():
        if path.endswith("bias"):
            assert not leaf.any(), path
        elif path.endswith("scale"):
            assert (leaf == 1).all(), path
        else:
            tolerance = 0.03 if leaf.size > 5_000 else 0.2
            assert abs(leaf).max() <= 0.04 and abs(leaf.std() / 0.017593 - 1) < tolerance, path


@pytest.fixture(scope="module")
def hidden(make, bert_config):
    """Return hidden(tokens, valid, segments): (states, pooled) of the tiny model."""
    model, params = make(bert_config)
    run = jax.jit(partial(model.apply, {"params": params}, method="encode"))
    return lambda *read: jax.device_get(run(*read))


def test_order_and_segment_matter(hidden):
    states, pooled = hidden(TOKENS, VALID, SEGMENTS)
    assert not np.allclose(hidden(TOKENS, VALID, 1 - SEGMENTS)[0], states, atol=1e-2)
    np.testing.assert_array_equal(
        hidden(TOKENS, VALID)[0], hidden(TOKENS, VALID, np.zeros_like(TOKENS))[0]
    )
    turned = TOKENS.copy()
    turned[0] = TOKENS[0, ::-1]
    backwards = hidden(turned, VALID, np.zeros_like(SEGMENTS))[0][0, ::-1]
    assert not np.allclose(backwards, hidden(TOKENS, VALID)[0][0], atol=1e-2)


def test_words_are_scored_at_the_gathered_positions_only(make, bert_config):
    model, params = make(bert_config)
    run = partial(model.apply, {"params": params})
    both = jax.jit(lambda *read: (run(*read), run(*read, POSITIONS)))
    (everywhere, following), (gathered, same) = jax.device_get(both(TOKENS, VALID, SEGMENTS))
    assert (
        everywhere.shape == (3, 12, 50)
        and gathered.shape == (3, 3, 50)
        and following.shape == (3, 2)
    )
    np.testing.assert_allclose(
        gathered, np.take_along_axis(everywhere, POSITIONS[..., None], 1), atol=1e-5
    )
    np.testing.assert_allclose(same, following, atol=1e-6)
    ops = str(jax.make_jaxpr(run)(TOKENS, VALID, SEGMENTS, POSITIONS))
    assert "f32[3,3,50]" in ops and "f32[3,12,50]" not in ops


def test_word_head_is_tied_to_the_words(make, bert_config):
    """A token that is in no input row affects only its own logit, by its embedding."""
    model, params = make(bert_config)
    tokens = np.where(TOKENS == 9, 8, TOKENS)
    run = jax.jit(lambda params: model.apply({"params": params}, tokens, VALID)[0])
    before = np.array(run(params))
    moved = jax.tree.map(np.array, params)
    moved["bert"]["embeddings"]["token_embedding"]["embedding"][9] += 1.0
    after = np.array(run(moved))
    assert (np.abs(after - before).max((0, 1)) > 1e-2).tolist() == [word == 9 for word in range(50)]


def test_next_sentence_reads_the_first_position(make, bert_config, hidden):
    model, params = make(bert_config)
    states, pooled = hidden(TOKENS, VALID, SEGMENTS)
    pooler, following = jax.device_get((params["bert"]["pooler"], params["next_sentence_head"]))
    np.testing.assert_allclose(
        pooled, np.tanh(states[:, 0] @ pooler["kernel"] + pooler["bias"]), atol=1e-5
    )
    _, logits = jax.jit(model.apply)({"params": params}, TOKENS, VALID, SEGMENTS)
    np.testing.assert_allclose(logits, pooled @ following["kernel"] + following["bias"], atol=1e-5)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("dropout", "attention_dropout", "outside", "a_layer"),
    [(0.1, 0.0, 1, 2), (0.0, 0.1, 0, 1), (0.0, 0.0, 0, 0)],
)
def test_dropout_falls_where_the_paper_drops(
    bert_config, dropouts, dropout, attention_dropout, outside, a_layer
):
    """Dropout is after the embeddings, on the attention weights, and on the output of each
    sub-layer (appendix A.2).
    """
    c = dataclasses.replace(
        bert_config, dropout=dropout, attention_dropout=attention_dropout, scan=False
    )
    run = partial(
        build(c).init_with_output,
        {"params": jax.random.key(0), "dropout": jax.random.key(0)},
        TOKENS,
        VALID,
    )
    assert dropouts(partial(run, train=True)) - dropouts(run) == outside + a_layer * c.depth


def test_a_row_of_padding_alone_is_finite(make, bert_config):
    """Such rows pad a batch, with weight 0."""
    model, params = make(bert_config)

    def sum_outputs(params):
        words, following = model.apply({"params": params}, TOKENS * 0, VALID & False)
        return (0.0 * words).sum() + following.sum()

    value, grads = jax.jit(jax.value_and_grad(sum_outputs))(params)
    assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
