"""Generation with the cache equals the model's own call on the whole text so far, row by row."""

import collections
import dataclasses
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.gpt3 import Gpt3Config
from models.generation.cached_attention import apply_cached, attend_to_cache
from models.generation.decoding import (
    BeamSearch,
    Greedy,
    Sample,
    continue_prompts,
    generate,
)
from models.layers.cache import DecodingStep, pad_cache
from models.layers.model import Model
from models.layers.ops import attend
from tests.models.decoders import check_continuation

VALID = np.arange(9) < np.array([9, 5, 2])[:, None]
INPUTS = np.where(VALID, np.random.default_rng(0).integers(2, 50, (3, 9)), 0).astype(np.int32)
LENGTHS = VALID.sum(1)
SHAPE = dict(vocab=50, length=24, width=16, depth=2, num_heads=2, mlp=24)


@pytest.fixture(scope="module")
def writer(make, t5_config):
    """Return (module, parameters) of an untied T5 with large weights, which repeats itself less."""
    model, params = make(dataclasses.replace(t5_config, gated=True, tied=False))
    return model, jax.tree.map(lambda leaf: 4 * np.array(leaf), params)


@pytest.fixture(scope="module")
def uncached_tokens(writer):
    """Generate seven tokens a row by the model's own call, without `encode`, `decode` or a device
    loop.
    """
    model, params = writer
    score = jax.jit(lambda targets: model.apply({"params": params}, INPUTS, VALID, targets))
    written = np.zeros((3, 7), np.int32)
    for t in range(7):
        written[:, t] = np.argmax(np.array(score(written))[:, t], axis=-1)
    return written


def test_greedy_is_the_plain_loop(writer, uncached_tokens):
    found = generate(*writer, INPUTS, VALID, length=7, end=None)
    np.testing.assert_array_equal(found, uncached_tokens)
    assert found.dtype == jnp.int32 and len(np.unique(found)) > 3


def test_rows_end_by_themselves(writer, uncached_tokens):
    """Each row stops at its own end token, and padding follows."""
    end = int(uncached_tokens[0, 2])
    found = generate(*writer, INPUTS, VALID, length=7, end=end, pad=49)
    for row, written in zip(np.asarray(found), uncached_tokens, strict=True):
        stop = list(written).index(end) + 1 if end in written else 7
        assert row.tolist() == written[:stop].tolist() + [49] * (7 - stop)


def test_rows_are_independent(writer, uncached_tokens):
    found = generate(*writer, INPUTS[1:2, :5], VALID[1:2, :5], length=7, end=None)
    np.testing.assert_array_equal(found, uncached_tokens[1:2])


# ---- with the cache as without ---------------------------------------------------


GPT3 = Gpt3Config(**SHAPE | {"depth": 4}, window=3)
DECODERS = [
    (GptConfig(**SHAPE), True),
    (Gpt2Config(**SHAPE), False),
    (GPT3, True),
    (GPT3, False),
]  # and whether to scan


def scale_params(model, params):
    """The output depends on the whole input, not on the last token alone."""
    return model, jax.tree.map(lambda leaf: 3 * np.array(leaf), params)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("config", "scan"), DECODERS, ids=lambda part: getattr(type(part), "__name__", part)
)
def test_a_continuation_is_the_plain_loop(make, config, scan):
    """Each token is the likeliest of a call on the whole row, for prompts shorter and longer than a
    band of 3, up to the last of 24 positions, scanned or not.

    To the last of the 24 positions, and whether the layers are scanned or not.
    """
    model, params = scale_params(*make(config))
    found = check_continuation(model, params, INPUTS, LENGTHS, 15, scan)
    assert len(np.unique(found)) > 6


def test_steps_compute_what_a_row_does(make, t5_config):
    """T5's states are equal, not only the likeliest tokens, far enough that distances share
    buckets.
    """
    model, params = make(t5_config)
    rng, N = np.random.default_rng(1), 26
    tokens = rng.integers(2, 50, (3, N)).astype(np.int32)
    memory = jnp.asarray(rng.standard_normal((3, 9, t5_config.width)), jnp.float32)
    variables = {"params": params}
    decode = jax.jit(lambda: model.apply(variables, memory, VALID, tokens, method="decode"))
    expected = np.array(decode())

    @jax.jit
    def decode_first():
        read, cache_names = (memory, VALID, tokens[:, :4]), ["cache", "memory"]
        found, left = apply_cached(model, variables, *read, method="decode", mutable=cache_names)
        return found, pad_cache({"cache": left["cache"]}, N)["cache"], left["memory"]

    @jax.jit
    def decode_step(cache, memory_cache, token_B, position_B):
        step_variables = {"cache": cache, "memory": memory_cache}
        how = {"step": DecodingStep(position_B, N), "method": "decode", "mutable": ["cache"]}
        unread = jnp.full_like(memory, jnp.nan)
        found, left = apply_cached(
            model, variables | step_variables, unread, VALID, token_B[:, None], **how
        )
        return found[:, 0], left["cache"]

    found, cache, memory_cache = decode_first()
    np.testing.assert_allclose(found, expected[:, :4], atol=1e-5)
    row, start = (
        np.arange(3),
        np.array([4, 2, 1]),
    )  # rows continue after different lengths and overwrite padding
    for t in range(N - 4):
        found, cache = decode_step(cache, memory_cache, tokens[row, start + t], start + t)
        np.testing.assert_allclose(found, expected[row, start + t], atol=2e-5)


