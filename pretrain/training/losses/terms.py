"""What several losses are made of.

B batch   T targets   L length   D width
"""

from functools import partial

import jax.numpy as jnp

from pretrain.training.losses.base import Loss

MASKED_LM_WEIGHTS = {"masked_lm": "label_weights", "masked_lm_accuracy": "label_weights"}


def token_sums(name, hidden_BTD, score_tokens, batch):
    """Return the two sums of an objective whose labels are words: the loss and the number of correct predictions."""
    loss_sum, num_correct = score_tokens(hidden_BTD, batch["labels"], batch["label_weights"])
    return {name: loss_sum, f"{name}_accuracy": num_correct}


def predicted_and_label(predicted_B, labels_B, weights_B):
    """Return float32 [B, 3], as `Loss.row_predictions` says."""
    columns = predicted_B.astype(jnp.float32), labels_B.astype(jnp.float32), weights_B
    return jnp.stack(columns, axis=1)


def seq2seq_loss(name, optional=()):
    """Return the loss of an encoder that reads a text and a decoder that writes the labels.

    optional: what else of the batch the model is given, where it is there.
    """
    return Loss(
        inputs=("encoder_token_ids", "encoder_attention_mask", "labels"),
        optional=optional,
        score=partial(token_sums, name),
        weights={name: "label_weights", f"{name}_accuracy": "label_weights"},
        loss_terms=(name,),
        tokens=("encoder_attention_mask", "label_weights"),
    )
