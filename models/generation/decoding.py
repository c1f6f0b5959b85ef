"""Decoding: prefill the prompts in one pass, then generate one token a step.

    generate(model, params, token_ids, attention_mask, length=64, strategy=BeamSearch(4))
    continue_prompts(model, params, token_ids, length_B, length=64, strategy=Sample(top_p=0.9))

The first is for an encoder-decoder, the second for a decoder. A step attends to a key-value cache
of N = M + T slots (`models.generation.cached_attention`). A scanned stack copies each layer's
weights and cache at every step: call `unstack_model` first.

B batch   L query length   M prompt length   T generated length   D width   V vocabulary
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from models.generation.beam_search import BeamSearch
from models.generation.cached_attention import apply_cached
from models.generation.sampling import DecodingRules, Greedy, PrefilledPrompt, Sample, make_rules
from models.layers.cache import CACHE, CARRY, MEMORY, DecodingStep, pad_cache
from models.layers.layer_layout import unstack_layers

__all__ = ["BeamSearch", "Greedy", "Sample", "continue_prompts", "generate", "unstack_model"]


def unstack_model(model: Any, params: Any) -> tuple[Any, Any]:
    """Return (module, parameters) of the same model with unstacked layers.

    Decoding steps are faster with them, and take longer to compile.
    """
    if not model.config.scan:
        return model, params
    return model.clone(config=dataclasses.replace(model.config, scan=False)), unstack_layers(params)


def generate(
    model: Any,
    params: Any,
    encoder_token_ids: ArrayLike,
    encoder_attention_mask: ArrayLike,
    *,
    length: int,
    strategy: Greedy | BeamSearch = Greedy(),
    start: int = 0,
    end: int | None = 1,
    pad: int = 0,
    size: int | None = None,
    no_repeat_ngram: int | None = None,
    seed: int = 0,
    rows_B: ArrayLike | None = None,
) -> jax.Array:
    """Return the tokens that an encoder-decoder generates, int32 [B, T].

    Args:
      model: a module with the methods of `models.t5.T5`.
      params: its parameters.
      encoder_token_ids: int32 [B, M], a concrete array, whose values are checked.
      encoder_attention_mask: bool [B, M], False on padding.
      length: T. Decoding stops earlier once all rows have ended.
      strategy: `Greedy()`, `Sample(...)` or `BeamSearch(...)`.
      start: the id that the decoder reads first; it is not returned.
      end: the id that ends a row; None: rows do not end.
      pad: the id that follows the end of a row.
      size: ids from here on are not generated; None: all ids may be.
      no_repeat_ngram: no n-gram of this length occurs twice in a row, the start id or the prompt
        included; None: no limit.
      seed: of `Sample`.
      rows_B: int32 [B], a number of each row; `Sample` draws by it and the seed. Default: 0, 1, ...

    Raises:
      ValueError: an argument is out of range.
    """
    token_ids_BM = np.where(encoder_attention_mask, encoder_token_ids, 0)
    _check_ids(model, "encoder_token_ids", token_ids_BM)
    _check_ids(model, "start", np.asarray(start))
    generate_rows = make_generator(
        model,
        len(token_ids_BM),
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
    return generate_rows(params, encoder_token_ids, encoder_attention_mask)


def make_generator(
    model: Any,
    B: int,
    *,
    length: int,
    strategy: Greedy | BeamSearch = Greedy(),
    start: int = 0,
    end: int | None = 1,
    pad: int = 0,
    size: int | None = None,
    no_repeat_ngram: int | None = None,
    seed: int = 0,
    rows_B: ArrayLike | None = None,
) -> Callable[..., jax.Array]:
    """Return the traceable part of `generate`, for callers that jit it themselves.

    It is a function (params, encoder_token_ids, encoder_attention_mask) -> int32 [B, T], and does
    not check its arguments: reject ids that the model does not have before. B: the number of rows;
    the other arguments are as in `generate`.
    """
    rules = make_rules(model, length, end, pad, size, no_repeat_ngram)
    key_B = fold_in_rows(seed, jnp.arange(B) if rows_B is None else rows_B)
    start_B1 = jnp.full((B, 1), start, jnp.int32)
    return lambda params, *inputs: _generate_jitted(
        model, params, *inputs, start_B1, key_B, rules=rules, strategy=strategy
    )


def continue_prompts(
    model: Any,
    params: Any,
    token_ids: ArrayLike,
    length_B: ArrayLike,
    *,
    length: int,
    strategy: Greedy | BeamSearch = Greedy(),
    end: int | None = None,
    pad: int = 0,
    size: int | None = None,
    no_repeat_ngram: int | None = None,
    seed: int = 0,
    rows_B: ArrayLike | None = None,
) -> jax.Array:
    """Return the tokens that a decoder generates after each prompt, int32 [B, T].

    Args:
      model: a module with `ops`, `config.vocab` and the methods `compute_states` and
        `compute_logits` of `models.gpt.Gpt`.
      params: its parameters.
      token_ids: int32 [B, M], the prompts on the left; what follows a prompt is overwritten.
      length_B: int32 [B], the length of each prompt, at least 1.
      length: T; the model must have all N = M + T positions.
      strategy, end, pad, size, no_repeat_ngram, seed, rows_B: as in `generate`.

    Raises:
      ValueError: an argument is out of range.
    """
    lengths, M = np.asarray(length_B), np.shape(token_ids)[1]
    if not ((lengths > 0) & (lengths <= M)).all():
        row = int(np.flatnonzero((lengths < 1) | (lengths > M))[0])
        raise ValueError(
            f"prompt {row} has {lengths[row]} tokens of a row of {M}: there must be at least 1, "
            "because each token is predicted from those before it. To continue nothing, begin with "
            "the token that ends a text, if the vocabulary has one"
        )
    rules = make_rules(model, length, end, pad, size, no_repeat_ngram)
    key_B = fold_in_rows(seed, jnp.arange(len(lengths)) if rows_B is None else rows_B)
    _check_ids(model, "token_ids", np.where(np.arange(M) < lengths[:, None], token_ids, 0))
    return _continue_jitted(
        model,
        params,
        token_ids,
        jnp.asarray(lengths, jnp.int32),
        key_B,
        rules=rules,
        strategy=strategy,
    )


def fold_in_rows(seed: int, rows_B: ArrayLike) -> jax.Array:
    """Return the random key of each row, [B]."""
    return jax.vmap(partial(jax.random.fold_in, jax.random.key(seed)))(jnp.asarray(rows_B))


def _check_ids(model: Any, name: str, ids_BM: np.ndarray) -> None:
    """Raise ValueError for an id that the model does not have.

    Its embedding would be NaN, and every token after it id 0.
    """
    wrong = ids_BM[(ids_BM < 0) | (ids_BM >= model.config.vocab)]
    if wrong.size:
        raise ValueError(
            f"{name} has the id {wrong.flat[0]}; the model has ids 0 to {model.config.vocab - 1}"
        )


@partial(jax.jit, static_argnames=("model", "rules", "strategy"))
def _generate_jitted(
    model: Any,
    params: Any,
    encoder_token_ids: jax.Array,
    encoder_attention_mask: jax.Array,
    start_B1: jax.Array,
    key_B: jax.Array,
    *,
    rules: DecodingRules,
    strategy: Greedy | BeamSearch,
) -> jax.Array:
    memory_BMD = model.apply(
        {"params": params}, encoder_token_ids, encoder_attention_mask, method="encode"
    )

    def decode_tokens(
        variables: Any,
        tokens_BL: jax.Array,
        *,
        mutable: list[str],
        step: DecodingStep | None = None,
    ) -> tuple[jax.Array, Any]:
        inputs = (memory_BMD, encoder_attention_mask, tokens_BL)
        return apply_cached(model, variables, *inputs, step=step, mutable=mutable, method="decode")

    length_B = jnp.ones(len(start_B1), jnp.int32)
    return _write_tokens(model, params, decode_tokens, start_B1, length_B, key_B, rules, strategy)


@partial(jax.jit, static_argnames=("model", "rules", "strategy"))
def _continue_jitted(
    model: Any,
    params: Any,
    tokens_BM: jax.Array,
    length_B: jax.Array,
    key_B: jax.Array,
    *,
    rules: DecodingRules,
    strategy: Greedy | BeamSearch,
) -> jax.Array:
    compute_states = partial(apply_cached, model, method="compute_states")
    prompt_inputs = {}
    if CARRY in model.collections:
        # What follows a prompt in its row would change the state; attention does not read it.
        is_prompt_BM = jnp.arange(tokens_BM.shape[1]) < length_B[:, None]
        prompt_inputs["segment_ids"] = is_prompt_BM.astype(jnp.int32)
    inputs = (tokens_BM, length_B, key_B, rules, strategy)
    return _write_tokens(model, params, compute_states, *inputs, **prompt_inputs)


def _write_tokens(
    model: Any,
    params: Any,
    compute_states: Callable[..., tuple[jax.Array, Any]],
    tokens_BM: jax.Array,
    length_B: jax.Array,
    key_B: jax.Array,
    rules: DecodingRules,
    strategy: Greedy | BeamSearch,
    **prompt_inputs: jax.Array,
) -> jax.Array:
    """Return the generated tokens, int32 [B, T].

    compute_states: a function (variables, tokens_BL, *, mutable, step) -> (states [B, L, D],
      changed collections).
    prompt_inputs: its further arguments for the prompt.
    """
    variables, slots = {"params": params}, tokens_BM.shape[1] + rules.length

    def compute_logits(x_BD: jax.Array) -> jax.Array:
        return model.apply(variables, x_BD[:, None], method="compute_logits")[:, 0]

    def decode_step(cache: Any, token_B: jax.Array, position_B: jax.Array) -> tuple[jax.Array, Any]:
        x_B1D, changed = compute_states(
            variables | memory | cache,
            token_B[:, None],
            step=DecodingStep(position_B, slots),
            mutable=[CACHE, CARRY],
        )
        return compute_logits(x_B1D[:, 0]), take_cache(changed)

    def take_cache(collections: Any) -> dict[str, Any]:
        return {name: collections.get(name, {}) for name in (CACHE, CARRY)}

    mutable = [CACHE, CARRY, MEMORY]
    x_BMD, cached = compute_states(variables, tokens_BM, mutable=mutable, **prompt_inputs)
    memory = {MEMORY: cached.get(MEMORY, {})}
    tokens_BN = jnp.where(
        jnp.arange(slots) < length_B[:, None],
        jnp.pad(tokens_BM, ((0, 0), (0, rules.length))),
        rules.pad,
    )
    logits_BV = compute_logits(
        jnp.take_along_axis(x_BMD, (length_B - 1)[:, None, None], axis=1)[:, 0]
    )
    return strategy.generate_tokens(
        PrefilledPrompt(
            tokens_BN, length_B, logits_BV, pad_cache(take_cache(cached), slots), decode_step
        ),
        rules,
        key_B,
    )
