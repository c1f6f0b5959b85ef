"""The record of a loss: sums over a batch, each with the weights that divide it; common losses.

B batch   T targets   P predictions   D width   K columns   C scores of a row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.layers.ops import leave_unchanged
from pretrain.mesh.gradient_exchange import cast_params
from pretrain.settings.overrides import ConfigError
from pretrain.training.cross_entropy import (
    MAX_SCORES_PER_ROW,
    cross_entropy,
    take_scores,
    token_cross_entropy,
)

Batch = Mapping[str, jax.Array]
MASKED_LM_WEIGHTS = {"masked_lm": "label_weights", "masked_lm_accuracy": "label_weights"}


@dataclass(frozen=True)
class ScoreTokens:
    """The cross entropy of the logits that the model computes of hidden states.

    Attributes:
      logits: hidden_BTD -> logits of the vocabulary.
      scores_at_once, label_smoothing, take, z_loss: as in `LossOptions`; losses of classes and tags
        take the smoothing too.
    """

    logits: Callable[[jax.Array], jax.Array]
    scores_at_once: float = MAX_SCORES_PER_ROW
    label_smoothing: float = 0.0
    take: Callable[[jax.Array, jax.Array], jax.Array] = take_scores
    z_loss: float = 0.0

    def refuse_smoothing(self, reason: str) -> None:
        """Raise a ConfigError with the reason if labels are smoothed."""
        if self.label_smoothing:
            raise ConfigError(
                f"train.label_smoothing={self.label_smoothing:g}: {reason}; "
                "give train.label_smoothing=0"
            )

    def __call__(
        self, hidden_BTD: jax.Array, labels_BT: jax.Array, weights_BT: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return (loss_sum, num_correct)."""
        return token_cross_entropy(
            self.logits,
            hidden_BTD,
            labels_BT,
            weights_BT,
            max_scores=self.scores_at_once,
            smoothing=self.label_smoothing,
            take=self.take,
            z_loss=self.z_loss,
        )


@dataclass(frozen=True)
class LossOptions:
    """How any loss is computed.

    Attributes:
      compute_dtype: of the model's arithmetic.
      gather: applied once to the parameters that make the logits; a trainer that shards parameters
        gathers them here.
      scores_at_once: the number of logits that a row holds at a time, approximately.
      label_smoothing: share of a target's weight that all tokens get; see `cross_entropy`.
      take: takes the scores of the targets; see `cross_entropy`.
      z_loss: factor of the squared log of the softmax' sum, for losses over the vocabulary.
    """

    compute_dtype: str = "float32"
    gather: Callable = leave_unchanged
    scores_at_once: float = MAX_SCORES_PER_ROW
    label_smoothing: float = 0.0
    take: Callable[[jax.Array, jax.Array], jax.Array] = take_scores
    z_loss: float = 0.0


DEFAULT_OPTIONS = LossOptions()


class LossOutput(NamedTuple):
    """The result of a loss on a batch.

    Attributes:
      sums: {name: float32 sum}.
      predictions: the result of `Loss.row_predictions`, or None.
      variables: {collection: what the model passes on from the rows of the batch}.
    """

    sums: dict[str, jax.Array]
    predictions: Any
    variables: dict[str, Any]