def test_cached_keys_are_attended_to_as_a_row_is():
    """Attention with [B, H, M, K] equals that with [B, M, H, K], with a mask, a bias and several
    queries.
    """
    q, k, v, bias = (
        np.random.default_rng(i).standard_normal(shape).astype(np.float32)
        for i, shape in enumerate([(2, 3, 4, 5)] * 3 + [(1, 4, 3, 3)])
    )
    how = {"mask": VALID[1:, None, None, :3], "bias": bias, "scale": 0.7}
    found = attend_to_cache(q, k.swapaxes(1, 2), v.swapaxes(1, 2), **how)
    np.testing.assert_allclose(found, attend(q, k, v, **how), atol=1e-6)


def test_a_step_without_a_prompt_is_refused(make):
    model, params = make(GPT3)
    with pytest.raises(
        ValueError,
        match="a decoding step needs the keys and values of a prompt in the collection 'cache'",
    ):
        apply_cached(
            model,
            {"params": params},
            INPUTS[:, :1],
            step=DecodingStep(jnp.array([1, 1, 1]), 4),
            mutable=["cache"],
            method="compute_states",
        )


def test_training_keeps_nothing(make, t5_config):
    """`init` returns only parameters, and a call writes no variables unless they are mutable."""
    model, params = make(t5_config)
    read = INPUTS, VALID, INPUTS
    assert jax.eval_shape(lambda: model.init(jax.random.key(0), *read)).keys() == {"params"}
    _, left = jax.eval_shape(
        lambda: model.apply({"params": params}, *read, mutable=["intermediates"])
    )
    assert not left


# ---- how often a model is called ----------------------------------------------


class Counter(Model):
    """A model that outputs the id after the last one read, and counts its calls."""

    encodes = decodes = True
    config: GptConfig = GptConfig(vocab=100, scan=False)
    asked: Callable = lambda: None

    def encode(self, inputs_BM, inputs_valid_BM):
        return inputs_BM[..., None].astype(jnp.float32)

    def decode(self, memory_BMD, inputs_valid_BM, tokens_BL, step=None):
        return self.compute_states(tokens_BL)

    def compute_states(self, tokens_BL, step=None):
        jax.debug.callback(self.asked)
        return tokens_BL[..., None].astype(jnp.float32)

    def compute_logits(self, y_BLD):
        return -jnp.abs(jnp.arange(100.0) - (y_BLD + 1))


@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(2)], ids=str)
def test_it_begins_with_start_and_stops_when_all_rows_have_ended(strategy):
    """Three calls suffice: beams with such peaked scores cannot be overtaken once the best has
    ended.
    """
    calls = []
    how = {"length": 50, "start": 20, "end": 23, "pad": 7, "strategy": strategy}
    found = generate(Counter(asked=lambda: calls.append(1)), {}, INPUTS, VALID, **how)
    jax.effects_barrier()
    assert found.tolist() == [[21, 22, 23] + [7] * 47] * 3
    assert len(calls) == 3 if strategy == Greedy() else 3 < len(calls) < 10


def test_rows_of_different_lengths_continue_after_their_own_last_token():
    """Padding is overwritten, each row stops at its end token, and all stop when the last row has."""
    calls = []
    tokens, lengths = np.array([[4, 5, 6, 7], [9, 90, 90, 90]], np.int32), np.array([4, 1])
    found = continue_prompts(
        Counter(asked=lambda: calls.append(1)), {}, tokens, lengths, end=11, pad=0, length=9
    )
    jax.effects_barrier()
    assert found.tolist() == [[8, 9, 10, 11] + [0] * 5, [10, 11] + [0] * 7] and len(calls) == 4
    assert continue_prompts(Counter(), {}, tokens, lengths, length=9).tolist() == [
        list(range(8, 17)),
        list(range(10, 19)),
    ]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(2), Sample()], ids=str)
