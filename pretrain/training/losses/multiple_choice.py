"""The loss of the right one of a question's choices (Devlin et al. 2018, section 4.4).

B batch   C choices
"""

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import predicted_and_label


def score(scores_BC, score_tokens, batch):
    """Return the sums of the choices."""
    loss_sum, num_correct = cross_entropy(scores_BC, batch["labels"], batch["label_weights"])
    return {"multiple_choice": loss_sum, "multiple_choice_accuracy": num_correct}


def predict_rows(scores_BC, batch):
    """Return the best choice of each question, as `Loss.row_predictions` says."""
    return predicted_and_label(scores_BC.argmax(-1), batch["labels"], batch["label_weights"])


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "token_type_ids"),
    score=score,
    weights={"multiple_choice": "label_weights", "multiple_choice_accuracy": "label_weights"},
    loss_terms=("multiple_choice",),
    tokens=("attention_mask",),
    row_predictions=predict_rows,
)
