"""What a trained model makes of texts, layer by layer: features for another model to read (Devlin et al. 2018, section 5.3 and table 7).

N texts   B batch   L row length   R results of a row   D width
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import build
from models.activations import observe
from pretrain.distributed.device_feed import place_whole
from pretrain.distributed.model_hooks import make_model_hooks
from pretrain.distributed.sharding import replicated
from pretrain.families import find_by_model_type
from pretrain.inference import batching
from pretrain.inference.pooling import POOLINGS
from pretrain.inference.word_alignment import Aligned


class Combination(NamedTuple):
    """A function of the hidden states, embeddings first, and the fewest layers that it is defined for."""

    of: object
    layers: int = 1


# Table 7's rows, in its order.
COMBINATIONS = {
    "embeddings": Combination(lambda states: states[0], 0),
    "second_to_last": Combination(lambda states: states[-2], 2),
    "last": Combination(lambda states: states[-1]),
    "sum_last_four": Combination(lambda states: sum(states[-4:]), 4),
    "concat_last_four": Combination(lambda states: jnp.concatenate(states[-4:], axis=-1), 4),
    "sum_all": Combination(lambda states: sum(states[1:])),
}


def chosen(words, depth):
    """{key of the output: function of the hidden states} for names of COMBINATIONS, numbers of layers, and `all` of these.

    0 is what the first layer reads, `depth` or -1 what the last one writes. Raises ValueError for a layer that the model has not.
    """
    picks = {}
    for word in (part for each in words for part in each.split(",") if part):
        if word == "all":
            picks |= {f"layer_{i}": partial(_state, i=i) for i in range(depth + 1)}
        elif word in COMBINATIONS:
            if depth < COMBINATIONS[word].layers:
                raise ValueError(
                    f"--layers {word} is of {COMBINATIONS[word].layers} layers; the model has {depth}"
                )
            picks[word] = COMBINATIONS[word].of
        elif word.removeprefix("-").isdigit() and -depth - 1 <= int(word) <= depth:
            number = int(word) % (depth + 1)
            picks[f"layer_{number}"] = partial(_state, i=number)
        else:
            raise ValueError(
                f"--layers {word}: there are {', '.join(COMBINATIONS)}, all, and 0 (embeddings) to {depth}, or -1 to {-depth - 1} from the end"
            )
    return picks


def _state(states, i):
    return states[i]


class Features(NamedTuple):
    """arrays: what is written, see docs/inside.md. texts, cut, empty: how many there were, were cut, and words of which nothing was left."""

    arrays: dict[str, np.ndarray]
    texts: int
    cut: int
    empty: int


def extract(trained, mesh, texts, layers=("last",), pooling="mean", batch_size=32):
    """`Features` of [(place, text)], on the run's mesh; the parameters of `trained` may lie anywhere on it.

    Raises ValueError for a layer or a pooling that the model has not, and for a text without a word.
    """
    config, params = trained.body
    picks = chosen(layers, config.depth)
    aligned = Aligned(trained)
    if pooling == "cls" and "cls" not in find_by_model_type(aligned.family).token_roles:
        raise ValueError(
            f"--pooling cls: a text of {type(trained.run.model).__name__} does not begin with a [CLS]; take mean"
        )
    rows = aligned(texts)
    pool = POOLINGS[pooling]
    counts = [pool.count(row) for row in rows]
    total, ends = sum(counts), np.cumsum(counts)
    arrays = {}
    model = build(config, **make_model_hooks(mesh, []))
    compute = jax.jit(
        partial(_compute, model, tuple(picks.values())), out_shardings=replicated(mesh)
    )
    empty = 0
    for batch in batching.batches([_length(row, aligned.longest) for row in rows], batch_size):
        L = _length(rows[batch[0]], aligned.longest)
        weights = [pool.weights(rows[i]) for i in batch]
        told = [
            np.flatnonzero(weights_RL.any(axis=1)) for weights_RL in weights
        ]  # a word may leave no piece: nothing is known of it
        tokens_BL, valid_BL = batching.fill(
            [rows[i].ids for i in batch], batching.power(len(batch)), L, trained.vocabulary.pad or 0
        )
        pool_BRL = np.zeros((len(tokens_BL), pool.most(L), L), np.float32)
        for b, (weights_RL, some) in enumerate(zip(weights, told)):
            pool_BRL[b, : len(some), : weights_RL.shape[1]] = weights_RL[some]
        pooled = jax.device_get(
            compute(
                params,
                *(
                    place_whole(mesh, np.asarray(array))
                    for array in (tokens_BL, valid_BL, pool_BRL)
                ),
            )
        )
        for name, pooled_BRD in zip(picks, pooled):
            if name not in arrays:
                arrays[name] = np.full((total, pooled_BRD.shape[-1]), np.nan, np.float32)
            for i, some, pooled_RD in zip(batch, told, pooled_BRD):
                arrays[name][ends[i] - counts[i] + some] = pooled_RD[: len(some)]
        empty += sum(counts[i] - len(some) for i, some in zip(batch, told))
    arrays |= {
        "line": np.array([int(row.place.rsplit(":", 1)[1]) for row in rows]),
        "cut": np.array([row.cut for row in rows]),
    }
    return Features(
        arrays | pool.alignment(rows, ends), len(rows), sum(row.cut for row in rows), empty
    )


def _length(row, longest):
    return min(batching.padded(len(row.ids)), longest or batching.padded(len(row.ids)))


def _compute(model, picks, params, tokens_BL, valid_BL, pool_BRL):
    """Each combination of hidden states, pooled: [B, R, D]."""
    read = (
        ((tokens_BL, valid_BL), "encode") if hasattr(model, "encode") else ((tokens_BL,), "states")
    )
    states = observe(model, params, *read[0], method=read[1]).states
    return tuple(
        jnp.einsum("brl,bld->brd", pool_BRL, pick(states), precision="highest") for pick in picks
    )
