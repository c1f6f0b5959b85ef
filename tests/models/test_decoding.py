"""Greedy decoding is the plain loop: score everything written so far, append the likeliest word, until the end."""

import dataclasses
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoding import generate

VALID = np.arange(9) < np.array([9, 5, 2])[:, None]
INPUTS = np.where(VALID, np.random.default_rng(0).integers(2, 50, (3, 9)), 0).astype(np.int32)


@pytest.fixture(scope="module")
def writer(make, t5_config):
    """(module, parameters) of a T5 whose words are not tied and whose weights are large: it repeats itself less."""
    model, params = make(dataclasses.replace(t5_config, gated=True, tied=False))
    return model, jax.tree.map(lambda leaf: 4 * leaf, params)


@pytest.fixture(scope="module")
def slowly(writer):
    """Seven words a row by the model's own call, which shifts by itself: no `encode` or `decode`, no device loop."""
    model, params = writer
    score = jax.jit(lambda targets: model.apply({"params": params}, INPUTS, VALID, targets))
    written = np.zeros((3, 7), np.int32)
    for t in range(7):
        written[:, t] = np.argmax(score(written)[:, t], axis=-1)
    return written


def test_greedy_is_the_plain_loop(writer, slowly):
    found = generate(*writer, INPUTS, VALID, length=7, end=-1)
    np.testing.assert_array_equal(found, slowly)
    assert found.dtype == jnp.int32 and len(np.unique(found)) > 3


def test_rows_end_by_themselves(writer, slowly):
    """Each at its own end; what follows is padding."""
    end = int(slowly[0, 2])
    found = generate(*writer, INPUTS, VALID, length=7, end=end, pad=49)
    for row, written in zip(np.asarray(found), slowly, strict=True):
        stop = list(written).index(end) + 1 if end in written else 7
        assert row.tolist() == written[:stop].tolist() + [49] * (7 - stop)


def test_rows_do_not_know_of_each_other(writer, slowly):
    found = generate(*writer, INPUTS[1:2, :5], VALID[1:2, :5], length=7, end=-1)
    np.testing.assert_array_equal(found, slowly[1:2])


class Counter(nn.Module):
    """Writes the id after the last one read, and notes each time that it is asked."""

    asked: Callable = lambda: None

    def encode(self, inputs_BM, inputs_valid_BM):
        return inputs_BM[..., None].astype(jnp.float32)

    def decode(self, memory_BMD, inputs_valid_BM, tokens_BL):
        jax.debug.callback(self.asked)
        return tokens_BL[..., None].astype(jnp.float32)

    def logits(self, y_BLD):
        return -jnp.abs(jnp.arange(100.0) - (y_BLD + 1))


def test_it_begins_with_start_and_stops_when_all_rows_have_ended():
    calls = []
    found = generate(Counter(lambda: calls.append(1)), {}, INPUTS, VALID, length=50, start=20, end=23, pad=7)
    jax.effects_barrier()
    assert found.tolist() == [[21, 22, 23] + [7] * 47] * 3 and len(calls) == 3
