"""Rows of padding, weights of 0, and labels that are no token give no NaN in the loss or a
gradient, with any attention and dtype.

B batch   L length of the readers   M length of what is read   H heads   K head width
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from models.layers.ops import attend
from pretrain.config import Mesh
from pretrain.kernels.attention.cudnn_attention import attend_with_cudnn
from pretrain.kernels.attention.row.sharded import attend_with_rows
from pretrain.kernels.attention.splash.splash_attention import attend_with_splash
from pretrain.mesh.sharding import make_mesh
from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses import LossOptions, find_loss
from pretrain.training.state import init_params

B, L, H, K = 4, 128, 2, 8
VALID = jnp.asarray(
    np.arange(L) < np.array([[L], [0], [1], [0]])
)  # two rows have no key to attend to
SEGMENTS = jnp.where(VALID, 1, 0)
ALONE = (
    jnp.ones((B, L), jnp.int32),
    jnp.full((B, L), 2),
)  # segment ids of which no query has one to attend to

MASKS = {
    "padding": make_padding_mask(VALID),
    "causal": make_causal_mask(VALID),
    "window": make_causal_mask(VALID, window=3),
    "window both ways": Mask(VALID, window=3),
    "packed": make_causal_mask(VALID, SEGMENTS),
    "segments": Mask(segment_ids=ALONE),
}


def is_finite(tree):
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


@pytest.fixture
def mesh():
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        yield mesh


CASES = [
    ("xla", name, dtype, biased)
    for name in MASKS
    for dtype in ("float32", "bfloat16")
    for biased in (False, True)
]
CASES += [
    ("splash", name, dtype, False)
    for name, dtype in (
        ("packed", "bfloat16"),
        ("segments", "float32"),
        ("window both ways", "float32"),
    )
]
CASES += [
    ("rows", name, dtype, True)
    for name, dtype in (("padding", "bfloat16"), ("packed", "float32"), ("segments", "bfloat16"))
]
CASES += [
    ("cudnn", name, dtype, False)
    for name, dtype in (
        ("padding", "bfloat16"),
        ("segments", "float32"),
        ("window both ways", "bfloat16"),
    )
]


@pytest.mark.held_by(4)
@pytest.mark.parametrize(("kernel", "name", "dtype", "biased"), CASES)
@pytest.mark.usefixtures("promoting")
def test_queries_without_keys_give_no_nan(mesh, kernel, name, dtype, biased):
    function = {
        "xla": attend,
        "splash": partial(attend_with_splash, mesh=mesh, interpret=True),
        "rows": partial(attend_with_rows, mesh=mesh, interpret=True),
        "cudnn": partial(attend_with_cudnn, mesh=mesh, implementation="xla"),
    }[kernel]
    q, k, v = (
        jax.random.normal(jax.random.key(seed), (B, L, H, K), jnp.dtype(dtype)) for seed in range(3)
    )
    bias = jax.random.normal(jax.random.key(3), (1, H, L, L)) if biased else jnp.zeros(())

    def compute_value(q, k, v, bias):
        o = function(q, k, v, mask=MASKS[name], bias=bias if biased else None)
        return jnp.square(o.astype(jnp.float32)).sum(), o

    (_, o), grads = jax.jit(jax.value_and_grad(compute_value, argnums=(0, 1, 2, 3), has_aux=True))(
        q, k, v, bias
    )
    assert o.dtype == dtype and is_finite((o, grads))


@pytest.mark.held_by(1)
@pytest.mark.parametrize("label", [-100, -1, 7, 2**31 - 1])
def test_an_invalid_label_with_weight_0_does_no_harm(label):
    logits_BV = jax.random.normal(jax.random.key(0), (3, 7))
    targets, weights = jnp.array([2, label, 5]), jnp.array([1.0, 0.0, 1.0])
    (nats, hits), d = jax.value_and_grad(
        lambda x: cross_entropy(x, targets, weights), has_aux=True
    )(logits_BV)
    (expected, same), d_expected = jax.value_and_grad(
        lambda x: cross_entropy(x, jnp.array([2, 0, 5]), weights), has_aux=True
    )(logits_BV)
    assert nats == expected and hits == same and (d == d_expected).all()


def empty_rows(batch, rows):
    """Return the batch with only padding in the given rows."""
    empty = {key: value.copy() for key, value in batch.items()}
    for key in (
        key
        for key in batch
        if key.endswith(("weights", "attention_mask", "segment_ids", "token_type_ids"))
    ):
        empty[key][rows] = 0
    return empty


MODELS = [("bert_pairs", "bfloat16"), ("t5", "float32"), ("transformer", "bfloat16")]


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("name", "compute"), MODELS)
def test_a_batch_of_padding_has_loss_0(runs, random_batch, name, compute):
    """The whole batch, and a single row; models that do not read their targets also get labels of
    -100 and below.
    """
    run = dataclasses.replace(runs[name], data=dataclasses.replace(runs[name].data, batch_size=4))
    model, loss = build(run.model), find_loss(run.data.objective.name)
    params = jax.jit(lambda: init_params(model, run.data.objective, 0))()

    @jax.jit
    @jax.value_and_grad
    def compute_value(params, batch):
        sums = loss.sum_batch(
            model,
            params,
            batch,
            train=True,
            dropout_key=jax.random.key(0),
            options=LossOptions(compute_dtype=compute),
        )
        totals = loss.sum_weights(batch)
        return loss.compute_loss(
            {name: sums[name] / jnp.maximum(totals[name], 1.0) for name in loss.loss_terms}
        )

    whole = random_batch(run)
    some, none = empty_rows(whole, slice(1, 3)), empty_rows(whole, slice(None))
    if not {"encoder_token_ids", "encoder_attention_mask"} & whole.keys():
        some["labels"][1:3] = -100
        none["labels"][:, ::2], none["labels"][:, 1::2] = -100, 2**31 - 1
    seen, grads = compute_value(params, some)
    assert seen > 1 and is_finite((seen, grads))
    seen, grads = compute_value(params, none)
    assert seen == 0 and all(not leaf.any() for leaf in jax.tree.leaves(grads))
