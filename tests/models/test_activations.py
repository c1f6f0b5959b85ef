"""Captured activations are those that the model computes, and capturing changes nothing."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.activations import capture_activations
from models.config.gpt3 import Gpt3Config
from models.gpt import Gpt, GptEmbeddings, make_layer
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

GPT3 = Gpt3Config(vocab=50, length=32, width=24, num_heads=3, depth=4, mlp=40, window=3)
VALID = jnp.arange(9) < jnp.array([[9], [6]])
TOKENS = jnp.asarray(np.random.default_rng(0).integers(5, 50, VALID.shape), jnp.int32)


def observe_jitted(model, params, *arguments, method):
    return jax.jit(lambda params: capture_activations(model, params, *arguments, method=method))(
        params
    )


@pytest.mark.parametrize(("name", "scan"), [("bert", True), ("albert", True), ("gpt3", True)])
def test_the_last_state_is_the_models(make, tiny_configs, name, scan):
    """Scanned, shared and two-layer bodies give as many states as the model has layers, all
    different, and the last is the output.
    """
    config = dataclasses.replace((tiny_configs | {"gpt3": GPT3})[name], scan=scan, remat=True)
    model, params = make(config)
    arguments, method = (
        ((TOKENS,), "compute_states") if name == "gpt3" else ((TOKENS, VALID), "encode")
    )
    output, states, weights = observe_jitted(model, params, *arguments, method=method)
    expected = jax.jit(partial(model.apply, method=method))({"params": params}, *arguments)
    for ours, theirs in zip(jax.tree.leaves(output), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    np.testing.assert_array_equal(states[-1], jax.tree.leaves(output)[0])
    assert (
        len(states) == config.depth + 1
        and weights.keys() == {"attention"}
        and len(weights["attention"]) == config.depth
    )
    assert len({np.asarray(state).tobytes() for state in states}) == len(states)
    for each in weights["attention"]:
        assert each.shape == (2, config.num_heads, 9, 9)
        np.testing.assert_allclose(each.sum(axis=-1), 1, atol=1e-5)
        assert name == "gpt3" or not each[1, :, :, 6:].any()  # padding is ignored
    if name == "gpt3":
        dense, banded = (np.asarray(each) != 0 for each in weights["attention"][:2])
        back = np.arange(9)[:, None] - np.arange(9)
        assert (dense == (back >= 0)).all() and (banded == ((back >= 0) & (back < 3))).all()


def test_both_halves_of_an_encoder_decoder(make, t5_config):
    model, params = make(t5_config)
    memory_BMD, _, weights = observe_jitted(model, params, TOKENS, VALID, method="encode")
    assert weights.keys() == {"attention"}
    _, states, weights = observe_jitted(
        model, params, memory_BMD, VALID, TOKENS[:, :5], method="decode"
    )
    assert len(states) == 4 and {name: len(each) for name, each in weights.items()} == {
        "attention": 3,
        "cross": 3,
    }
    assert (
        weights["cross"][0].shape == (2, 3, 5, 9)
        and not np.asarray(weights["cross"])[:, 1, :, :, 6:].any()
    )
    with pytest.raises(ValueError, match="T5.compute_states goes through 2 stacks"):
        observe_jitted(model, params, TOKENS, VALID, TOKENS[:, :5], method="compute_states")


def test_capturing_leaves_no_trace(make, bert_config):
    """The compiled program of a model is identical before and after a capture."""
    model, (_, params) = build(bert_config), make(bert_config)

    def print_jaxpr():
        return str(
            jax.make_jaxpr(partial(model.apply, method="encode"))({"params": params}, TOKENS, VALID)
        )

    before = print_jaxpr()
    observe_jitted(model, params, TOKENS, VALID, method="encode")
    assert print_jaxpr() == before


class FirstLayerApart(Gpt):
    """A decoder whose first layer has other modules than the rest, and stands before their stack."""

    def setup(self):
        c = self.config
        layer = make_layer(c, PostNormLayer, self.ops)
        self.embeddings, self.first = GptEmbeddings(c, self.ops), layer()
        self.decoder = Stack(layer, c.depth - 1, scan=c.scan, ops=self.ops)

    def run_layers(self, token_ids, train, step, masked_positions):
        x_BLD = self.first(self.embeddings(token_ids, train, step), train)
        return self.decoder(x_BLD, train)


def test_a_layer_outside_of_the_stack_is_no_embedding(tiny_configs):
    """Its output would be layer 0, and every layer after it off by one."""
    model = FirstLayerApart(tiny_configs["gpt"])
    params = model.init(jax.random.key(0), TOKENS)["params"]
    with pytest.raises(
        ValueError, match="FirstLayerApart.compute_states has 2 hidden states, .* have 3"
    ):
        observe_jitted(model, params, TOKENS, method="compute_states")
