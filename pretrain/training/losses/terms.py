"""Building blocks that several losses share.

B batch   T targets   P predictions   L length   D width   C scores of a row
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens

MASKED_LM_WEIGHTS = {"masked_lm": "label_weights", "masked_lm_accuracy": "label_weights"}


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
