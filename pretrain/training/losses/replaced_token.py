"""The loss of a generator of masked words and of a discriminator that finds its words (Clark et al. 2020, section 2).

B batch   L length   P predictions   D width
"""

import jax.numpy as jnp

from pretrain.training.cross_entropy import binary_cross_entropy
from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import MASKED_LM_WEIGHTS, token_sums


def score(states, score_tokens, batch):
    """Return the sums of the masked words, by the generator, and of which words are its own, by the discriminator."""
    hidden_BPD, logits_BL, replaced_BL = states
    weights_BL = batch["discriminator_weights"]
    loss_sum, num_correct = binary_cross_entropy(logits_BL, replaced_BL, weights_BL)
    return token_sums("masked_lm", hidden_BPD, score_tokens, batch) | {
        "replaced_token": loss_sum,
        "replaced_token_accuracy": num_correct,
        # What is wrong where every word is taken for the text's.
        "replaced_token_share": jnp.where(replaced_BL, weights_BL, 0.0).sum(),
    }


LOSS = Loss(
    inputs=(
        *("token_ids", "attention_mask", "masked_positions"),
        *("labels", "label_weights", "uniforms"),  # of which the generator draws its words
    ),
    optional=("segment_ids",),
    score=score,
    weights=MASKED_LM_WEIGHTS
    | {
        "replaced_token": "discriminator_weights",
        "replaced_token_accuracy": "discriminator_weights",
        "replaced_token_share": "discriminator_weights",
    },
    loss_terms=("masked_lm", "replaced_token"),
    tokens=("attention_mask",),
    loss_weights={"replaced_token": 50.0},  # the paper's lambda (appendix A)
)
