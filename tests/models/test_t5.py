"""T5 as in its paper and its code: sizes, relative positions, causality, initialisation and
dropout.
"""

import dataclasses
from functools import partial

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.t5 import T5Config
from models.layers.encoder_decoder import shift_right
from models.layers.ops import PLAIN, attend
from models.t5 import RelativeBias, bucket_distances

LENGTHS = np.array([11, 6, 3])
VALID = np.arange(11) < LENGTHS[:, None]
INPUTS = np.where(VALID, np.random.default_rng(0).integers(2, 50, (3, 11)), 0).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(1, 50, (3, 6)).astype(np.int32)


def init_params(config):
    ids = jnp.ones((1, 2), jnp.int32)
    return build(config).init(jax.random.key(0), ids, ids > 0, ids)["params"]


def test_initialisation():
    """As in the paper's code: 1 over the root of the fan-in; for queries also over the root of K,
    as scores are not scaled.
    """
    shape = {
        "vocab": 400, "width": 64, "depth": 2, "decoder_depth": 2, "num_heads": 4,
        "head_width": 24, "mlp": 160,
    }  # fmt: skip
    config = T5Config(**shape, gated=True, tied=False)
    deviations = {
        "token_embedding/embedding": 1.0,
        "query/kernel": (64 * 24) ** -0.5,
        "key/kernel": 64**-0.5,
        "value/kernel": 64**-0.5,
        "out/kernel": (4 * 24) ** -0.5,
        "gate/kernel": 64**-0.5,
        "up/kernel": 64**-0.5,
        "down/kernel": 160**-0.5,
        "lm_head/kernel": 64**-0.5,
        "bias/table": 64**-0.5,
    }
    for path, leaf in flax.traverse_util.flatten_dict(
        jax.device_get(jax.jit(lambda: init_params(config))()), sep="/"
    ).items():
        if path.endswith("scale"):
            assert (leaf == 1).all(), path
            continue
        (deviation,) = (deviation for end, deviation in deviations.items() if path.endswith(end))
        assert abs(leaf.std() / deviation - 1) < (0.03 if leaf.size > 5000 else 0.25), path


# ---- distances -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["both_32_128", "past_32_128", "both_8_20"])
def test_buckets_equal_the_goldens(golden, root, name):
    from safetensors.numpy import load_file

    tables = load_file(root / "tests" / "goldens" / "t5_buckets.safetensors")
    direction, buckets, farthest = name.split("_")
    found = bucket_distances(
        tables["distances"].astype(int),
        bidirectional=direction == "both",
        num_buckets=int(buckets),
        max_distance=int(farthest),
    )
    np.testing.assert_array_equal(found, tables[name])


def test_buckets_near_are_exact_and_far_are_shared():
    """Section 2.1: 32 buckets, logarithmically wider up to an offset of 128, beyond which all
    offsets share one.
    """
    distances = np.arange(0, 1000)
    ahead = bucket_distances(distances, bidirectional=True)
    assert ahead[1:8].tolist() == [16 + i for i in range(1, 8)] and (np.diff(ahead[1:]) >= 0).all()
    assert (ahead[128:] == 31).all() and ahead[90] == 30
    behind = bucket_distances(-distances, bidirectional=True)
    assert (behind[1:] == ahead[1:] - 16).all()
    alone = bucket_distances(-distances, bidirectional=False)
    assert (
        alone[:16].tolist() == list(range(16))
        and (alone[128:] == 31).all()
        and len(set(alone)) == 32
    )
    assert not bucket_distances(distances, bidirectional=False).any()


@pytest.mark.parametrize("setting", [dict(num_buckets=2), dict(num_buckets=32, max_distance=8)])
def test_invalid_buckets_are_refused(setting):
    with pytest.raises(ValueError, match="buckets"):
        bucket_distances(np.arange(4), bidirectional=True, **setting)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("L", "M"), [(9, 9), (4, 9), (9, 4), (1, 1)])
