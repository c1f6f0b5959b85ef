"""LSTM encoder-decoders as in their papers: sizes, equations, `torch.nn.LSTM`, pairs that share a
row, decoding step by step, and the attention that is captured.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.activations import capture_activations
from models.config.seq2seq_lstm import Seq2SeqLstmConfig
from models.generation.cached_attention import apply_cached
from models.generation.decoding import BeamSearch, generate
from models.layers.cache import DecodingStep
from models.layers.ops import PLAIN, apply_linear

LENGTHS = np.array([9, 6, 3])
VALID = np.arange(9) < LENGTHS[:, None]
INPUTS = np.where(VALID, np.random.default_rng(0).integers(2, 50, (3, 9)), 0).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(1, 50, (3, 6)).astype(np.int32)
C, D, A = 6, 5, 7
SIZES = dict(vocab=50, width=C, embedding=D, mlp=A)
MODELS = {
    "plain": dict(direction="backward", score=None, depth=2),
    "plain_forward": dict(direction="forward", score=None),
    "bahdanau": dict(direction="bidirectional", score="additive"),
    "bahdanau_deep": dict(direction="bidirectional", score="additive", depth=2),
    "dot": dict(direction="backward", score="dot"),
    "general": dict(direction="bidirectional", score="general"),
    "concat": dict(direction="backward", score="concat", depth=2),
    "not_fed": dict(direction="forward", score="general", input_feeding=False),
}
WITH_ATTENTION = [name for name, settings in MODELS.items() if settings["score"]]


# Of decoders that differ in nothing which a beam search distinguishes, the board tries the others.
SEARCHED = ("plain", "bahdanau_deep", "concat", "not_fed")


@partial(jax.jit, static_argnums=0, static_argnames="method")
def run_model(model, params, *inputs, method=None, **segment_ids):
    """Return what a module computes: one program of each module and method."""
    return model.apply({"params": params}, *inputs, method=method, **segment_ids)


@pytest.fixture(params=MODELS)
def case(request, make):
    """Return (module, random parameters) of each model."""
    return make(Seq2SeqLstmConfig(**SIZES | MODELS[request.param]))


@pytest.fixture
def small(make):
    """Return small(name): (module, parameters as float64 numpy)."""

    def make_small(name):
        model, params = make(Seq2SeqLstmConfig(**SIZES | MODELS[name]))
        params = jax.tree.map(
            lambda leaf: 5 * np.array(leaf), params
        )  # else all weights are nearly equal
        return model, params, jax.tree.map(partial(np.asarray, dtype=np.float64), params)

    return make_small


# ---- sizes -----------------------------------------------------------------------


# ---- equations -------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max())
    return x / x.sum()


def step_lstm(p, x, state):
    """Return (c, h) after one position."""
    c, h = state
    gates = x @ p["input"]["kernel"] + p["input"]["bias"] + h @ p["recurrent"]["kernel"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def read_source(p, config, x_MD):
    """Return (outputs [M, E], the last state of each layer that the decoder starts from)."""
    last = []
    for layer in range(config.depth):
        both = []
        for direction in ("forward", "backward"):
            if config.direction not in (direction, "bidirectional"):
                continue
            order = range(len(x_MD)) if direction == "forward" else range(len(x_MD))[::-1]
            state, out = (np.zeros(C), np.zeros(C)), np.zeros((len(x_MD), C))
            for m in order:
                state = step_lstm(p[f"{direction}_{layer}"], x_MD[m], state)
                out[m] = state[1]
            both.append(out)
        x_MD = np.concatenate(both, axis=1)
        last.append(state)
    return x_MD, last


def score_states(p, name, q, states_ME):
    """Return the score of q and each state, one by one, as the papers print it."""
    scores = []
    for k in states_ME:
        if name == "dot":
            scores.append(q @ k)
        elif name == "general":
            scores.append(q @ (k @ p["key"]["kernel"]))
        elif name == "concat":  # v . tanh(W [q; k])
            W = np.concatenate([p["query"]["kernel"], p["key"]["kernel"]])
            scores.append(p["out"]["kernel"][:, 0] @ np.tanh(np.concatenate([q, k]) @ W))
        else:  # v . tanh(W q + U k)
            hidden = np.tanh(q @ p["query"]["kernel"] + k @ p["key"]["kernel"])
            scores.append(p["out"]["kernel"][:, 0] @ hidden)
    return np.array(scores)


def compute_logits(p, config, source, target):
    """Return the logits of one pair, position by position, in float64."""
    embedding, decoder = p["target_embedding"]["embedding"], p["decoder"]
    states_ME, starts = read_source(
        p["encoder"], config, p["source_embedding"]["embedding"][source]
    )
    if config.direction == "bidirectional":
        starts = [
            (c := h @ m["kernel"] + m["bias"], np.tanh(c))
            for (_, h), m in ((start, decoder[f"start_{i}"]) for i, start in enumerate(starts))
        ]
    fed, logits = np.zeros(C), []
    for token in [0, *target[:-1]]:
        y = embedding[token]
        x = y
        if config.score == "additive":
            weights = softmax(score_states(decoder["align"], "additive", starts[-1][1], states_ME))
            x = np.concatenate([y, weights @ states_ME])
        elif config.score and config.input_feeding:
            x = np.concatenate([y, fed])
        h = x
        for i in range(config.depth):
            starts[i] = step_lstm(decoder[f"layer_{i}"], h, starts[i])
            h = starts[i][1]
        if config.score == "additive":
            out = np.concatenate([h, x]) @ decoder["out"]["kernel"] + decoder["out"]["bias"]
            h = np.maximum(out[: C // 2], out[C // 2 :])
        elif config.score:
            weights = softmax(score_states(decoder.get("align"), config.score, h, states_ME))
            out = np.concatenate([weights @ states_ME, h]) @ decoder["out"]["kernel"]
            fed = h = np.tanh(out + decoder["out"]["bias"])
        logits.append(h @ p["lm_head"]["kernel"] + p["lm_head"]["bias"])
    return np.array(logits)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_equations(small, name):
    """Sources of 9, 6 and 3 tokens, padded to 9: padding is not read, either."""
    model, params, exact = small(name)
    logits = np.array(run_model(model, params, INPUTS, VALID, TARGETS))
    for row, length in enumerate(LENGTHS):
        expected = compute_logits(exact, model.config, INPUTS[row, :length], TARGETS[row])
        np.testing.assert_allclose(logits[row], expected, atol=2e-5)


# ---- packed pairs, and recomputation ---------------------------------------------


def pack_pairs():
    """Return (inputs, their segments, targets, their segments) of the three pairs in one row."""
    row, segments = np.zeros((2, 1, 20), np.int32), np.zeros((2, 1, 16), np.int32)
    at = to = 0
    for i, (n, m) in enumerate(zip(LENGTHS, (2, 6, 4))):
        row[:, 0, at : at + n] = INPUTS[i, :n], [i + 1] * n
        segments[:, 0, to : to + m] = TARGETS[i, :m], [i + 1] * m
        at, to = at + n, to + m
    return *row, *segments


@pytest.mark.held_by(1)
def test_pairs_in_a_row_are_as_in_rows_of_their_own(case):
    """Three pairs in one row with padding after them: the same logits as alone."""
    model, params = case
    inputs, source_ids, targets, target_ids = pack_pairs()
    segment_ids = {"encoder_segment_ids": source_ids, "decoder_segment_ids": target_ids}
    logits = np.array(run_model(model, params, inputs, source_ids > 0, targets, **segment_ids))
    alone = np.array(run_model(model, params, INPUTS, VALID, TARGETS))
    expected = np.concatenate([alone[i, :m] for i, m in enumerate((2, 6, 4))])
    np.testing.assert_allclose(logits[target_ids > 0], expected, atol=2e-6)


# ---- generation ------------------------------------------------------------------


@pytest.mark.held_by(1)
def test_steps_compute_what_teacher_forcing_does(case):
    """The logits of a whole row, from the steps' states. A step does not read the states from which
    the decoder starts: they are NaN.
    """
    model, params = case
    score = model.config.score
    variables = {"params": params}
    read = np.pad(TARGETS, ((0, 0), (1, 0)))[:, :-1]
    source = run_model(model, params, INPUTS, VALID, method="encode")
    decode = partial(apply_cached, model, method="decode")
    expected = run_model(model, params, INPUTS, VALID, TARGETS)
    states, cache = jax.jit(partial(decode, mutable=["cache", "carry", "memory"]))(
        variables, source, VALID, read[:, :1]
    )
    states = [states]
    unread = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), source.layers)
    memory = {"memory": cache.get("memory", {})}
    assert bool(memory["memory"]) == bool(score)

    @jax.jit
    def take_step(source, memory, carry, tokens, t):
        held = variables | memory | {"carry": carry}
        step = DecodingStep(jnp.full(3, t), 7)
        return decode(held, source, VALID, tokens, step=step, mutable=["carry"])

    source = source.replace(layers=unread)
    for t in range(1, 6):
        out, cache = take_step(source, memory, cache["carry"], read[:, t : t + 1], t)
        states.append(out)
    found = run_model(model, params, np.concatenate(states, axis=1), method="compute_logits")
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.held_by(1)
def test_a_step_without_a_prompt_is_refused(case):
    model, params = case
    variables = {"params": params}
    source = jax.eval_shape(partial(model.apply, method="encode"), variables, INPUTS, VALID)
    step = DecodingStep(jnp.zeros(3, jnp.int32), 7)
    with pytest.raises(
        ValueError, match="needs the state after a prompt in the collection 'carry'"
    ):
        jax.eval_shape(
            lambda source: model.apply(
                variables, source, VALID, INPUTS[:, :1], step=step, method="decode"
            ),
            source,
        )


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", MODELS)
def test_a_beam_of_all_prefixes_finds_the_likeliest(make, request, name):
    """Two tokens of a vocabulary of 50: 50 beams are an exhaustive search."""
    if name not in SEARCHED:
        request.getfixturevalue("whole")
    model, params = make(Seq2SeqLstmConfig(**SIZES | MODELS[name]))
    params = jax.tree.map(lambda leaf: 3 * np.array(leaf), params)
    first, second = np.divmod(np.arange(2500), 50)
    targets = np.stack([first, second], axis=1).astype(np.int32)

    @jax.jit
    def score(ids, valid):
        rows = jnp.repeat(ids[None], 2500, 0), jnp.repeat(valid[None], 2500, 0)
        logits = jax.nn.log_softmax(model.apply({"params": params}, *rows, targets))
        return jnp.take_along_axis(logits, targets[..., None], -1).sum((1, 2))

    found = generate(model, params, INPUTS, VALID, length=2, end=None, strategy=BeamSearch(50))
    for row in range(3):
        assert found[row].tolist() == targets[np.argmax(score(INPUTS[row], VALID[row]))].tolist()


# ---- attention that is captured ---------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_captured_weights_are_those_of_the_score(small, name):
    """They sum to 1 over the tokens of the source, and padding has none. Those of the first
    position are the softmax of the scores of its query.
    """
    model, params, exact = small(name)
    read = np.pad(TARGETS, ((0, 0), (1, 0)))[:, :-1]
    source = run_model(model, params, INPUTS, VALID, method="encode")
    capture = jax.jit(partial(capture_activations, model, method="decode"))
    seen = jax.tree.map(np.array, capture(params, source, VALID, read))
    (weights,) = seen.attention_weights["cross"]
    assert weights.shape == (3, 1, 6, 9)
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-6)
    hidden = np.broadcast_to(VALID[:, None, None], weights.shape)
    assert not weights[~hidden].any() and (weights[hidden] > 0).all()
    assert len(seen.hidden_states) == model.config.depth + 1
    expected = run_model(model, params, source, VALID, read, method="decode")
    np.testing.assert_allclose(seen.output, expected, atol=1e-6)
    if model.config.score == "additive":
        return  # its query is the state before; the logits depend on it
    for row, length in enumerate(LENGTHS):
        states_ME, query = np.float64(source.states_BME)[row, :length], seen.hidden_states[-1][row]
        for position in range(6):
            scores = score_states(
                exact["decoder"].get("align"),
                model.config.score,
                np.float64(query[position]),
                states_ME,
            )
            np.testing.assert_allclose(
                weights[row, 0, position, :length], softmax(scores), atol=2e-6
            )


def test_an_encoders_states_are_captured(small):
    model, params, exact = small("bahdanau_deep")
    capture = jax.jit(partial(capture_activations, model, method="encode"))
    seen = jax.tree.map(np.array, capture(params, INPUTS, VALID))
    embeddings, first, last = seen.hidden_states
    np.testing.assert_array_equal(
        embeddings, np.array(params["source_embedding"]["embedding"])[INPUTS]
    )
    np.testing.assert_array_equal(last, seen.output.states_BME)
    one_layer = dataclasses.replace(model.config, depth=1)
    expected, _ = read_source(exact["encoder"], one_layer, np.float64(embeddings[0]))
    np.testing.assert_allclose(first[0], expected, atol=1e-6)


# ---- torch -----------------------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize("direction", ["forward", "backward", "bidirectional"])
def test_the_encoder_is_torchs(make, direction):
    """Two layers, packed sequences of three lengths: outputs and last states. Of a backward encoder
    torch reads the reversed sources.
    """
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    config = Seq2SeqLstmConfig(**SIZES, direction=direction, depth=2, score=None)
    model, params = make(config)
    is_both = direction == "bidirectional"
    theirs = torch.nn.LSTM(D, C, num_layers=2, batch_first=True, bidirectional=is_both)
    weights = {}
    for name, p in params["encoder"].items():
        way, layer = name.split("_")
        end = f"l{layer}" + ("_reverse" if is_both and way == "backward" else "")
        weights[f"weight_ih_{end}"] = p["input"]["kernel"].T
        weights[f"weight_hh_{end}"] = p["recurrent"]["kernel"].T
        weights[f"bias_ih_{end}"] = p["input"]["bias"]
        weights[f"bias_hh_{end}"] = np.zeros(4 * C)
    theirs.load_state_dict(
        {
            name: torch.tensor(np.array(value), dtype=torch.float32)
            for name, value in weights.items()
        }
    )
    x = np.array(params["source_embedding"]["embedding"])[INPUTS]
    if direction == "backward":
        x = np.stack([np.concatenate([row[:n][::-1], row[n:]]) for row, n in zip(x, LENGTHS)])
    packed = pack_padded_sequence(torch.tensor(x), torch.tensor(LENGTHS), batch_first=True)
    outputs, (h, c) = theirs(packed)
    outputs = pad_packed_sequence(outputs, batch_first=True)[0].detach().numpy()
    source = jax.tree.map(np.array, run_model(model, params, INPUTS, VALID, method="encode"))
    for row, n in enumerate(LENGTHS):
        expected = outputs[row, :n][:: -1 if direction == "backward" else 1]
        np.testing.assert_allclose(source.states_BME[row, :n], expected, atol=2e-6)
        last = n - 1 if direction == "forward" else 0
        for layer, state in enumerate(source.layers):
            i = 2 * layer + 1 if is_both else layer
            np.testing.assert_allclose(state.output_BH[row, last], h[i, row].detach(), atol=2e-6)
            np.testing.assert_allclose(state.cells_BC[row, last], c[i, row].detach(), atol=2e-6)


# ---- bad input -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (dict(direction="bidirectional", score="dot"),
         "dot score of states of width 6 and of encoder states of width 12: .*model.score=general"),
        (dict(score="additive", width=7), r"a width of 7 is odd; it must be even, .*\(model.width\)"),
    ],
    ids=["dot", "odd"],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(make, settings, error):
    with pytest.raises(ValueError, match=error):
        make(Seq2SeqLstmConfig(**SIZES | settings))


def test_dropout_is_between_layers_and_at_both_ends(make, dropouts):
    """Zaremba et al. (2014): the recurrent connections have none. Embeddings and the encoder's
    second input, the decoder's embeddings, second input and output.
    """
    model, params = make(Seq2SeqLstmConfig(**SIZES, depth=2, dropout=0.1))
    run = partial(model.apply, {"params": params}, INPUTS, VALID, TARGETS, train=True)
    key = {"dropout": jax.random.key(0)}
    assert dropouts(partial(run, rngs=key)) == 5


def test_a_trainers_parts_reach_every_layer():
    """The encoder's outputs are constrained; linear maps are the trainer's."""
    config = Seq2SeqLstmConfig(**SIZES, depth=2)
    shapes, kernels = [], []
    ops = PLAIN._replace(
        constrain=lambda x: shapes.append(x.shape) or x,
        linear=lambda x, kernel, *how: (
            kernels.append(kernel.shape) or apply_linear(x, kernel, *how)
        ),
    )
    model = build(config, ops=ops)
    jax.eval_shape(model.init, jax.random.key(0), INPUTS, VALID, TARGETS)
    assert shapes == [(3, 9, 2 * C)] * 2
    gates = {(width, 4 * C) for width in (D, 2 * C, C, D + 2 * C)}
    assert set(kernels) == gates | {
        (C, A),
        (2 * C, A),
        (A, 1),
        (C, C),
        (C + D + 2 * C, C),
        (C // 2, 50),
    }
