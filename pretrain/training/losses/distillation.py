"""The loss of a student that a teacher teaches (Sanh et al. 2019, section 3).

B batch   L length   P predictions   D width
"""

import jax.numpy as jnp

from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import MASKED_LM_WEIGHTS, token_sums


def score(states, score_tokens, batch):
    """Return the sums of the masked words, of what the teacher thinks of them, and of its states."""
    hidden_BPD, lesson = states
    return token_sums("masked_lm", hidden_BPD, score_tokens, batch) | {
        "distillation": (lesson.words_BP * batch["label_weights"]).sum(),
        "states": jnp.where(batch["attention_mask"], lesson.states_BL, 0.0).sum(),
    }


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "masked_positions"),
    optional=("segment_ids",),
    score=score,
    weights=MASKED_LM_WEIGHTS | {"distillation": "label_weights", "states": "attention_mask"},
    loss_terms=("masked_lm", "distillation", "states"),
    tokens=("attention_mask",),
    # As the authors' code was run; the paper names none.
    loss_weights={"masked_lm": 2.0, "distillation": 5.0},
)
