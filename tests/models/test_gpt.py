"""GPT, GPT-2 and GPT-3 as in their papers: sizes, attention patterns, norms, initialisation."""

import dataclasses
from functools import partial

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.gpt3 import Gpt3Config
from models.gpt2 import make_scaled_layer
from models.layers.masks import make_causal_mask
from models.layers.ops import PLAIN, attend

TOKENS = np.random.default_rng(0).integers(1, 50, (3, 12)).astype(np.int32)
SHAPE = dict(vocab=50, length=32, width=24, depth=2, num_heads=3, mlp=40)
GPT, GPT2, GPT3 = (
    GptConfig(**SHAPE),
    Gpt2Config(**SHAPE),
    Gpt3Config(**SHAPE | {"depth": 4}, window=3),
)
EACH = pytest.mark.parametrize(
    "config", [GPT, GPT2, GPT3], ids=lambda config: type(config).__name__
)


def init_params(config):
    return build(config).init(jax.random.key(0), jnp.ones((1, 2), jnp.int32))["params"]


# ---- sizes -----------------------------------------------------------------------


# ---- attention patterns --------------------------------------------------------


def test_a_banded_layer_reads_its_window_and_no_further(make):
    """With a window of 3, the position itself and two later ones attend to a token; without one,
    all later ones.
    """
    _, params = make(dataclasses.replace(GPT3, depth=2))
    pair = jax.tree.map(lambda leaf: np.array(leaf)[0], params["decoder"]["layers"])
    x = np.random.default_rng(1).standard_normal((1, 12, 24)).astype(np.float32)
    other = x.copy()
    other[0, 4] += 1.0
    run = jax.jit(
        lambda x, mask: make_scaled_layer(GPT3, PLAIN)().apply(
            {"params": pair["banded"]}, x, False, mask=mask
        )
    )
    for mask, reach in ((make_causal_mask(window=3), 2), (make_causal_mask(), 7)):
        one, changed = np.array(run(x, mask)), np.array(run(other, mask))
        difference = np.abs(changed - one).max(-1)[0]
        assert np.flatnonzero(difference).tolist() == list(range(4, 4 + reach + 1))


def test_dense_and_banded_layers_take_turns(make):
    """Section 2.1. Records the mask of each of four layers, in order."""
    config = dataclasses.replace(GPT3, scan=False)
    _, params = make(config)
    read = []
    ops = PLAIN._replace(
        attend=lambda q, k, v, **kw: read.append(kw["mask"]) or attend(q, k, v, **kw)
    )
    model = build(config, ops=ops)
    jax.eval_shape(model.apply, {"params": params}, TOKENS)
    assert [(mask.causal, mask.window) for mask in read] == [(True, None), (True, 3)] * 2


def test_gpt3_without_bands_is_gpt2(make):
    """ "The same model and architecture as GPT-2" except for the bands (section 2.1): a window over
    the whole row is none.
    """
    config = dataclasses.replace(GPT3, window=12, scan=False)
    model, params = make(config)
    layers = [
        params["decoder"][f"layer_{i}"][kind] for i in range(2) for kind in ("dense", "banded")
    ]
    same = params | {"decoder": {f"layer_{i}": layer for i, layer in enumerate(layers)}}
    gpt2 = build(Gpt2Config(**SHAPE | {"depth": 4}, scan=False))
    expected = np.array(jax.jit(gpt2.apply)({"params": same}, TOKENS))
    np.testing.assert_allclose(
        jax.jit(model.apply)({"params": params}, TOKENS), expected, atol=1e-5
    )
    narrow = build(dataclasses.replace(config, window=11))
    assert np.abs(jax.jit(narrow.apply)({"params": params}, TOKENS) - expected).max() > 1e-4


def test_an_odd_depth_of_gpt3_is_refused():
    with pytest.raises(
        ValueError,
        match="a depth of 3 is odd; it must be even, because dense and locally banded layers",
    ):
        jax.eval_shape(lambda: init_params(dataclasses.replace(GPT3, depth=3)))