class Loss(NamedTuple):
    """The loss of one objective.

    Attributes:
      input_keys: batch keys that the model takes as keyword arguments of the same names.
      compute_sums: (result of the model's `compute_states`, score_tokens, batch) -> {name: float32
        sum over the batch's targets}; see `ScoreTokens`.
      weight_keys: {name of a sum: batch key whose sum divides it}.
      loss_terms: names whose means add up to the loss; the others are metrics.
      token_keys: batch keys whose sum is the number of tokens read and written, without padding.
      optional_keys: batch keys that the model takes if the batch has them.
      loss_weights: {name of a term: factor of its mean}, if not 1.
      perplexity_terms: names of the sums over predicted tokens; (): the first of `loss_terms`.
      row_predictions: for objectives whose labels belong to rows: (states, batch) -> float32
        [B, K], the prediction and the label of each row (K = 3; `tagging` and `answer_span`
        differ), and in the last column 1 for a row that counts. Metrics that are not sums, such as
        a correlation, are computed from the predictions of all rows.
      configure: (objective) -> the loss of its settings; None: it is the same for all settings.
    """

    input_keys: tuple[str, ...]
    compute_sums: Callable[..., dict[str, jax.Array]]
    weight_keys: Mapping[str, str]
    loss_terms: tuple[str, ...]
    token_keys: tuple[str, ...]
    optional_keys: tuple[str, ...] = ()
    loss_weights: Mapping[str, float] = MappingProxyType({})
    perplexity_terms: tuple[str, ...] = ()
    row_predictions: Callable[..., jax.Array] | None = None
    configure: Callable[[Any], Loss] | None = None

    def select_inputs(self, batch: Batch) -> dict[str, Any]:
        """Return the keyword arguments of the model for a batch."""
        required = {key: batch[key] for key in self.input_keys}
        return required | {key: batch[key] for key in self.optional_keys if key in batch}

    def compute_loss(self, means: Mapping[str, Any]) -> Any:
        """Return the loss from {name: mean}."""
        return sum(self.loss_weights.get(name, 1.0) * means[name] for name in self.loss_terms)

    def sum_weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return {name: weight of the whole batch}, float32."""
        keys = dict.fromkeys(self.weight_keys.values())  # in the same order in every process
        sums = {key: batch[key].sum(dtype=jnp.float32) for key in keys}
        return {name: sums[key] for name, key in self.weight_keys.items()}

    def count_tokens(self, batch: Batch) -> Any:
        """Return the number of tokens read and written without padding, a float32 scalar."""
        return sum(batch[key].sum(dtype=jnp.float32) for key in self.token_keys)

    def compute_states(self, model: Any, params: Any, batch: Batch, **options: Any) -> Any:
        """Return the model's `compute_states` for a batch. options: of `apply_states`."""
        return self.apply_states(model, params, batch, **options)[0]

    def apply_states(
        self,
        model: Any,
        params: Any,
        batch: Batch,
        *,
        train: bool = False,
        dropout_key: jax.Array | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Return (the model's `compute_states` for a batch, {collection: its new variables}).

        variables: those after the previous batch; {} or None at the beginning. They are ignored
        for a batch without `is_continued`.
        """
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        inputs = self.select_inputs(batch)
        apply = partial(model.apply, train=train, rngs=rngs, method="compute_states", **inputs)
        names = model.collections
        if not names:
            return apply({"params": params}), {}
        old_variables = variables if variables and "is_continued" in batch else {}
        states, new_variables = apply({"params": params, **old_variables}, mutable=list(names))
        return states, {name: new_variables[name] for name in names}

    def sum_batch(
        self,
        model: Any,
        params: Any,
        batch: Batch,
        *,
        train: bool = False,
        dropout_key: jax.Array | None = None,
        options: LossOptions = DEFAULT_OPTIONS,
    ) -> dict[str, jax.Array]:
        """Return {name: float32 sum}; the arguments are as for `compute_batch`."""
        return self.compute_batch(
            model, params, batch, train=train, dropout_key=dropout_key, options=options
        ).sums

    def compute_batch(
        self,
        model: Any,
        params: Any,
        batch: Batch,
        *,
        train: bool = False,
        dropout_key: jax.Array | None = None,
        options: LossOptions = DEFAULT_OPTIONS,
        variables: Mapping[str, Any] | None = None,
    ) -> LossOutput:
        """Return the sums, row predictions and new variables of a batch.

        Args:
          train: whether the model applies dropout.
          dropout_key: of the dropout; needed with `train`.
          options: how the loss is computed.
          variables: as in `apply_states`.
        """
        compute_params = cast_params(params, options.compute_dtype)
        states, new_variables = self.apply_states(
            model, compute_params, batch, train=train, dropout_key=dropout_key, variables=variables
        )
        gathered = {"params": options.gather(compute_params)}
        logits = partial(model.apply, gathered, method=model.logits_method)
        score_tokens = ScoreTokens(
            logits, options.scores_at_once, options.label_smoothing, options.take, options.z_loss
        )
        sums = self.compute_sums(states, score_tokens, batch)
        predictions = self.row_predictions and self.row_predictions(states, batch)
        return LossOutput(sums, predictions, new_variables)


# ---- what several losses share -----------------------------------------------------


def compute_token_sums(
    name: str, hidden_BTD: jax.Array, score_tokens: ScoreTokens, batch: Batch
) -> dict[str, jax.Array]:
    """Return the loss and the number of correct predictions of token labels."""
    loss_sum, num_correct = score_tokens(hidden_BTD, batch["labels"], batch["label_weights"])
    return {name: loss_sum, f"{name}_accuracy": num_correct}


def stack_predictions(
    predicted_B: jax.Array, labels_B: jax.Array, weights_B: jax.Array
) -> jax.Array:
    """Return float32 [B, 3], as `Loss.row_predictions` describes."""
    columns = predicted_B.astype(jnp.float32), labels_B.astype(jnp.float32), weights_B
    return jnp.stack(columns, axis=1)


def make_pair_loss(name: str) -> Loss:
    """Return the masked LM loss plus a binary loss `name` on the two segments of a row."""

    def compute_sums(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
        hidden_BPD, logits_BC = states
        labels, weights = batch[f"{name}_labels"], batch[f"{name}_weights"]
        loss_sum, num_correct = cross_entropy(logits_BC, labels, weights)
        sums = compute_token_sums("masked_lm", hidden_BPD, score_tokens, batch)
        return sums | {name: loss_sum, f"{name}_accuracy": num_correct}

    return Loss(
        input_keys=("token_ids", "attention_mask", "token_type_ids", "masked_positions"),
        compute_sums=compute_sums,
        weight_keys=MASKED_LM_WEIGHTS
        | dict.fromkeys((name, f"{name}_accuracy"), f"{name}_weights"),
        loss_terms=("masked_lm", name),
        token_keys=("attention_mask",),
    )


def make_choice_loss(name: str, *, accuracy_weights: str) -> Loss:
    """Return the cross entropy of the correct one of the C scores of a row.

    accuracy_weights: the batch key whose values are 1 for rows that count, else 0.
    """

    def compute_sums(
        scores_BC: jax.Array, score_tokens: ScoreTokens, batch: Batch
    ) -> dict[str, jax.Array]:
        smoothing = score_tokens.label_smoothing
        loss_sum, _ = cross_entropy(scores_BC, batch["labels"], batch["label_weights"], smoothing)
        _, num_correct = cross_entropy(scores_BC, batch["labels"], batch[accuracy_weights])
        return {name: loss_sum, f"{name}_accuracy": num_correct}

    def predict_rows(scores_BC: jax.Array, batch: Batch) -> jax.Array:
        return stack_predictions(scores_BC.argmax(-1), batch["labels"], batch[accuracy_weights])

    return Loss(
        input_keys=("token_ids", "attention_mask", "token_type_ids"),
        compute_sums=compute_sums,
        weight_keys={name: "label_weights", f"{name}_accuracy": accuracy_weights},
        loss_terms=(name,),
        token_keys=("attention_mask",),
        row_predictions=predict_rows,
    )


def make_seq2seq_loss(name: str, optional: Sequence[str] = ()) -> Loss:
    """Return the cross entropy of the labels of an encoder-decoder.

    optional: further batch keys that the model takes if the batch has them.
    """
    return Loss(
        input_keys=("encoder_token_ids", "encoder_attention_mask", "labels"),
        optional_keys=tuple(optional),
        compute_sums=partial(compute_token_sums, name),
        weight_keys={name: "label_weights", f"{name}_accuracy": "label_weights"},
        loss_terms=(name,),
        token_keys=("encoder_attention_mask", "label_weights"),
    )
