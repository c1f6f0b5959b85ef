"""Cross entropy: weighted sums of -log p(target), and the number of correct predictions.

B batch   T target length   D width   V vocabulary   n chunks   t targets of a chunk
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pretrain.settings.overrides import ConfigError

if TYPE_CHECKING:
    from models.layers.adaptive_softmax import ClusterLogits

# Largest number of scores that one row of a batch holds at a time. Rows with more are scored in
# chunks: GPT-2's 1,024 x 50,257 scores in 17 of them, on a CPU.
MAX_SCORES_PER_ROW = 3 << 20
# {kind of device: number of scores that an accelerator holds at a time in training, if that is more
# for a row}. The memory on a v5e's chip holds so many (96 MiB); others have 1 GiB of them in HBM.
MAX_SCORES_PER_CHIP = {"TPU v5 lite": 24 << 20}
MAX_SCORES_IN_HBM = 1 << 28

# (loss_sum, num_correct), both float32 scalars.
Sums = tuple[jax.Array, jax.Array]


def take_scores(scores_V: jax.Array, ids: jax.Array) -> jax.Array:
    """Return the score of an id for each target, [...]; of the last one if it is too large.

    Negative ids belong to targets without weight: which score they take is not defined.
    """
    if 1 not in ids.shape:
        return _take_each(scores_V, ids)
    return jax.lax.platform_dependent(scores_V, ids, tpu=_take_without_ones, default=_take_each)


def _take_each(scores_V: jax.Array, ids: jax.Array) -> jax.Array:
    return jnp.take_along_axis(scores_V, ids[..., None], axis=-1, mode="clip")[..., 0]


def _take_without_ones(scores_V: jax.Array, ids: jax.Array) -> jax.Array:
    """Take the scores without axes of size 1.

    The gradient is a scatter with one update for each target. Only without such axes XLA's TPU
    compiler makes a comparison of it, which it computes with what follows; a CPU would copy it.
    """
    sizes = [size for size in ids.shape if size > 1]
    flat_V = scores_V.reshape(*sizes, scores_V.shape[-1])
    return _take_each(flat_V, ids.reshape(sizes)).reshape(ids.shape)


@jax.custom_jvp
def take_scores_on_gpu(scores_V: jax.Array, ids: jax.Array) -> jax.Array:
    """Return `take_scores` with an elementwise gradient.

    XLA's GPU compiler computes a comparison with the rest of the gradient of the scores, while a
    scatter reads and writes all of them once more.
    """
    return _take_each(scores_V, ids)


@take_scores_on_gpu.defjvp
def _take_scores_on_gpu_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, Any]
) -> tuple[jax.Array, jax.Array]:
    """Return (scores, their tangents)."""
    scores_V, ids = primals
    V = scores_V.shape[-1]
    is_taken_V = jnp.arange(V) == jnp.clip(ids, 0, V - 1)[..., None]
    return take_scores_on_gpu(*primals), jnp.where(is_taken_V, tangents[0], 0.0).sum(axis=-1)


def cross_entropy(
    logits_V: jax.Array | ClusterLogits,
    targets: jax.Array,
    weights: jax.Array,
    smoothing: float = 0.0,
    take: Callable[[jax.Array, jax.Array], jax.Array] = take_scores,
    z_loss: float = 0.0,
) -> Sums:
    """Return (loss_sum, num_correct): the sum of -log p(target) and the number of correct targets.

    A target is correct if its score is above every other token's. Both results are weighted,
    summed over all leading dimensions, and float32.

    Args:
      logits_V: scores [..., V], or an adaptive softmax's.
      targets: int [...].
      weights: float [...].
      smoothing: share of a target's weight that is spread evenly over all V tokens (Szegedy et al.
        2016, section 7).
      take: `take_scores`, or `take_scores_on_gpu`.
      z_loss: factor of log(Z)^2 that is added to each loss, Z being the sum of exp(score) over all
        tokens (Chowdhery et al. 2022, section 5). An adaptive softmax has no such Z.
    """
    if not isinstance(logits_V, jax.Array | np.ndarray):  # an adaptive softmax's
        if not smoothing:
            return _compute_cluster_entropy(logits_V, targets, weights, take)
        logits_V = logits_V.compute_log_probs()
    logits_V = logits_V.astype(jnp.float32)
    # A target outside the vocabulary, such as -100 on padding, would give NaN, which a weight of 0
    # does not remove.
    target_logits = take(logits_V, targets)
    num_at_least = _count_at_least(logits_V, target_logits)
    correct_weights = (num_at_least == 1).astype(jnp.float32) * weights
    if smoothing:
        target_logits = (1 - smoothing) * target_logits + smoothing * logits_V.mean(axis=-1)
    log_z = jax.nn.logsumexp(logits_V, axis=-1)
    losses = (log_z - target_logits) * weights
    if z_loss:
        losses += z_loss * log_z**2 * weights
    return losses.sum(), correct_weights.sum()


def _count_at_least(scores_V: jax.Array, threshold: jax.Array) -> jax.Array:
    """Return 1 for each score equal to a threshold, and more for a higher one, summed, [...].

    This is a softmax at a temperature close to zero. Counting by argmax or by comparisons takes 4
    to 7 times as long on a CPU, where XLA vectorises neither.
    """
    return jnp.exp((scores_V - threshold[..., None]) * 1e30).sum(axis=-1)


def _compute_cluster_entropy(
    logits: ClusterLogits,
    targets: jax.Array,
    weights: jax.Array,
    take: Callable[[jax.Array, jax.Array], jax.Array],
) -> Sums:
    """Return `cross_entropy` of an adaptive softmax, without the probabilities of all ids.

    The score of an id is its logit plus the offset of its cluster, less the head's normaliser.
    """
    num_first = logits.num_first
    offsets = [
        logits.head[..., num_first + i] - jax.nn.logsumexp(tail, axis=-1)
        for i, tail in enumerate(logits.tails)
    ]
    starts = itertools.accumulate((tail.shape[-1] for tail in logits.tails), initial=num_first)
    parts = [(logits.head[..., :num_first], jnp.zeros(targets.shape), 0)]
    parts += zip(logits.tails, offsets, starts)
    logits_of_target = []  # as if it were in the part
    target_scores = jnp.zeros(targets.shape)
    for scores, offset, start in parts:
        row = jnp.clip(targets - start, 0, scores.shape[-1] - 1)
        own = take(scores, row)
        logits_of_target.append(own)
        target_scores = jnp.where(targets >= start, own + offset, target_scores)
    num_at_least = jnp.zeros(targets.shape)
    for (scores, offset, start), own in zip(parts, logits_of_target, strict=True):
        is_own = (targets >= start) & (targets < start + scores.shape[-1])
        num_at_least += _count_at_least(scores, jnp.where(is_own, own, target_scores - offset))
    correct_weights = (num_at_least == 1).astype(jnp.float32) * weights
    losses = (jax.nn.logsumexp(logits.head, axis=-1) - target_scores) * weights
    return losses.sum(), correct_weights.sum()


def binary_cross_entropy(logits: jax.Array, targets: jax.Array, weights: jax.Array) -> Sums:
    """Return (loss_sum, num_correct) of binary predictions, weighted sums in float32.

    Args:
      logits: log-odds of True, of any shape.
      targets: bool, of the same shape.
      weights: float, of the same shape.
    """
    losses = jax.nn.softplus(jnp.where(targets, -logits, logits)) * weights
    correct_weights = jnp.where((logits > 0) == targets, weights, 0.0)
    return losses.sum(), correct_weights.sum()


def token_cross_entropy(
    logits: Callable[[jax.Array], jax.Array | ClusterLogits],
    y_BTD: jax.Array,
    targets_BT: jax.Array,
    weights_BT: jax.Array,
    *,
    max_scores: float = MAX_SCORES_PER_ROW,
    smoothing: float = 0.0,
    take: Callable[[jax.Array, jax.Array], jax.Array] = take_scores,
    z_loss: float = 0.0,
) -> Sums:
    """Return `cross_entropy` of `logits(y_BTD)` [B, T, V] without holding all scores at a time.

    The targets are scored in chunks, one after the other, and the gradient of a chunk is computed
    together with its loss. So nothing is computed twice, and the gradients of the arrays that
    `logits` closes over are summed in float32. A chunk takes every n-th position, so that positions
    which are sharded over devices stay on their devices.

    Args:
      logits: maps hidden states [B, t, D] to scores [B, t, V], or to an adaptive softmax's.
      max_scores: the number of scores that a row holds at a time, approximately.
      smoothing, take, z_loss: as in `cross_entropy`.
    """
    B, T, _ = y_BTD.shape
    shape = jax.eval_shape(logits, y_BTD[:, :1])
    has_scores = isinstance(shape, jax.ShapeDtypeStruct)
    if z_loss and not has_scores:
        raise ConfigError(
            f"train.z_loss={z_loss:g}: an adaptive softmax has no sum over all tokens; give "
            "train.z_loss=0"
        )
    V = shape.shape[-1] if has_scores else shape.vocab
    n = min(math.ceil(T * V / max_scores), T)
    if n <= 1:
        return cross_entropy(logits(y_BTD), targets_BT, weights_BT, smoothing, take, z_loss)
    padded_length = math.ceil(T / n) * n

    def split_targets(x: jax.Array) -> jax.Array:
        """Return [n, B, t, ...] of [B, T, ...]; padding has a weight of 0."""
        x = jnp.pad(x, ((0, 0), (0, padded_length - T), *((0, 0),) * (x.ndim - 2)))
        return jnp.moveaxis(x.reshape(B, padded_length // n, n, *x.shape[2:]), 2, 0)

    y_nBtD = split_targets(y_BTD)
    pure_logits, closed_over = jax.closure_convert(logits, y_nBtD[0])

    def score_chunk(
        closed_over: Sequence[jax.Array], y: jax.Array, targets: jax.Array, weights: jax.Array
    ) -> Sums:
        return cross_entropy(
            pure_logits(y, *closed_over), targets, weights, smoothing, take, z_loss
        )

    return _cross_entropy_in_chunks(
        score_chunk, closed_over, y_nBtD, split_targets(targets_BT), split_targets(weights_BT)
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _cross_entropy_in_chunks(
    score: Callable[..., Sums],
    closed_over: Sequence[jax.Array],
    y_nBtD: jax.Array,
    targets_nBt: jax.Array,
    weights_nBt: jax.Array,
) -> Sums:
    """Return the sums of `score(closed_over, y, targets, weights)` over all chunks.

    closed_over: the arrays that turn hidden states into scores.
    """

    def add_chunk(total: Sums, chunk: tuple[jax.Array, ...]) -> tuple[Sums, None]:
        return jax.tree.map(jnp.add, total, score(closed_over, *chunk)), None

    zero = jnp.zeros((), jnp.float32)
    return jax.lax.scan(add_chunk, (zero, zero), (y_nBtD, targets_nBt, weights_nBt))[0]


def _cross_entropy_in_chunks_fwd(
    score: Callable[..., Sums],
    closed_over: Sequence[jax.Array],
    y_nBtD: jax.Array,
    targets_nBt: jax.Array,
    weights_nBt: jax.Array,
) -> tuple[Sums, tuple[Any, jax.Array, list[jax.Array]]]:
    def add_chunk(total: tuple[Sums, Any], chunk: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
        sums, d_closed_over = total
        value_and_grad = jax.value_and_grad(score, argnums=(0, 1), has_aux=True)
        chunk_sums, (d_chunk, d_y) = value_and_grad(closed_over, *chunk)
        return (
            jax.tree.map(jnp.add, sums, chunk_sums),
            jax.tree.map(lambda a, b: a + b.astype(jnp.float32), d_closed_over, d_chunk),
        ), d_y

    zero = jnp.zeros((), jnp.float32)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), closed_over)
    chunks = (y_nBtD, targets_nBt, weights_nBt)
    (sums, d_closed_over), d_y_nBtD = jax.lax.scan(add_chunk, ((zero, zero), zeros), chunks)
    # Scalars stand for the dtypes, since residuals must be arrays.
    return sums, (d_closed_over, d_y_nBtD, [jnp.zeros((), x.dtype) for x in closed_over])


def _cross_entropy_in_chunks_bwd(
    score: Callable[..., Sums], residuals: tuple[Any, jax.Array, list[jax.Array]], cotangents: Sums
) -> tuple[list[jax.Array], jax.Array, None, None]:
    d_closed_over, d_y_nBtD, dtype_examples = residuals
    scale, _ = cotangents  # num_correct has no gradient
    d_closed_over = [
        (d * scale).astype(example.dtype)
        for d, example in zip(d_closed_over, dtype_examples, strict=True)
    ]
    # The product is float32: 1 / total in bfloat16 is up to 0.4 % off.
    d_y = (d_y_nBtD.astype(jnp.float32) * scale).astype(d_y_nBtD.dtype)
    return d_closed_over, d_y, None, None


_cross_entropy_in_chunks.defvjp(_cross_entropy_in_chunks_fwd, _cross_entropy_in_chunks_bwd)