def test_ids_beyond_the_size_are_never_written(strategy):
    found = continue_prompts(
        Counter(), {}, np.array([[4]], np.int32), np.array([1]), length=4, size=7, strategy=strategy
    )
    assert (found < 7).all() and (isinstance(strategy, Sample) or found.tolist() == [[5, 6, 6, 6]])


# ---- what is generated ---------------------------------------------------------


class Table(Model):
    """Return the logits of the next token given the last one alone: [V, V]."""

    config: GptConfig = GptConfig(vocab=5)

    def setup(self):
        V = self.config.vocab
        self.table = self.param("table", nn.initializers.zeros, (V, V))

    def compute_states(self, tokens_BL, step=None):
        return self.table[tokens_BL]

    def compute_logits(self, x_BLD):
        return x_BLD


def make_bigrams(seed, scale=1.5, V=5):
    return {"table": np.float32(np.random.default_rng(seed).standard_normal((V, V)) * scale)}


def list_ngrams(row, n):
    return [tuple(row[i : i + n]) for i in range(len(row) - n + 1)]


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("strategy", "n"), [(Greedy(), 1), (Greedy(), 2), (BeamSearch(3), 2), (Sample(0.1), 3)], ids=str
)
def test_no_ngram_is_written_twice(strategy, n):
    """The prompt's n-grams count too; without the rule there are repetitions."""
    params = make_bigrams(4, V=50)

    def find_repeats(**how):
        written = np.asarray(
            continue_prompts(
                Table(GptConfig(vocab=50)),
                params,
                INPUTS,
                LENGTHS,
                length=20,
                strategy=strategy,
                **how,
            )
        )
        for row, length, new in zip(INPUTS.tolist(), LENGTHS, written.tolist()):
            counts = collections.Counter(list_ngrams([*row[:length], *new], n))
            yield max(
                counts[ngram]
                for ngram in list_ngrams([*row[:length], *new][max(0, length - n + 1) :], n)
            )

    assert list(find_repeats(no_repeat_ngram=n)) == [1, 1, 1]
    assert max(find_repeats()) > 1


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("penalty", "seed"), [(0.0, 0), (1.0, 1), (2.0, 2), (-1.0, 3)])
def test_wide_beams_find_the_best_row(penalty, seed):
    """With as many beams as sequences, the result is the best by log-likelihood over length^penalty
    of all sequences that end or have four tokens.
    """
    params, END, T = make_bigrams(seed), 4, 4
    log_p = np.log(np.exp(params["table"]) / np.exp(params["table"]).sum(-1, keepdims=True))

    def generate_rows(written, last, score):
        if written and (last == END or len(written) == T):
            yield score / len(written) ** penalty, written
        else:
            for word in range(5):
                yield from generate_rows((*written, word), word, score + log_p[last, word])

    for first in range(4):
        _, best = max(generate_rows((), first, 0.0))
        how = {"length": T, "end": END, "pad": 0, "strategy": BeamSearch(125, penalty)}
        assert continue_prompts(Table(), params, np.array([[first]]), [1], **how).tolist() == [
            [*best, *[0] * (T - len(best))]
        ]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("penalty", [-5.0, 5.0])
def test_the_least_and_the_largest_penalty_write_a_row(penalty):
    """Scores of hypotheses then are below -1e9, and still above empty slots'."""
    written = continue_prompts(
        Table(GptConfig(vocab=50)),
        make_bigrams(4, V=50),
        INPUTS,
        LENGTHS,
        length=64,
        pad=49,
        strategy=BeamSearch(2, penalty),
    )
    assert (np.asarray(written) != 49).any(axis=1).all()


def test_one_beam_and_the_likeliest_of_one_are_greedy():
    how = {"length": 20, "no_repeat_ngram": 2}
    found = [
        continue_prompts(
            Table(GptConfig(vocab=50)),
            make_bigrams(4, V=50),
            INPUTS,
            LENGTHS,
            strategy=strategy,
            **how,
        )
        for strategy in (Greedy(), BeamSearch(1), Sample(top_k=1), Sample(temperature=1e-38))
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


# ---- sampling -----------------------------------------------------------------


ROWS = 4000


def draw_tokens(params, strategy, length=1, **how):
    return np.asarray(
        continue_prompts(
            Table(),
            params,
            np.full((ROWS, 1), 2),
            np.ones(ROWS, int),
            length=length,
            strategy=strategy,
            **how,
        )
    )


def compute_softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def keep_likeliest(p, k, mass):
    """Return the smallest set of the k likeliest tokens whose share of their mass reaches `mass`,
    as probabilities.
    """
    order = np.argsort(-p)[:k]
    share = np.cumsum(p[order]) / p[order].sum()
    order = order[: int((share < mass).sum()) + 1]
    return np.where(np.isin(np.arange(len(p)), order), p, 0) / p[order].sum()


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    "strategy",
    [
        Sample(), Sample(temperature=0.5), Sample(top_k=3), Sample(top_p=0.7),
        Sample(2.0, 4, 0.8), Sample(top_p=1e-6),
    ],
    ids=str,
)  # fmt: skip
def test_words_are_drawn_as_often_as_they_should_be(strategy):
    """Pearson's statistic of 4,000 draws is below 20, which chance exceeds once in 2,000 times (4
    degrees of freedom).
    """
    params = make_bigrams(7, scale=1.0)
    expected = keep_likeliest(
        compute_softmax(np.asarray(params["table"][2]) / strategy.temperature),
        strategy.top_k or 5,
        strategy.top_p,
    )
    count = np.bincount(draw_tokens(params, strategy)[:, 0], minlength=5)
    assert (count[expected == 0] == 0).all()
    there = expected > 0
    assert ((count - ROWS * expected)[there] ** 2 / (ROWS * expected[there])).sum() < 20


