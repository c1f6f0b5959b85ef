"""DistilBERT: the published size, and its distillation losses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.distilbert import DistilBertConfig
from models.distilbert import TEMPERATURE, compute_cosine
from models.layers.heads import compute_divergence

TINY = DistilBertConfig(
    vocab=50, length=32, width=24, depth=2, teacher_depth=4, num_heads=3, mlp=40
)


def shapes_of(config):
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    return jax.eval_shape(
        build(config).init, jax.random.key(0), ids, jax.ShapeDtypeStruct((1, 8), bool)
    )["params"]


def test_the_divergence_is_that_of_the_softened_distributions():
    rng = np.random.default_rng(0)
    logits, expected = rng.normal(0, 3, (2, 4, 5, 11)).astype(np.float32)
    q, p = (
        np.exp(x / 2.0) / np.exp(x / 2.0).sum(-1, keepdims=True)
        for x in (logits.astype(np.float64), expected.astype(np.float64))
    )
    np.testing.assert_allclose(
        compute_divergence(logits, expected, TEMPERATURE),
        4.0 * (p * np.log(p / q)).sum(-1),
        rtol=1e-4,
        atol=1e-5,
    )
    assert TEMPERATURE == 2.0
    x, y = rng.normal(size=(2, 3, 7)).astype(np.float32)
    np.testing.assert_allclose(
        compute_cosine(x, y),
        (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1),
        rtol=1e-5,
    )


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    config = dataclasses.replace(TINY, depth=4)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32), shapes_of(config)
    )
    return build(config), params


def test_a_student_that_is_its_teacher_has_learned_its_lesson(model):
    module, params = model
    twin = dict(params["teacher"])
    positions = (
        twin["embeddings"]["position_embedding"]["embedding"]
        + twin["embeddings"]["token_type_embedding"]["embedding"][0]
    )
    twin["embeddings"] = {
        **{k: v for k, v in twin["embeddings"].items() if k != "segments"},
        "positions": {"embedding": positions},
    }
    ids = jnp.asarray(np.random.default_rng(2).integers(0, 50, (2, 9)), jnp.int32)
    valid = jnp.arange(9)[None] < jnp.array([[9], [6]])
    run = jax.jit(lambda params: module.apply({"params": params}, ids, valid))
    _, lesson = run(params)
    assert float(lesson.divergence_BP.min()) > 1e-3 and float(lesson.cosine_loss_BL.min()) > 1e-3
    _, learned = run(params | {"student": twin})
    np.testing.assert_allclose(learned.divergence_BP, 0, atol=1e-5)
    np.testing.assert_allclose(learned.cosine_loss_BL, 0, atol=1e-5)


def test_the_teacher_learns_nothing_of_any_loss(model):
    module, params = model
    ids, valid = jnp.ones((1, 5), jnp.int32), jnp.ones((1, 5), bool)

    @jax.jit
    @jax.grad
    def compute_gradient(params):
        words, lesson = module.apply({"params": params}, ids, valid)
        return words.sum() + lesson.divergence_BP.sum() + lesson.cosine_loss_BL.sum()

    found = compute_gradient(params)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(found["teacher"]))
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(found["student"]["encoder"]))
