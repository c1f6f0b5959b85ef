"""What a prediction costs: sums of -log p over weighted targets, and how many predictions are correct.

B batch   T target length   D width   V vocab
"""

import math
from functools import partial

import jax
import jax.numpy as jnp

# Scores that one row of a batch may have at once. Beyond that its targets are scored in parts: GPT-2's 1,024 x 50,257 in 17 of them.
SCORES = 3 << 20


def cross_entropy(logits_V, targets, weights, smoothing=0.0):
    """Return (loss_sum, num_correct): the sum of -log p(target), and the number of targets that are likelier than any other word.

    Both are weighted, over any leading dimensions, and float32.

    smoothing: this share of a target's weight is spread over all V words alike (Szegedy et al. 2016, section 7).
    """
    logits_V = logits_V.astype(jnp.float32)
    # A target that is no word, such as -100 on padding, would give NaN, and a weight of 0 does not undo it.
    correct = jnp.take_along_axis(logits_V, targets[..., None], axis=-1, mode="clip")[..., 0]
    # Softmax next to a temperature of zero leaves 1 for each score that equals the target's, and more for one above it. Counting them by argmax or by
    # comparisons takes 4 to 7 times as long on a CPU, where XLA vectorises neither.
    correct_weights = (jnp.exp((logits_V - correct[..., None]) * 1e30).sum(axis=-1) == 1).astype(
        jnp.float32
    ) * weights
    if smoothing:
        correct = (1 - smoothing) * correct + smoothing * logits_V.mean(axis=-1)
    losses = (jax.nn.logsumexp(logits_V, axis=-1) - correct) * weights
    return losses.sum(), correct_weights.sum()


def binary_cross_entropy(logits, targets, weights):
    """Return (loss_sum, num_correct): the sum of -log p(target), and the number of targets that are the likelier.

    Both are weighted and float32; targets are bool.
    """
    losses = jax.nn.softplus(jnp.where(targets, -logits, logits)) * weights
    correct_weights = jnp.where((logits > 0) == targets, weights, 0.0)
    return losses.sum(), correct_weights.sum()


def token_loss(logits, y_BTD, targets_BT, weights_BT, *, scores: float = SCORES, smoothing=0.0):
    """`cross_entropy` of `logits(y_BTD)` [B, T, V], of which a row never holds more than about `scores` at once.

    The parts are scored one after the other, and their gradients are taken in the same breath: nothing is computed twice, and what
    `logits` closes over has its gradients added up in float32. Each part takes every n-th position, so that positions which lie
    spread over devices stay where they are.
    """
    B, T, _ = y_BTD.shape
    V = jax.eval_shape(logits, y_BTD[:, :1]).shape[-1]
    n = min(math.ceil(T * V / scores), T)
    if n <= 1:
        return cross_entropy(logits(y_BTD), targets_BT, weights_BT, smoothing)
    filled = math.ceil(T / n) * n

    def dealt(x):
        x = jnp.pad(
            x, ((0, 0), (0, filled - T), *((0, 0),) * (x.ndim - 2))
        )  # filled up with weights of 0
        return jnp.moveaxis(x.reshape(B, filled // n, n, *x.shape[2:]), 2, 0)

    y_nBtD = dealt(y_BTD)
    of_read, read = jax.closure_convert(logits, y_nBtD[0])

    def score(read, y, targets, weights):
        return cross_entropy(of_read(y, *read), targets, weights, smoothing)

    return _in_parts(score, read, y_nBtD, dealt(targets_BT), dealt(weights_BT))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_parts(score, read, y_nBtD, targets_nBt, weights_nBt):
    """(loss_sum, num_correct) of all parts, each of which is `score(read, y, targets, weights)`; read: the arrays that make scores."""

    def add(total, xs):
        return jax.tree.map(jnp.add, total, score(read, *xs)), None

    zero = jnp.zeros((), jnp.float32)
    return jax.lax.scan(add, (zero, zero), (y_nBtD, targets_nBt, weights_nBt))[0]


def _in_parts_forward(score, read, y_nBtD, targets_nBt, weights_nBt):
    def add(total, xs):
        sums, d_read = total
        seen, (d_part, d_y) = jax.value_and_grad(score, argnums=(0, 1), has_aux=True)(read, *xs)
        return (
            jax.tree.map(jnp.add, sums, seen),
            jax.tree.map(lambda a, b: a + b.astype(jnp.float32), d_read, d_part),
        ), d_y

    zero = jnp.zeros((), jnp.float32)
    begin = (zero, zero), jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), read)
    (sums, d_read), d_y_nBtD = jax.lax.scan(add, begin, (y_nBtD, targets_nBt, weights_nBt))
    return sums, (d_read, d_y_nBtD, [jnp.zeros((), x.dtype) for x in read])


def _in_parts_backward(score, kept, cotangents):
    (d_read, d_y_nBtD, types), (scale, _) = kept, cotangents  # num_correct has no gradient
    d_read = [(d * scale).astype(like.dtype) for d, like in zip(d_read, types, strict=True)]
    return d_read, d_y_nBtD * scale.astype(d_y_nBtD.dtype), None, None


_in_parts.defvjp(_in_parts_forward, _in_parts_backward)
