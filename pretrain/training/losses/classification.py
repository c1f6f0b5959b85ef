"""The loss of the class of a row (Devlin et al. 2018, section 4.1).

B batch   C classes
"""

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import predicted_and_label


def score(logits_BC, score_tokens, batch):
    """Return the sums of the classes: the loss by their weights, the correct ones by rows."""
    loss_sum, _ = cross_entropy(logits_BC, batch["labels"], batch["label_weights"])
    _, num_correct = cross_entropy(logits_BC, batch["labels"], batch["row_weights"])
    return {"classification": loss_sum, "classification_accuracy": num_correct}


def predict_rows(logits_BC, batch):
    """Return the likeliest class of each row, as `Loss.row_predictions` says."""
    return predicted_and_label(logits_BC.argmax(-1), batch["labels"], batch["row_weights"])


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "token_type_ids"),
    score=score,
    weights={"classification": "label_weights", "classification_accuracy": "row_weights"},
    loss_terms=("classification",),
    tokens=("attention_mask",),
    row_predictions=predict_rows,
)
