"""What several losses are made of.

B batch   T targets   P predictions   L length   D width   C scores of a row
"""

from functools import partial

import jax.numpy as jnp

from pretrain.training.cross_entropy import cross_entropy
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


def pair_loss(name):
    """Return the loss of masked words and of a question `name` about the two texts of a row, which the model answers by two scores."""

    def score(states, score_tokens, batch):
        hidden_BPD, answer_BC = states
        labels, weights = batch[f"{name}_labels"], batch[f"{name}_weights"]
        loss_sum, num_correct = cross_entropy(answer_BC, labels, weights)
        sums = token_sums("masked_lm", hidden_BPD, score_tokens, batch)
        return sums | {name: loss_sum, f"{name}_accuracy": num_correct}

    return Loss(
        inputs=("token_ids", "attention_mask", "token_type_ids", "masked_positions"),
        score=score,
        weights=MASKED_LM_WEIGHTS | dict.fromkeys((name, f"{name}_accuracy"), f"{name}_weights"),
        loss_terms=("masked_lm", name),
        tokens=("attention_mask",),
    )


def choice_loss(name, *, accuracy_weights):
    """Return the loss of the right one of C scores of a row; accuracy_weights: the batch key of 1 for each row that counts."""

    def score(scores_BC, score_tokens, batch):
        loss_sum, _ = cross_entropy(scores_BC, batch["labels"], batch["label_weights"])
        _, num_correct = cross_entropy(scores_BC, batch["labels"], batch[accuracy_weights])
        return {name: loss_sum, f"{name}_accuracy": num_correct}

    def predict_rows(scores_BC, batch):
        return predicted_and_label(scores_BC.argmax(-1), batch["labels"], batch[accuracy_weights])

    return Loss(
        inputs=("token_ids", "attention_mask", "token_type_ids"),
        score=score,
        weights={name: "label_weights", f"{name}_accuracy": accuracy_weights},
        loss_terms=(name,),
        tokens=("attention_mask",),
        row_predictions=predict_rows,
    )


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
