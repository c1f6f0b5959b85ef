"""A loss: sums over a batch, each with the weights that divide it."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp

from pretrain.distributed.precision import cast_params
from pretrain.training.cross_entropy import (
    SCORES,
    vocabulary_loss,
)


class Loss(NamedTuple):
    """The training side of one objective.

    arguments: batch -> the positional arguments of the model
    score:     (what the model's `states` returned, scorer, batch) -> {name: float32 sum over the batch's targets}, where
               scorer(y_BTD, targets_BT, weights_BT) is the `cross_entropy` of the model's `logits`
    weights:   the name of a sum -> the batch key whose sum it is divided by
    terms:     the names whose means add up to the loss; the others are metrics
    tokens:    the batch keys whose sum is the number of tokens that the model reads and writes, padding left out
    factors:   the name of a term -> what its mean is multiplied by, where that is not 1
    judged:    of objectives whose targets are labels: (states, batch) -> float32 [B, K] of each row: what is predicted, what is right (K = 3;
               `tagging` and `answer_span` differ), and last 1 if the row counts. Scores that are no sums, such as a correlation, are computed of all of them
    """

    arguments: Callable
    score: Callable
    weights: dict[str, str]
    terms: tuple[str, ...]
    tokens: tuple[str, ...]
    factors: Mapping[str, float] = MappingProxyType({})
    judged: Callable | None = None

    def value(self, means):
        """The loss, of {name: mean}."""
        return sum(self.factors.get(name, 1.0) * means[name] for name in self.terms)

    def totals(self, batch):
        """{name: the weight of the whole batch}, float32."""
        sums = {
            key: batch[key].sum(dtype=jnp.float32) for key in dict.fromkeys(self.weights.values())
        }  # in one order in every process
        return {name: sums[key] for name, key in self.weights.items()}

    def sums(self, model, params, batch, **how):
        """{name: float32 sum}; how: as in `scored`."""
        return self.scored(model, params, batch, **how)[0]

    def scored(
        self,
        model,
        params,
        batch,
        *,
        compute="float32",
        gather=lambda params: params,
        scores=SCORES,
        smoothing=0.0,
        **kw,
    ):
        """({name: float32 sum}, what `judged` gives or None), computed in the type `compute`; kw: what the model takes besides (train, rngs).

        scores: how many scores of words a row may have at once. gather: applied to the parameters that make them, where a trainer that
        spreads parameters brings them together: once, not for each part of the targets. smoothing: of words, as `cross_entropy` says.
        """
        lean = cast_params(params, compute)
        states = model.apply({"params": lean}, *self.arguments(batch), method="states", **kw)
        logits = partial(model.apply, {"params": gather(lean)}, method="logits")
        sums = self.score(
            states, partial(vocabulary_loss, logits, scores=scores, smoothing=smoothing), batch
        )
        return sums, self.judged and self.judged(states, batch)
