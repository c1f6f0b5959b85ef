"""What each objective's batch is worth: sums over targets, and the weights that they are divided by, once, at the end.

B batch   P masked positions of a row   T target length   V vocab   C classes

A mean of means over micro-batches or devices would weigh rows by how few targets they have. So nothing here divides: sums add up
over micro-batches, devices and evaluation batches alike, in float32.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Loss(NamedTuple):
    """The training side of one objective.

    arguments: batch -> the positional arguments of the model
    score:     (what the model returned, batch) -> {name: float32 sum over the batch's targets}
    weights:   the name of a sum -> the batch key whose sum it is divided by
    terms:     the names whose means add up to the loss; the others are metrics
    tokens:    the batch keys whose sum is the number of tokens that the model reads and writes, padding left out
    """

    arguments: Callable
    score: Callable
    weights: dict[str, str]
    terms: tuple[str, ...]
    tokens: tuple[str, ...]

    def totals(self, batch):
        """{name: the weight of the whole batch}, float32."""
        sums = {key: batch[key].sum(dtype=jnp.float32) for key in set(self.weights.values())}
        return {name: sums[key] for name, key in self.weights.items()}


def cross_entropy(logits_V, targets, weights):
    """(sum of -log p(target), number of targets that are the likeliest), both weighted, over any leading dimensions; float32."""
    logits_V = logits_V.astype(jnp.float32)
    correct = jnp.take_along_axis(logits_V, targets[..., None], axis=-1)[..., 0]
    nats = (jax.nn.logsumexp(logits_V, axis=-1) - correct) * weights
    hits = (jnp.argmax(logits_V, axis=-1) == targets).astype(jnp.float32) * weights
    return nats.sum(), hits.sum()


def masked_lm(outputs, batch):
    """The masked words (Devlin et al. 2018, section 3.1, task 1)."""
    logits_BPV, _ = outputs
    nats, hits = cross_entropy(logits_BPV, batch["targets"], batch["weights"])
    return {"masked_lm": nats, "masked_lm_accuracy": hits}


def sentence_pair(outputs, batch):
    """The masked words, and whether B follows A (task 2)."""
    _, next_BC = outputs
    nats, hits = cross_entropy(next_BC, batch["next_sentence"], batch["next_weights"])
    return masked_lm(outputs, batch) | {"next_sentence": nats, "next_sentence_accuracy": hits}


def span_corruption(logits_BTV, batch):
    """The dropped spans, each behind its sentinel (Raffel et al. 2019, section 3.1.4)."""
    nats, hits = cross_entropy(logits_BTV, batch["targets"], batch["weights"])
    return {"span_corruption": nats, "span_corruption_accuracy": hits}


LOSSES = {
    "masked_lm": Loss(
        arguments=lambda batch: (batch["tokens"], batch["valid"], None, batch["positions"]),
        score=masked_lm,
        weights={"masked_lm": "weights", "masked_lm_accuracy": "weights"},
        terms=("masked_lm",),
        tokens=("valid",),
    ),
    "sentence_pair": Loss(
        arguments=lambda batch: (batch["tokens"], batch["valid"], batch["segments"], batch["positions"]),
        score=sentence_pair,
        weights={
            "masked_lm": "weights",
            "masked_lm_accuracy": "weights",
            "next_sentence": "next_weights",
            "next_sentence_accuracy": "next_weights",
        },
        terms=("masked_lm", "next_sentence"),
        tokens=("valid",),
    ),
    "span_corruption": Loss(
        arguments=lambda batch: (batch["inputs"], batch["inputs_valid"], batch["targets"]),
        score=span_corruption,
        weights={"span_corruption": "weights", "span_corruption_accuracy": "weights"},
        terms=("span_corruption",),
        tokens=("inputs_valid", "weights"),
    ),
}
