"""Hidden states of texts as features for another model (Devlin et al. 2018, section 5.3, table 7).

N texts   B batch   L row length   R results of a row   D width
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from models import build
from models.activations import capture_activations
from pretrain.families import find_by_model_type
from pretrain.inference import batching
from pretrain.inference.length_notice import LengthNotice
from pretrain.inference.pooling import POOLINGS, Pooling
from pretrain.inference.word_alignment import AlignedRow, WordAligner
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.device_feed import place_shared_rows
from pretrain.mesh.sharding import make_replicated_sharding
from pretrain.workdir.trained import Trained

Combine = Callable[[Sequence[jax.Array]], Any]  # hidden states, embeddings first -> [B, L, D]


class Combination(NamedTuple):
    """A function of the hidden states, and the smallest number of layers that it needs."""

    combine: Combine
    min_layers: int = 1


# The rows of table 7, in its order.
COMBINATIONS = {
    "embeddings": Combination(lambda states: states[0], 0),
    "second_to_last": Combination(lambda states: states[-2], 2),
    "last": Combination(lambda states: states[-1]),
    "sum_last_four": Combination(lambda states: sum(states[-4:]), 4),
    "concat_last_four": Combination(lambda states: jnp.concatenate(states[-4:], axis=-1), 4),
    "sum_all": Combination(lambda states: sum(states[1:])),
}


def select_combinations(names: Iterable[str], depth: int) -> dict[str, Combine]:
    """Return {key of the output: function of the hidden states}.

    Args:
      names: keys of COMBINATIONS, numbers of layers, or "all" layers; several may be joined by
        commas. Layer 0 is the input of the first layer; `depth` or -1 is the output of the last.

    Raises:
      ValueError: the model has no such layer, or no layer is named.
    """
    picks = {}
    known = (
        f"there are {', '.join(COMBINATIONS)}, all, and 0 (embeddings) to {depth}, or -1 to "
        f"{-depth - 1} from the end"
    )
    for name in (name for argument in names for name in argument.split(",") if name):
        if name == "all":
            picks |= {f"layer_{i}": partial(_get_state, i=i) for i in range(depth + 1)}
        elif name in COMBINATIONS:
            if depth < COMBINATIONS[name].min_layers:
                raise ValueError(
                    f"--layers {name} needs {COMBINATIONS[name].min_layers} layers; the model has "
                    f"{depth}"
                )
            picks[name] = COMBINATIONS[name].combine
        elif name.removeprefix("-").isdecimal() and -depth - 1 <= int(name) <= depth:
            number = int(name) % (depth + 1)
            picks[f"layer_{number}"] = partial(_get_state, i=number)
        else:
            raise ValueError(f"--layers {name}: {known}")
    if not picks:
        raise ValueError(f"--layers names no layer: {known}")
    return picks


def _get_state(states: Sequence[jax.Array], i: int) -> jax.Array:
    return states[i]


class Features(NamedTuple):
    """The features of texts.

    Attributes:
      arrays: {name: array} of the output file, see docs/inside.md.
      num_texts: the number of texts.
      num_empty: the number of words without a piece.
    """

    arrays: dict[str, np.ndarray]
    num_texts: int
    num_cut: int
    num_empty: int


def extract_features(
    trained: Trained,
    mesh: Mesh,
    texts: Sequence[tuple[str, str]],
    layers: Iterable[str] = ("last",),
    pooling: str = "mean",
    batch_size: int = 32,
) -> Features:
    """Return the features of texts.

    Args:
      texts: (place, text) of each text.
      layers: see `select_combinations`.
      pooling: a key of POOLINGS.

    Raises:
      ValueError: the model has no such layer or pooling, a text has no word, or a state is NaN.
    """
    trained = trained.open_to(text for _, text in texts)
    config, params = trained.body
    picks = select_combinations(layers, config.depth)
    aligned = WordAligner(trained)
    if pooling == "cls" and "cls" not in find_by_model_type(aligned.family).token_roles:
        raise ValueError(
            f"--pooling cls: a text of {type(trained.run.model).__name__} does not begin with a "
            "[CLS]; take mean"
        )
    rows = aligned(texts)
    LengthNotice(trained).report(max((len(row.ids) for row in rows), default=0))
    pool = POOLINGS[pooling]
    counts = [pool.count_results(row) for row in rows]
    total, ends, arrays, empty = sum(counts), np.cumsum(counts), {}, 0
    model = build(config, **make_model_hooks(mesh, []))
    compute = jax.jit(
        partial(_compute_features, model, tuple(picks.values())),
        out_shardings=make_replicated_sharding(mesh),
    )
    lengths = [_choose_length(row, aligned.max_length) for row in rows]
    for batch in batching.make_batches(lengths, batch_size):
        L = lengths[batch[0]]
        num_rows, pad = batching.round_up_to_power(len(batch)), trained.vocabulary.pad or 0
        inputs = [rows[i].ids for i in batch]
        tokens_BL, valid_BL = batching.pad_rows(inputs, num_rows, L, pad)
        pool_BRL, nonempty = _make_pool_weights(pool, [rows[i] for i in batch], num_rows, L)
        batched = (trained.make_inputs(tokens_BL), valid_BL, pool_BRL)
        placed = (place_shared_rows(mesh, np.asarray(x)) for x in batched)
        pooled = jax.device_get(compute(params, *placed))
        for name, pooled_BRD in zip(picks, pooled):
            if name not in arrays:
                arrays[name] = np.full((total, pooled_BRD.shape[-1]), np.nan, np.float32)
            for i, results, pooled_RD in zip(batch, nonempty, pooled_BRD):
                at_R = ends[i] - counts[i] + results
                arrays[name][at_R] = _check_states(rows[i].place, pooled_RD[: len(results)])
        empty += sum(counts[i] - len(results) for i, results in zip(batch, nonempty))
    arrays["line"] = np.array([int(row.place.rsplit(":", 1)[1]) for row in rows])
    arrays["cut"] = np.array([row.is_cut for row in rows])
    arrays |= pool.align_results(rows, ends)
    return Features(arrays, len(rows), sum(row.is_cut for row in rows), empty)


def _check_states(place: str, pooled_RD: np.ndarray) -> np.ndarray:
    """Return hidden states unchanged. Raises ValueError if one is not a number."""
    if np.isnan(pooled_RD).any():
        raise ValueError(
            f"{place}: a hidden state is not a number, since the parameters or what is computed "
            "from them are not finite; use another --step"
        )
    return pooled_RD


def _make_pool_weights(
    pool: Pooling, rows: Sequence[AlignedRow], B: int, L: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the weights of rows' pieces in their results, and the nonempty results of each row.

    A word without a piece is an empty result: it has no vector, and stays NaN in the output.

    Returns:
      float32 [B, R, L] with the nonempty results first, and the indices of these results.
    """
    pool_BRL, nonempty = np.zeros((B, pool.max_results(L), L), np.float32), []
    for b, row in enumerate(rows):
        weights_RL = pool.make_weights(row)
        results = np.flatnonzero(weights_RL.any(axis=1))
        pool_BRL[b, : len(results), : weights_RL.shape[1]] = weights_RL[results]
        nonempty.append(results)
    return pool_BRL, nonempty


def _choose_length(row: AlignedRow, longest: int | None) -> int:
    """Return the length to which a row is padded."""
    return min(batching.pad_length(len(row.ids)), longest or batching.pad_length(len(row.ids)))


def _compute_features(
    model: Any,
    picks: tuple[Combine, ...],
    params: Any,
    tokens_BL: jax.Array,
    valid_BL: jax.Array,
    pool_BRL: jax.Array,
) -> tuple[jax.Array, ...]:
    """Return each combination of the hidden states, pooled: [B, R, D]."""
    if model.encodes:
        observed = capture_activations(model, params, tokens_BL, valid_BL, method="encode")
    else:
        observed = capture_activations(model, params, tokens_BL, method="compute_states")
    return tuple(
        jnp.einsum("brl,bld->brd", pool_BRL, pick(observed.hidden_states), precision="highest")
        for pick in picks
    )
