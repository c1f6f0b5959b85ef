"""LSTM language models as in their papers: `torch.nn.LSTM`, sizes, the state, generation."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from models.activations import capture_activations
from models.config.lstm_lm import LstmLmConfig
from models.generation.decoding import BeamSearch, continue_prompts
from models.layers.cache import CARRY, DecodingStep
from models.layers.layer_layout import unstack_layers
from models.layers.recurrent.lstm import Lstm
from tests.models.decoders import check_continuation

TINY = LstmLmConfig(vocab=50, width=12, depth=3, dropout=0.0)
CONFIGS = {
    "untied": TINY,
    "tied": dataclasses.replace(TINY, tied=True, forget_bias=1.0),
    "unrolled": dataclasses.replace(TINY, scan=False),
}
TOKENS = np.random.default_rng(0).integers(0, 50, (3, 16)).astype(np.int32)
for_configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@partial(jax.jit, static_argnums=0)
def read_rows(model, params, token_ids, state=None, **inputs):
    """Return (logits, the state after the rows)."""
    variables = {"params": params, **(state or {})}
    return model.apply(variables, token_ids, mutable=[CARRY], **inputs)


# ---- an independent computation --------------------------------------------------


@pytest.mark.more
@for_configs
def test_logits_are_those_of_torch(make, config):
    torch = pytest.importorskip("torch")
    model, params = make(config)
    params = jax.tree.map(np.asarray, params)
    lstm = torch.nn.LSTM(config.width, config.width, config.depth, batch_first=True)
    layers = unstack_layers(params["decoder"]) if config.scan else params["decoder"]
    with torch.no_grad():
        for i in range(config.depth):
            layer, forget = layers[f"layer_{i}"]["lstm"], np.zeros((4, config.width), np.float32)
            forget[1] = config.forget_bias
            values = {
                "weight_ih": layer["input"]["kernel"].T,
                "weight_hh": layer["recurrent"]["kernel"].T,
                "bias_ih": layer["input"]["bias"],
                "bias_hh": forget.reshape(-1),
            }
            for name, value in values.items():
                getattr(lstm, f"{name}_l{i}").copy_(torch.from_numpy(np.array(value)))
        table_VD = params["token_embedding"]["embedding"]
        x = torch.from_numpy(table_VD[TOKENS])
        h, (last, cells) = (part for part in lstm(x))
        kernel_DV = table_VD.T if config.tied else params["lm_head"]["kernel"]
        expected = h.numpy() @ kernel_DV + params["lm_head"]["bias"]
    logits, state = read_rows(model, params, TOKENS)
    np.testing.assert_allclose(logits, expected, atol=2e-5)
    if config.scan:
        found = state[CARRY]["decoder"]["layers"]
        np.testing.assert_allclose(found["cells"], cells.numpy().swapaxes(0, 1), atol=2e-5)
        np.testing.assert_allclose(found["output"], last.numpy().swapaxes(0, 1), atol=2e-5)


# ---- sizes -----------------------------------------------------------------------


# ---- the state -------------------------------------------------------------------


@pytest.mark.held_by(1)
@for_configs
def test_two_rows_with_the_state_between_are_one_row(make, config):
    model, params = make(config)
    whole, last = read_rows(model, params, TOKENS)
    first, state = read_rows(model, params, TOKENS[:, :5])
    second, behind = read_rows(model, params, TOKENS[:, 5:], state)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=2e-6)
    jax.tree.map(partial(np.testing.assert_allclose, atol=2e-6), behind, last)


def test_a_row_that_does_not_continue_begins_with_zeros(make):
    model, params = make(TINY)
    _, state = read_rows(model, params, TOKENS[:, :8])
    is_continued = np.array([True, False, True])
    found, _ = read_rows(model, params, TOKENS[:, 8:], state, is_continued=is_continued)
    alone, _ = read_rows(model, params, TOKENS[:, 8:])
    whole, _ = read_rows(model, params, TOKENS)
    found, alone, whole = np.array(found), np.array(alone), np.array(whole)
    np.testing.assert_allclose(found[1], alone[1], atol=2e-6)
    np.testing.assert_allclose(found[::2], whole[::2, 8:], atol=2e-6)
    assert np.abs(alone[::2] - whole[::2, 8:]).max() > 1e-2


def test_a_document_within_a_row_begins_with_zeros_and_padding_is_not_read(make):
    """The first row continues the state with its first document alone."""
    model, params = make(TINY)
    segments = np.ones((3, 16), np.int32)
    segments[0, 6:] += 1
    segments[1, 9:] = 0
    _, before = read_rows(model, params, TOKENS[:, ::-1])
    found, state = read_rows(model, params, TOKENS, before, segment_ids=segments)
    plain, _ = read_rows(model, params, TOKENS, before)
    (found, state), plain = jax.tree.map(np.array, (found, state)), np.array(plain)
    np.testing.assert_allclose(found[0, :6], plain[0, :6], atol=2e-6)
    np.testing.assert_allclose(found[2], plain[2], atol=2e-6)
    alone, ends = read_rows(model, params, TOKENS[:1, 6:])
    np.testing.assert_allclose(found[:1, 6:], alone, atol=2e-6)
    _, short = read_rows(
        model, params, TOKENS[1:2, :9], jax.tree.map(lambda x: np.array(x)[1:2], before)
    )
    for row, expected in ((0, ends), (1, short)):
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a[row], np.array(b)[0], atol=2e-6)


def test_no_gradient_flows_into_the_state(make):
    model, params = make(TINY)
    _, state = read_rows(model, params, TOKENS)
    compute_gradient = jax.jit(
        jax.grad(lambda state: read_rows(model, params, TOKENS, state)[0].sum())
    )
    gradient = compute_gradient(state)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_a_state_of_another_batch_is_refused(make):
    model, params = make(TINY)
    _, state = read_rows(model, params, TOKENS)
    with pytest.raises(ValueError, match=r"shape \[3, 12\]: it must be \[2, 12\].*batch size"):
        read_rows(model, params, TOKENS[:2], state)


# ---- generation ------------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
def test_a_continuation_is_the_plain_loop(make, scan):
    """Each token is the likeliest of a call on the whole row, after prompts of three lengths."""
    model, params = make(CONFIGS["tied"])
    params = jax.tree.map(lambda leaf: 3 * np.array(leaf), params)
    check_continuation(model, params, TOKENS, np.array([16, 7, 1]), 9, scan)


def test_hypotheses_of_a_beam_have_their_own_states(make):
    """As many beams as hypotheses exist find the likeliest one, by a sum over all of them."""
    model, params = make(dataclasses.replace(TINY, vocab=4))
    params = jax.tree.map(lambda leaf: 4 * np.array(leaf), params)
    prompts, lengths, T = TOKENS[:, :5] % 4, np.array([5, 3, 1]), 3
    found = continue_prompts(
        model, params, prompts, lengths, length=T, strategy=BeamSearch(4**T, 0.0)
    )
    endings = np.stack(np.meshgrid(*[np.arange(4)] * T, indexing="ij"), -1).reshape(-1, T)
    score = jax.jit(lambda rows: jax.nn.log_softmax(model.apply({"params": params}, rows)))
    for b, length in enumerate(lengths):
        rows = np.concatenate([np.tile(prompts[b, :length], (4**T, 1)), endings], axis=1)
        padded = np.pad(rows, ((0, 0), (0, 5 - length)))  # one program reads all three lengths
        logits = np.asarray(score(padded))[:, length - 1 : length - 1 + T]
        scores = np.take_along_axis(logits, endings[..., None], -1).sum((1, 2))
        assert found[b].tolist() == endings[scores.argmax()].tolist()


def test_a_step_reads_one_token_and_no_position(make):
    """What a step computes has no axis of the tokens that were read before."""
    model, params = make(TINY)
    _, state = read_rows(model, params, TOKENS)
    step = DecodingStep(np.full(3, 16, np.int32), 1_013)
    jaxpr = jax.make_jaxpr(partial(model.apply, mutable=[CARRY], method="compute_states"))(
        {"params": params, **state}, TOKENS[:, :1], step=step
    )
    assert "1013" not in str(jaxpr) and all(
        dim not in (16, 17) for value in jaxpr.out_avals for dim in value.shape
    )


def test_a_step_without_a_prompt_is_refused(make):
    model, params = make(TINY)
    step = DecodingStep(np.zeros(3, np.int32), 4)
    with pytest.raises(ValueError, match="a decoding step needs the state of a prompt"):
        model.apply({"params": params}, TOKENS[:, :1], step=step, method="compute_states")


# ---- dropout and activations -----------------------------------------------------


def test_dropout_is_between_the_layers_alone(make):
    """With a rate near 1 all inputs of all layers are dropped, and the output. What is left is each
    layer with inputs of 0, along whose rows nothing is dropped.
    """
    config = dataclasses.replace(TINY, scan=False, dropout=0.999_999)
    model, params = make(config)
    apply = partial(model.apply, train=True, mutable=["cells"], method="compute_states")
    states, dropped = jax.jit(apply)(
        {"params": params}, TOKENS, rngs={"dropout": jax.random.key(1)}
    )
    read_layer = jax.jit(partial(Lstm(config.width).apply, method="compute_states"))
    assert not np.asarray(states).any()
    for i in range(config.depth):
        layer = params["decoder"][f"layer_{i}"]["lstm"]
        zeros = np.zeros((3, 16, config.width), np.float32)
        expected, _ = read_layer({"params": layer}, zeros)
        (found,) = dropped["cells"]["decoder"][f"layer_{i}"]["cells"]
        np.testing.assert_allclose(found, expected.cells_BC, atol=2e-6)


def test_layers_are_captured(make):
    model, params = make(TINY)
    capture = partial(capture_activations, model, method="compute_states")
    seen = jax.jit(capture)(params, TOKENS)
    assert len(seen.hidden_states) == 4 and not seen.attention_weights
    expected = jax.jit(partial(model.apply, method="compute_states"))({"params": params}, TOKENS)
    np.testing.assert_allclose(seen.hidden_states[-1], expected, atol=2e-6)
    table = np.asarray(params["token_embedding"]["embedding"])
    np.testing.assert_array_equal(seen.hidden_states[0], table[TOKENS])