# ---- the norm --------------------------------------------------------------------


def is_normed(x):
    """Return whether each state has mean 0 and variance 1, up to epsilon, which matters for small
    first states.
    """
    return abs(x.mean(-1)).max() < 1e-3 and abs(x.var(-1) - 1).max() < 0.05


def test_the_norm_moves_between_gpt_and_gpt2():
    """GPT's layers end with a norm (Vaswani's); GPT-2's begin with one, and a final norm follows
    them (section 2.3).
    """
    for config, within in ((GPT, True), (GPT2, False)):
        model = build(dataclasses.replace(config, scan=False))
        run = partial(
            model.init_with_output,
            jax.random.key(0),
            method="compute_states",
            capture_intermediates=True,
            mutable=True,
        )
        states, variables = jax.device_get(jax.jit(run)(TOKENS))
        layers = [
            variables["intermediates"]["decoder"][f"layer_{i}"]["__call__"][0] for i in range(2)
        ]
        assert all(is_normed(x) == within for x in layers)
        assert ("norm" in variables["params"]) is not within
        assert is_normed(states)


# ---- initialisation ------------------------------------------------------------


@pytest.mark.held_by(1)
@EACH
def test_initialisation(config):
    """Kernels are normal with deviation 0.02, not truncated; GPT-2's and GPT-3's residual kernels
    divided by the root of twice the depth; biases 0, norms 1.
    """
    config = dataclasses.replace(
        config, vocab=300, length=64, width=64, depth=8, num_heads=4, mlp=200
    )
    residual = 1.0 if type(config) is GptConfig else 16**-0.5
    for path, leaf in flax.traverse_util.flatten_dict(
        jax.device_get(jax.jit(lambda: init_params(config))()), sep="/"
    ).items():
        if path.endswith("bias"):
            assert not leaf.any(), path
        elif path.endswith("scale"):
            assert (leaf == 1).all(), path
        else:
            smaller = residual if path.endswith(("out/kernel", "down/kernel")) else 1.0
            assert abs(leaf.std() / (0.02 * smaller) - 1) < 0.05, path
            assert abs(leaf).max() > 0.05 * smaller, path


@pytest.mark.held_by(1)
@EACH
def test_words_are_predicted_by_their_own_embeddings(make, config):
    """A token that is in no input row affects only its own logit."""
    model, params = make(config)
    tokens = np.where(TOKENS == 9, 8, TOKENS)
    run = jax.jit(lambda params: model.apply({"params": params}, tokens))
    before = np.array(run(params))
    moved = jax.tree.map(np.array, params)
    moved["embeddings"]["token_embedding"]["embedding"][9] += 1.0
    assert (np.abs(np.array(run(moved)) - before).max((0, 1)) > 1e-2).tolist() == [
        word == 9 for word in range(50)
    ]


# ---- options of the computation ------------------------------------------------


@pytest.mark.held_by(2)
@EACH
@pytest.mark.parametrize(
    ("dropout", "attention_dropout", "outside", "a_layer"),
    [(0.1, 0.0, 1, 2), (0.0, 0.1, 0, 1), (0.0, 0.0, 0, 0)],
)
def test_dropout_falls_where_the_paper_drops(
    config, dropouts, dropout, attention_dropout, outside, a_layer
):
    """ "Residual, embedding, and attention dropouts" (Radford et al. 2018, section 4.1)."""
    c = dataclasses.replace(
        config, dropout=dropout, attention_dropout=attention_dropout, scan=False
    )
    run = partial(
        build(c).init_with_output,
        {"params": jax.random.key(0), "dropout": jax.random.key(0)},
        TOKENS,
    )
    assert dropouts(partial(run, train=True)) - dropouts(run) == outside + a_layer * c.depth
