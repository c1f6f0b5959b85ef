"""Greedy decoding is the plain loop: score everything written so far, append the likeliest word, until the end."""

import dataclasses
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import Gpt3Config
from models.decoding import extend, generate

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


# ---- a decoder alone -------------------------------------------------------------


class Successor(Counter):
    """The same as a decoder alone."""

    def states(self, tokens_BL):
        jax.debug.callback(self.asked)
        return tokens_BL[..., None].astype(jnp.float32)


def test_rows_of_different_lengths_go_on_behind_their_own_last_token():
    """What pads a row is overwritten, each row stops at its end, and all stop when the last one has."""
    calls = []
    tokens = np.array([[4, 5, 6, 7], [9, 90, 90, 90]], np.int32)
    how = {"size": 100, "length": 9}
    found = extend(Successor(lambda: calls.append(1)), {}, tokens, np.array([4, 1]), end=11, **how)
    jax.effects_barrier()
    assert found.tolist() == [[8, 9, 10, 11] + [11] * 5, [10, 11] + [11] * 7] and len(calls) == 4
    assert extend(Successor(lambda: None), {}, tokens, np.array([4, 1]), **how).tolist() == [list(range(8, 17)), list(range(10, 19))]


def test_ids_beyond_the_size_are_never_written():
    found = extend(Successor(lambda: None), {}, np.array([[4]], np.int32), np.array([1]), length=4, size=7)
    assert found.tolist() == [[5, 6, 6, 6]]


def test_a_continuation_is_the_plain_loop(make):
    """GPT-3 of narrow bands: each word the likeliest of a call that reads the row so far and nothing behind it."""
    config = Gpt3Config(vocab=50, length=24, width=16, depth=2, heads=2, mlp=24, window=3)
    model, params = make(config)
    params = jax.tree.map(lambda leaf: 3 * leaf, params)
    lengths = np.array([9, 5, 2], np.int32)
    found = extend(model, params, INPUTS, lengths, length=6, size=50)
    score = jax.jit(lambda tokens: model.apply({"params": params}, tokens))
    for row, length, written in zip(INPUTS, lengths, found):
        row = np.pad(row[:length], (0, 15 - length))
        for t in range(6):
            row[length + t] = score(row[None])[0, length + t - 1].argmax()
        assert row[length : length + 6].tolist() == written.tolist()
    assert len({word for row in found.tolist() for word in row}) > 4
