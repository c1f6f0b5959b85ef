"""A loss: sums over a batch, each with the weights that divide it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pretrain.distributed.precision import cast_params
from pretrain.training.cross_entropy import SCORES, token_loss


def unchanged(params):
    """Return what was given."""
    return params


@dataclass(frozen=True)
class LossOptions:
    """How a loss is computed, whatever it is."""

    compute_dtype: str = "float32"  # of the model's arithmetic
    gather: Callable = unchanged  # applied once to the parameters that make the scores of words, where a trainer that spreads parameters brings them together
    scores_at_once: float = SCORES  # scores of words that a row may have at the same time
    label_smoothing: float = (
        0.0  # share of a word's weight that all words get, as `cross_entropy` says
    )


DEFAULT_OPTIONS = LossOptions()


class Computed(NamedTuple):
    """What a loss makes of a batch.

    sums: {name: float32 sum}; predictions: what `Loss.row_predictions` gives, or None; variables: {collection: what the model keeps of
    the batch's rows}.
    """

    sums: dict[str, jax.Array]
    predictions: Any
    variables: dict[str, Any]


class Loss(NamedTuple):
    """The training side of one objective.

    inputs:    the batch keys that the model is called with, as keywords of the same names
    optional:  those that it is called with where the batch has them
    score:     (what the model's `states` returned, score_tokens, batch) -> {name: float32 sum over the batch's targets}, where
               score_tokens(hidden_BTD, labels_BT, weights_BT) is the `cross_entropy` of the model's `logits`
    weights:   the name of a sum -> the batch key whose sum it is divided by
    loss_terms:      the names whose means add up to the loss; the others are metrics
    tokens:          the batch keys whose sum is the number of tokens that the model reads and writes, padding left out
    loss_weights:    the name of a term -> what its mean is multiplied by, where that is not 1
    row_predictions: of objectives whose targets are labels of rows: (states, batch) -> float32 [B, K] of each row: what is
               predicted, what is right (K = 3; `tagging` and `answer_span` differ), and last 1 if the row counts. Metrics
               that are no sums, such as a correlation, are computed of all of them
    """

    inputs: tuple[str, ...]
    score: Callable
    weights: Mapping[str, str]
    loss_terms: tuple[str, ...]
    tokens: tuple[str, ...]
    optional: tuple[str, ...] = ()
    loss_weights: Mapping[str, float] = MappingProxyType({})
    row_predictions: Callable | None = None

    def model_inputs(self, batch) -> dict[str, Any]:
        """Return the keywords that the model is called with for a batch."""
        given = {key: batch[key] for key in self.inputs}
        return given | {key: batch[key] for key in self.optional if key in batch}

    def value(self, means):
        """Return the loss, of {name: mean}."""
        return sum(self.loss_weights.get(name, 1.0) * means[name] for name in self.loss_terms)

    def totals(self, batch):
        """Return {name: the weight of the whole batch}, float32."""
        sums = {
            key: batch[key].sum(dtype=jnp.float32) for key in dict.fromkeys(self.weights.values())
        }  # in one order in every process
        return {name: sums[key] for name, key in self.weights.items()}

    def count_tokens(self, batch):
        """Return how many tokens the model reads and writes, a float32 scalar; padding is left out."""
        return sum(batch[key].sum(dtype=jnp.float32) for key in self.tokens)

    def compute_states(self, model, params, batch, **options):
        """Return what the model's `states` gives for a batch; options: of `apply_states`."""
        return self.apply_states(model, params, batch, **options)[0]

    def apply_states(self, model, params, batch, *, train=False, dropout_key=None, variables=None):
        """Return (what the model's `states` gives for a batch, {collection: what the model keeps of its rows}).

        variables: what it kept of the rows before, {} or None where nothing was read. A batch without `is_continued` goes on from nothing.
        """
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        inputs = self.model_inputs(batch)
        apply = partial(model.apply, train=train, rngs=rngs, method="states", **inputs)
        names = getattr(model, "collections", ())
        if not names:
            return apply({"params": params}), {}
        before = variables if variables and "is_continued" in batch else {}
        states, kept = apply({"params": params, **before}, mutable=list(names))
        return states, {name: kept[name] for name in names}

    def sums(
        self,
        model,
        params,
        batch,
        *,
        train: bool = False,
        dropout_key: jax.Array | None = None,
        options: LossOptions = DEFAULT_OPTIONS,
    ):
        """Return {name: float32 sum}, as `compute` does."""
        return self.compute(
            model, params, batch, train=train, dropout_key=dropout_key, options=options
        ).sums

    def compute(
        self,
        model,
        params,
        batch,
        *,
        train: bool = False,
        dropout_key: jax.Array | None = None,
        options: LossOptions = DEFAULT_OPTIONS,
        variables: Mapping[str, Any] | None = None,
    ) -> "Computed":
        """Return what a batch gives.

        train: whether the model drops, by the `dropout_key`. variables: as in `apply_states`.
        """
        cast = cast_params(params, options.compute_dtype)
        states, kept = self.apply_states(
            model, cast, batch, train=train, dropout_key=dropout_key, variables=variables
        )
        score_tokens = partial(
            token_loss,
            partial(model.apply, {"params": options.gather(cast)}, method="logits"),
            scores=options.scores_at_once,
            smoothing=options.label_smoothing,
        )
        sums = self.score(states, score_tokens, batch)
        predictions = self.row_predictions and self.row_predictions(states, batch)
        return Computed(sums, predictions, kept)
