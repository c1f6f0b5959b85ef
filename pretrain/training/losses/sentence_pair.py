"""The loss of masked words and of the next sentence (Devlin et al. 2018, section 3.1, tasks 1 and 2).

B batch   P predictions   D width   C is next, is not
"""

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import MASKED_LM_WEIGHTS, token_sums


def score(states, score_tokens, batch):
    """Return the sums of the masked words, and of whether B follows A."""
    hidden_BPD, next_BC = states
    loss_sum, num_correct = cross_entropy(
        next_BC, batch["next_sentence_labels"], batch["next_sentence_weights"]
    )
    return token_sums("masked_lm", hidden_BPD, score_tokens, batch) | {
        "next_sentence": loss_sum,
        "next_sentence_accuracy": num_correct,
    }


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "token_type_ids", "masked_positions"),
    score=score,
    weights=MASKED_LM_WEIGHTS
    | {
        "next_sentence": "next_sentence_weights",
        "next_sentence_accuracy": "next_sentence_weights",
    },
    loss_terms=("masked_lm", "next_sentence"),
    tokens=("attention_mask",),
)
