"""Decoding: from a model's scores to text. A prompt is read in one pass, then one id a step is chosen, written and read.

    generate(model, params, encoder_token_ids, encoder_attention_mask, length=64, strategy=Beam(4))              an encoder-decoder
    extend(model, params, token_ids, length_B, length=64, strategy=Sample(top_p=0.9))      a decoder, behind its prompts

A step reads the keys and values of what was written from a cache (`models.generation.cached_attention`), so its time does not grow with
that. Its attention has an equation of its own: the kernels that a trainer puts in the place of `attend` are not used there.
A scanned stack copies each layer's weights and cache at each step: `unstack_model` first, it is faster where a step is short.

B batch   M prompt length   T written length   N = M + T slots   D width   V vocabulary
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from models.generation.beam import Beam
from models.generation.cached_attention import apply_cached
from models.generation.sampling import Greedy, Prompt, Rules, Sample
from models.layers.cache import CACHE, MEMORY, Step, widen
from models.layers.layer_layout import unstack_layers

__all__ = ["Beam", "Greedy", "Sample", "extend", "generate", "unstack_model"]


def unstack_model(model, params):
    """Return (module, parameters) of the same model with unstacked layers: the fastest step, for a longer compilation."""
    if not model.config.scan:
        return model, params
    return model.clone(config=dataclasses.replace(model.config, scan=False)), unstack_layers(params)


def generate(
    model,
    params,
    encoder_token_ids,
    encoder_attention_mask,
    *,
    length,
    strategy=Greedy(),
    start=0,
    end=1,
    pad=0,
    size=None,
    no_repeat_ngram=None,
    seed=0,
    rows_B=None,
):
    """What an encoder-decoder writes: int32 [B, T = length].

    model: a Linen module with `ops`, `config.vocab` and the methods `encode`, `decode` and `logits` of `models.t5.T5`. Each row begins with
    `start`, which is left out, and ends with `end` (None: never), behind which stands `pad`. Stops when all rows have ended.
    strategy: `Greedy()`, `Sample(...)` or `Beam(...)`. For all of them:
      size              only ids below are written (None: all)
      no_repeat_ngram   no so many ids are written that stood there in that order before, the start or the prompt included (None: may)
      seed, rows_B      of `Sample`: a row draws by the seed and its own number, int32 [B] (None: 0, 1, ...), in whatever batch it stands
    The arguments are arrays, not traced: their values are checked. Raises ValueError for what cannot be meant.
    """
    _check_ids(model, "encoder_token_ids", np.where(encoder_attention_mask, encoder_token_ids, 0))
    _check_ids(model, "start", np.int32(start))
    write = generator(
        model,
        len(encoder_token_ids),
        length=length,
        strategy=strategy,
        start=start,
        end=end,
        pad=pad,
        size=size,
        no_repeat_ngram=no_repeat_ngram,
        seed=seed,
        rows_B=rows_B,
    )
    return write(params, encoder_token_ids, encoder_attention_mask)


def generator(
    model,
    B,
    *,
    length,
    strategy=Greedy(),
    start=0,
    end=1,
    pad=0,
    size=None,
    no_repeat_ngram=None,
    seed=0,
    rows_B=None,
):
    """The part of `generate` that is computed, (params, encoder_token_ids, encoder_attention_mask) -> int32 [B, T].

    The result is to be jitted as one likes.

    What it is given is not looked at: ids that the model does not have are to be refused before.
    """
    rules = make_rules(model, length, end, pad, size, no_repeat_ngram)
    key_B = fold_in_rows(seed, jnp.arange(B) if rows_B is None else rows_B)
    start_B1 = jnp.full((B, 1), start, jnp.int32)
    return lambda params, *inputs: _generate(
        model, params, *inputs, start_B1, key_B, rules=rules, strategy=strategy
    )


def extend(
    model,
    params,
    token_ids,
    length_B,
    *,
    length,
    strategy=Greedy(),
    end=None,
    pad=0,
    size=None,
    no_repeat_ngram=None,
    seed=0,
    rows_B=None,
):
    """What a decoder writes behind each row: int32 [B, T = length]. The rest is as in `generate`.

    model: a Linen module with `ops`, `config.vocab` and the methods `states` and `logits` of `models.gpt.Gpt`; length_B: how many of a row's
    tokens are its own, 1 at least. What stands behind them is overwritten. All N positions must be within those of the model.
    """
    lengths, M = np.asarray(length_B), np.shape(token_ids)[1]
    if not ((lengths > 0) & (lengths <= M)).all():
        row = int(np.flatnonzero((lengths < 1) | (lengths > M))[0])
        raise ValueError(
            f"prompt {row} has {lengths[row]} tokens of a row of {M}: there must be at least 1, as each word is told from those before it. "
            "Where nothing is to be continued, begin with the token that ends a text, if the vocabulary has one"
        )
    rules = make_rules(model, length, end, pad, size, no_repeat_ngram)
    key_B = fold_in_rows(seed, jnp.arange(len(lengths)) if rows_B is None else rows_B)
    _check_ids(model, "token_ids", np.where(np.arange(M) < lengths[:, None], token_ids, 0))
    return _extend(
        model,
        params,
        token_ids,
        jnp.asarray(lengths, jnp.int32),
        key_B,
        rules=rules,
        strategy=strategy,
    )


def make_rules(model, length, end, pad, size, no_repeat_ngram) -> Rules:
    """Return what may be written, of arguments of `generate`. Raises ValueError for what cannot be meant."""
    vocab = model.config.vocab
    for name, value in (("length", length), ("no_repeat_ngram", no_repeat_ngram)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if size is not None and not 1 <= size <= vocab:
        raise ValueError(
            f"size is {size}; it must be at least 1 and at most the {vocab} ids of the model"
        )
    return Rules(
        length=length, end=end, pad=pad, size=size or vocab, no_repeat_ngram=no_repeat_ngram
    )


def fold_in_rows(seed, rows_B) -> jax.Array:
    """Return a key for each row, [B], by which it draws."""
    return jax.vmap(partial(jax.random.fold_in, jax.random.key(seed)))(jnp.asarray(rows_B))


def _check_ids(model, name, ids_BM):
    """An id without a vector would be read as NaN, and all that follows be id 0."""
    wrong = ids_BM[(ids_BM < 0) | (ids_BM >= model.config.vocab)]
    if wrong.size:
        raise ValueError(
            f"{name} has the id {wrong.flat[0]}; the model has ids 0 to {model.config.vocab - 1}"
        )


@partial(jax.jit, static_argnames=("model", "rules", "strategy"))
def _generate(
    model, params, encoder_token_ids, encoder_attention_mask, start_B1, key_B, *, rules, strategy
):
    memory_BMD = model.apply(
        {"params": params}, encoder_token_ids, encoder_attention_mask, method="encode"
    )

    def states(variables, tokens_BL, *, mutable, step=None):
        read = (memory_BMD, encoder_attention_mask, tokens_BL)
        return apply_cached(model, variables, *read, step=step, mutable=mutable, method="decode")

    return _write(
        model, params, states, start_B1, jnp.ones(len(start_B1), jnp.int32), key_B, rules, strategy
    )


@partial(jax.jit, static_argnames=("model", "rules", "strategy"))
def _extend(model, params, tokens_BM, length_B, key_B, *, rules, strategy):
    return _write(
        model,
        params,
        partial(apply_cached, model, method="states"),
        tokens_BM,
        length_B,
        key_B,
        rules,
        strategy,
    )


def _write(model, params, states, tokens_BM, length_B, key_B, rules, strategy):
    """int32 [B, T]. states: a function (variables, tokens_BL, *, mutable, step) -> [B, L, D] and what it kept."""
    variables, slots = {"params": params}, tokens_BM.shape[1] + rules.length

    def scores(x_BD):
        return model.apply(variables, x_BD[:, None], method="logits")[:, 0]

    def advance(cache, token_B, position_B):
        x_B1D, changed = states(
            variables | kept | {CACHE: cache},
            token_B[:, None],
            step=Step(position_B, slots),
            mutable=[CACHE],
        )
        return scores(x_B1D[:, 0]), changed.get(CACHE, {})

    x_BMD, left = states(variables, tokens_BM, mutable=[CACHE, MEMORY])
    kept = {MEMORY: left.get(MEMORY, {})}
    tokens_BN = jnp.where(
        jnp.arange(slots) < length_B[:, None],
        jnp.pad(tokens_BM, ((0, 0), (0, rules.length))),
        rules.pad,
    )
    logits_BV = scores(jnp.take_along_axis(x_BMD, (length_B - 1)[:, None, None], axis=1)[:, 0])
    return strategy.write(
        Prompt(tokens_BN, length_B, logits_BV, widen(left.get(CACHE, {}), slots), advance),
        rules,
        key_B,
    )
