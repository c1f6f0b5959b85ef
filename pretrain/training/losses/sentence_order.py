"""The loss of masked words and of the order of two segments (Lan et al. 2020, section 3.1).

B batch   P predictions   D width   C before, behind
"""

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import MASKED_LM_WEIGHTS, token_sums


def score(states, score_tokens, batch):
    """Return the sums of the masked words, and of whether A stands before B."""
    hidden_BPD, order_BC = states
    loss_sum, num_correct = cross_entropy(
        order_BC, batch["sentence_order_labels"], batch["sentence_order_weights"]
    )
    return token_sums("masked_lm", hidden_BPD, score_tokens, batch) | {
        "sentence_order": loss_sum,
        "sentence_order_accuracy": num_correct,
    }


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "token_type_ids", "masked_positions"),
    score=score,
    weights=MASKED_LM_WEIGHTS
    | {
        "sentence_order": "sentence_order_weights",
        "sentence_order_accuracy": "sentence_order_weights",
    },
    loss_terms=("masked_lm", "sentence_order"),
    tokens=("attention_mask",),
)