def test_a_row_draws_by_the_seed_and_its_own_number():
    """The samples do not depend on the batch, and each token has its own draw."""
    params, strategy = make_bigrams(8, scale=0.1), Sample()
    found = draw_tokens(params, strategy, length=6)
    some = np.array([3, 1999, 7])
    how = {"length": 6, "strategy": strategy}
    again = continue_prompts(Table(), params, np.full((3, 1), 2), [1, 1, 1], rows_B=some, **how)
    np.testing.assert_array_equal(again, found[some])
    other = continue_prompts(
        Table(), params, np.full((3, 1), 2), [1, 1, 1], rows_B=some, seed=1, **how
    )
    assert (np.asarray(other) != found[some]).any()
    assert (
        abs((found[:, 1] == found[:, 2]).mean() - 0.2) < 0.03
        and abs((found[1:, 0] == found[:-1, 0]).mean() - 0.2) < 0.03
    )


# ---- invalid settings -----------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BeamSearch(0), "beams is 0; it must be at least 1"),
        (lambda: BeamSearch(2, float("nan")), "length_penalty is nan; it must be from -5 to 5"),
        (lambda: BeamSearch(2, -6.0), "length_penalty is -6.0; it must be from -5 to 5"),
        (lambda: Sample(temperature=0), "temperature is 0; it must be positive"),
        (lambda: Sample(temperature=float("nan")), "temperature is nan"),
        (lambda: Sample(top_k=0), "top_k is 0; it must be at least 1"),
        (lambda: Sample(top_p=0), "top_p is 0; it must be above 0 and at most 1"),
        (lambda: Sample(top_p=1.5), "top_p is 1.5"),
        (lambda: generate_counts(length=0), "length is 0; it must be at least 1"),
        (lambda: generate_counts(no_repeat_ngram=0), "no_repeat_ngram is 0"),
        (lambda: generate_counts(size=101), "size is 101; it must be at least 1 and at most the 100 ids of the model"),
        (
            lambda: generate_counts(lengths=[2, 0]),
            "prompt 1 has 0 tokens of a row of 2: there must be at least 1, because each token is "
            "predicted from those before it. To continue nothing, begin with the token that ends a "
            "text, if the vocabulary has one",
        ),
        (lambda: generate_counts(lengths=[2, 3]), "prompt 1 has 3 tokens of a row of 2"),
        (lambda: generate_counts([[1, 100], [1, 2]]), "token_ids has the id 100; the model has ids 0 to 99"),
        (lambda: generate(Counter(), {}, -INPUTS, VALID, length=3),
         "encoder_token_ids has the id -.*the model has ids 0 to 99"),
        (lambda: generate(Counter(), {}, INPUTS, VALID, length=3, start=100), "start has the id 100"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def generate_counts(tokens=((1, 2), (1, 200)), lengths=(2, 1), **how):
    return continue_prompts(
        Counter(), {}, np.array(tokens), np.array(lengths), **{"length": 3} | how
    )


def test_padding_of_a_prompt_may_be_any_id():
    assert generate_counts().tolist() == [[3, 4, 5], [2, 3, 4]]


@pytest.mark.parametrize(
    "config", [GptConfig(**SHAPE), Gpt2Config(**SHAPE)], ids=lambda config: type(config).__name__
)
def test_no_word_is_written_beyond_the_positions(make, config):
    model, params = make(config)
    with pytest.raises(
        ValueError,
        match="the prompt and the tokens to be generated take 25 positions; the model has 24",
    ):
        continue_prompts(model, params, INPUTS, LENGTHS, length=16)
    with pytest.raises(
        ValueError, match="a row of 25 tokens is longer than the 24 positions of the model"
    ):
        continue_prompts(model, params, np.ones((1, 25), np.int32), [25], length=1)