def test_bias_is_the_table_by_distance(t5_config, bidirectional, L, M):
    """Each entry depends on its distance alone, so one bias serves every position; so does its
    gradient.
    """
    module = RelativeBias(t5_config, bidirectional)
    params = jax.device_get(jax.jit(module.init, static_argnums=(1, 2))(jax.random.key(0), L, M))
    table = params["params"]["table"]
    distance = np.arange(M)[None] - np.arange(L)[:, None]
    which = bucket_distances(distance, bidirectional=bidirectional, num_buckets=8, max_distance=20)
    weight = np.random.default_rng(1).standard_normal((1, 3, L, M), np.float32)

    @jax.jit
    @partial(jax.grad, has_aux=True)
    def compute_gradient(params):
        bias = module.apply(params, L, M)
        return (weight * bias).sum(), bias

    found, bias = compute_gradient(params)
    np.testing.assert_array_equal(bias, table[which].transpose(2, 0, 1)[None])
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    assert (
        jax.eval_shape(lambda: module.apply(low, L, M)).dtype == jnp.float32
    )  # the gradients of all layers add up there
    expected = np.zeros(table.shape)
    np.add.at(expected, which, np.asarray(weight[0].transpose(1, 2, 0)))
    np.testing.assert_allclose(found["params"]["table"], expected, atol=1e-5)


# ---- what attends to what --------------------------------------------------------


@pytest.fixture(scope="module")
def encode(make, t5_config):
    model, params = make(t5_config)
    run = jax.jit(partial(model.apply, {"params": params}, method="encode"))
    return lambda *read: np.array(run(*read))


def test_encoder_depends_on_relative_positions_only(encode):
    """Tokens shifted past masked positions have the same states: only distances matter."""
    states = encode(INPUTS[1:2, :6], VALID[1:2, :6])
    moved, there = np.full((1, 11), 7, np.int32), np.zeros((1, 11), bool)
    moved[:, 4:10], there[:, 4:10] = INPUTS[1:2, :6], True
    np.testing.assert_allclose(encode(moved, there)[:, 4:10], states, atol=5e-6)
    turned = encode(INPUTS[1:2, 5::-1], VALID[1:2, :6])[:, ::-1]
    assert not np.allclose(turned, states, atol=1e-2)


def test_shift_right():
    assert shift_right(jnp.array([[5, 6, 7]])).tolist() == [[0, 5, 6]]


@pytest.mark.parametrize(("tied", "gated"), [(True, False), (False, True)])
def test_logits_of_tied_and_untied_words(make, t5_config, tied, gated):
    """If tied, the table is scaled by 1/sqrt(D) for the logits, as in the paper's code."""
    model, params = make(dataclasses.replace(t5_config, tied=tied, gated=gated))
    params = jax.device_get(params)
    y = np.random.default_rng(0).standard_normal((2, 3, 24), np.float32)
    table = (
        params["token_embedding"]["embedding"].T / 24**0.5 if tied else params["lm_head"]["kernel"]
    )
    found = jax.jit(partial(model.apply, method="compute_logits"))({"params": params}, y)
    np.testing.assert_allclose(found, y @ table, atol=1e-5)
    assert ("lm_head" in params) != tied and ("gate" in params["encoder"]["layers"]["mlp"]) == gated


# ---- options of the computation --------------------------------------------------


def test_dropout_is_where_the_papers_code_has_it(t5_config, dropouts):
    """Dropout is on the embeddings, the attention weights, the output of each sub-layer, inside the
    MLP, and after the last norm.
    """
    c = dataclasses.replace(t5_config, scan=False)
    run = partial(
        build(c).init_with_output, {"params": jax.random.key(0), "dropout": jax.random.key(0)}
    )
    run = partial(run, INPUTS, VALID, TARGETS)
    drawn = dropouts(partial(run, train=True)) - dropouts(run)
    assert drawn == (1 + 4 * c.depth + 1) + (1 + 6 * c.decoder_depth + 1)


def test_dropout_drops_a_feature_of_a_row_everywhere(make, t5_config):
    """The paper's code draws one mask for all positions."""
    model, params = make(dataclasses.replace(t5_config, dropout=0.3))
    run = partial(model.apply, {"params": params}, INPUTS, VALID, train=True, method="encode")
    states = jax.jit(run)(rngs={"dropout": jax.random.key(0)})
    dropped = np.asarray(states) == 0
    assert (dropped == dropped[:, :1]).all() and 0.1 < dropped.mean() < 0.5
    assert not (dropped[0] == dropped[1]).all()


def test_attention_scores_are_not_scaled(make, t5_config):
    """The paper's code has the root of K in the initialisation, not in the computation."""
    read = []
    ops = PLAIN._replace(attend=lambda q, k, v, **kw: read.append(kw) or attend(q, k, v, **kw))
    model = build(t5_config, ops=ops)
    _, params = make(t5_config)
    jax.eval_shape(model.apply, {"params": params}, INPUTS, VALID, TARGETS)
    assert {kw["scale"] for kw in read} == {1.0}
