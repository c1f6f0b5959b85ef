"""The Transformer as in its paper: sizes, sinusoids, attention patterns, dropout; pairs that share
a row are independent.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.transformer import TransformerConfig
from models.layers.embeddings import make_sinusoids
from models.layers.encoder_decoder import shift_right
from models.layers.masks import make_position_ids

LENGTHS = np.array([9, 6, 3])
VALID = np.arange(9) < LENGTHS[:, None]
INPUTS = np.where(VALID, np.random.default_rng(0).integers(2, 50, (3, 9)), 0).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(1, 50, (3, 6)).astype(np.int32)


def init_params(config):
    ids = jnp.ones((1, 2), jnp.int32)
    return build(config).init(jax.random.key(0), ids, ids > 0, ids)["params"]


def test_initialisation():
    config = TransformerConfig(vocab=400, width=64, depth=2, decoder_depth=2, num_heads=4, mlp=160)
    deviations = {
        "token_embedding/embedding": 64**-0.5,
        "up/kernel": (2 / (64 + 160)) ** 0.5,
        "down/kernel": (2 / (64 + 160)) ** 0.5,
    }
    deviations |= dict.fromkeys(
        ("query/kernel", "key/kernel", "value/kernel", "out/kernel"), 64**-0.5
    )
    params = jax.device_get(jax.jit(lambda: init_params(config))())
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        path = jax.tree_util.keystr(keys, simple=True, separator="/")
        if (leaf.ndim < 3 and not path.endswith("embedding")) or path.endswith("bias"):
            assert (leaf == float(path.endswith("scale"))).all(), path
            continue
        (deviation,) = (deviation for end, deviation in deviations.items() if path.endswith(end))
        assert abs(leaf.std() / deviation - 1) < 0.05, path


# ---- positions -------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 6, 512])
def test_sinusoids_are_the_papers(width):
    """Section 3.5: sin in the even columns, cos in the odd ones, here one half after the other;
    wavelengths from 2 pi to 10,000 times that.
    """
    found, paper = make_sinusoids(np.arange(50), width), np.zeros((50, width))
    for position in range(50):
        for i in range(width // 2):
            paper[position, 2 * i] = np.sin(position / 10000 ** (2 * i / width))
            paper[position, 2 * i + 1] = np.cos(position / 10000 ** (2 * i / width))
    np.testing.assert_allclose(
        found, np.concatenate([paper[:, ::2], paper[:, 1::2]], axis=1), atol=1e-6
    )
    assert found.dtype == np.float32


def test_a_shift_is_a_rotation():
    """The paper's reason for them: the encoding of p + k is a linear function of p's, the
    same for all p.
    """
    table = make_sinusoids(np.arange(40), 8).astype(np.float64)
    shift = np.linalg.lstsq(table[:-7], table[7:], rcond=None)[0]
    np.testing.assert_allclose(table[:-7] @ shift, table[7:], atol=1e-6)


def test_an_odd_width_is_refused():
    with pytest.raises(
        ValueError, match=r"a width of 9 is odd; it must be even, .* \(model.width\)"
    ):
        jax.eval_shape(lambda: init_params(TransformerConfig(vocab=9, width=9, num_heads=3, mlp=4)))


def test_places_are_counted_in_each_segment():
    segments = np.array([[1, 1, 1, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 2]])
    np.testing.assert_array_equal(
        jax.jit(make_position_ids)(segments), [[0, 1, 2, 0, 0, 1, 0, 1], [0, 0, 1, 2, 3, 4, 5, 6]]
    )
    tokens = np.arange(11, 19)[None].repeat(2, 0)
    np.testing.assert_array_equal(
        jax.jit(shift_right)(tokens, segments),
        [[0, 11, 12, 0, 0, 15, 0, 17], [0, 0, 12, 13, 14, 15, 16, 17]],
    )
    np.testing.assert_array_equal(shift_right(tokens), [[0, *range(11, 18)]] * 2)


# ---- what attends to what --------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(make, tiny_configs):
    model, params = make(tiny_configs["transformer"])
    return model, params


def test_order_counts(tiny):
    model, params = tiny
    encode = jax.jit(partial(model.apply, {"params": params}, method="encode"))
    states = encode(INPUTS[:1], VALID[:1])
    turned = np.array(encode(INPUTS[:1, ::-1], VALID[:1]))[:, ::-1]
    assert not np.allclose(turned, states, atol=1e-2)


def test_pairs_in_a_row_are_as_in_rows_of_their_own(tiny):
    """Three pairs in one row with padding after them, and the gradient of a loss: the same as
    alone.
    """
    model, params = tiny
    lengths, written = LENGTHS, [2, 6, 4]
    row, of_row = np.zeros((1, 20), np.int32), np.zeros((1, 20), np.int32)
    packed_targets, packed_target_segments = (
        np.zeros((1, 14), np.int32),
        np.zeros((1, 14), np.int32),
    )
    alone_targets, weights = (
        np.zeros((3, 6), np.int32),
        np.float32(np.arange(6) < np.array(written)[:, None]),
    )
    at, to = 0, 0
    for i, (n, m) in enumerate(zip(lengths, written)):
        row[0, at : at + n], of_row[0, at : at + n] = INPUTS[i, :n], i + 1
        packed_targets[0, to : to + m], packed_target_segments[0, to : to + m] = (
            TARGETS[i, :m],
            i + 1,
        )
        alone_targets[i, :m] = TARGETS[i, :m]
        at, to = at + n, to + m

    def compute_loss(params, inputs, valid, targets, weights, *segments):
        logits = model.apply({"params": params}, inputs, valid, targets, False, *segments)
        return (
            weights
            * -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]
        ).sum(), logits

    compute = jax.jit(jax.value_and_grad(compute_loss, has_aux=True))
    packed = compute(
        params,
        row,
        of_row > 0,
        packed_targets,
        np.float32(packed_target_segments > 0),
        of_row,
        packed_target_segments,
    )
    (value, logits), grads = jax.device_get(packed)
    (expected, alone), exact = jax.device_get(
        compute(params, INPUTS, VALID, alone_targets, weights)
    )
    np.testing.assert_allclose(logits[packed_target_segments > 0], alone[weights > 0], atol=2e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3 * max(1, abs(b).max())),
        grads,
        exact,
    )


def test_where_it_drops(tiny_configs, dropouts):
    """Section 5.4: dropout on the sums of embeddings and positions and on each sub-layer's output;
    on attention weights only if configured.
    """
    config = dataclasses.replace(tiny_configs["transformer"], scan=False)

    def count_draws(**rates):
        model = build(dataclasses.replace(config, **rates))
        run = partial(
            model.init_with_output,
            {"params": jax.random.key(0), "dropout": jax.random.key(0)},
            INPUTS,
            VALID,
            TARGETS,
        )
        return dropouts(partial(run, train=True)) - dropouts(run)

    depth, decoder_depth = config.depth, config.decoder_depth
    assert count_draws(dropout=0.1) == 2 + 2 * depth + 3 * decoder_depth
    assert count_draws(dropout=0.0) == 0
    assert count_draws(dropout=0.0, attention_dropout=0.1) == depth + 2 * decoder_depth
