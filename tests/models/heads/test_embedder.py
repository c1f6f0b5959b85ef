"""Embedders: the pooled states are one vector a text, and the vectors of parts are those of all."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.bert import BertConfig
from models.config.embedder import EmbedderConfig
from models.config.gpt2 import Gpt2Config
from pretrain.mesh.sharding import find_dimension_names, format_path
from tests.models.heads.test_classifier import SIZES, draw_params

BERT = BertConfig(**SIZES)
IDS = np.random.default_rng(0).integers(5, 64, (4, 3, 9)).astype(np.int32)
LENGTHS = np.random.default_rng(1).integers(2, 10, (4, 3))
VALID = np.arange(9) < LENGTHS[..., None]


def make_embedder(encoder=BERT, **settings):
    model = build(EmbedderConfig(encoder=encoder, **settings))
    return model, draw_params(model, IDS, VALID)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_vector_is_a_pooled_state(pooling):
    model, params = make_embedder(pooling=pooling)
    flat = IDS.reshape(12, 9), VALID.reshape(12, 9)
    states_NLD, _ = build(BERT).apply({"params": params["encoder"]}, *flat, method="encode")
    vectors, scale = model.apply({"params": params}, IDS, VALID, method="compute_states")
    for (b, t), length in np.ndenumerate(LENGTHS):
        own_LD = np.asarray(states_NLD[3 * b + t, :length])
        expected = {"mean": own_LD.mean(axis=0), "cls": own_LD[0], "last": own_LD[-1]}[pooling]
        np.testing.assert_allclose(vectors[b, t], expected, atol=1e-5)
    assert vectors.dtype == jnp.float32 and scale == pytest.approx(20)


def test_a_decoder_is_read_at_its_last_token_whatever_pads_it():
    model, params = make_embedder(Gpt2Config(**SIZES), pooling="last")
    apply = partial(model.apply, {"params": params}, method="compute_states")
    padded = np.where(VALID, IDS, 7)
    np.testing.assert_allclose(apply(IDS, VALID)[0], apply(padded, VALID)[0], atol=1e-6)


def test_a_learned_temperature_begins_at_the_given_one():
    model, params = make_embedder(learn_temperature=True, temperature=0.1)
    first = model.init(jax.random.key(0), IDS, VALID)["params"]["log_scale"]
    _, scale = model.apply(
        {"params": params | {"log_scale": first}}, IDS, VALID, method="compute_states"
    )
    assert scale == pytest.approx(10)
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        find_dimension_names(format_path(keys), leaf.shape)


def compute_gradient(model, params):
    """The gradient of a loss that compares all texts with all."""

    def compute_loss(params):
        vectors, scale = model.apply({"params": params}, IDS, VALID, method="compute_states")
        flat_ND = vectors.reshape(12, -1)
        return jax.nn.logsumexp(scale * flat_ND @ flat_ND.T / 100)

    return jax.jit(jax.value_and_grad(compute_loss))


def test_parts_give_the_gradient_of_all_texts_in_less_memory():
    """GradCache: equal within 1e-6 of the largest component."""
    model, params = make_embedder()
    value, whole = compute_gradient(model, params)(params)
    for size in (4, 1):
        parted, _ = make_embedder(texts_at_once=size)
        vectors, ours = (
            each.apply({"params": params}, IDS, VALID, method="compute_states")[0]
            for each in (model, parted)
        )
        np.testing.assert_allclose(ours, vectors, atol=1e-6)
        again, parts = compute_gradient(parted, params)(params)
        assert again == pytest.approx(float(value), rel=1e-6)
        largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(whole))
        for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6 * largest)

    def count_bytes(size):
        sizes = SIZES | {"length": 64, "width": 64, "mlp": 256}
        config = EmbedderConfig(encoder=BertConfig(**sizes), texts_at_once=size)
        model = build(config)
        ids = jax.ShapeDtypeStruct((64, 2, 64), jnp.int32)
        mask = jax.ShapeDtypeStruct((64, 2, 64), jnp.bool_)
        params = jax.eval_shape(model.init, jax.random.key(0), ids, mask)["params"]

        def compute_loss(params, ids, mask):
            return model.apply({"params": params}, ids, mask, method="compute_states")[0].sum()

        lowered = jax.jit(jax.grad(compute_loss)).lower(params, ids, mask)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert count_bytes(8) < count_bytes(None) / 3


def test_parts_have_dropout_of_their_own():
    encoder = dataclasses.replace(BERT, dropout=0.5)
    model, params = make_embedder(encoder, texts_at_once=1)
    same_ids, same_valid = np.repeat(IDS[:1], 4, axis=0), np.repeat(VALID[:1], 4, axis=0)
    vectors, _ = model.apply(
        {"params": params},
        same_ids,
        same_valid,
        train=True,
        rngs={"dropout": jax.random.key(0)},
        method="compute_states",
    )
    assert not np.allclose(vectors[0], vectors[1])


def test_parts_that_do_not_divide_the_batch_are_refused():
    model, params = make_embedder(texts_at_once=5)
    with pytest.raises(ValueError, match="texts_at_once=5: the batch has 12 texts"):
        model.apply({"params": params}, IDS, VALID, method="compute_states")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": Gpt2Config(**SIZES), "pooling": "cls"}, "pooling=cls: a Gpt2Config reads"),
        ({"temperature": 0.0}, "temperature=0; it must be above 0"),
        ({"texts_at_once": 0}, "texts_at_once"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        EmbedderConfig(**{"encoder": BERT, **settings})
