"""Bidirectional LM: the mean of the cross entropies of both directions.

Peters et al. (2018), section 3.1. The paper's sum of both log-likelihoods is halved, as in the
released code.

B batch   L length
"""

from typing import Any

import jax
import jax.numpy as jnp

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens

WEIGHTS = {"forward": "label_weights", "backward": "backward_weights"}


def compute_sums(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the loss of each direction and the number of its correct predictions.

    In training with samples, a prediction is correct if the target is above all samples. Raises
    ConfigError if labels are smoothed there.
    """
    sums = {}
    for name, key in WEIGHTS.items():
        labels_BL, weights_BL = getattr(states, f"{name}_labels_BL"), batch[key]
        scores = getattr(states, f"{name}_scores")
        if scores is None:
            hidden_BLD = getattr(states, f"{name}_BLD")
            loss_sum, num_correct = score_tokens(hidden_BLD, labels_BL, weights_BL)
        else:
            score_tokens.refuse_smoothing("with model.samples no score of all words is computed")
            first_BL = jnp.zeros(labels_BL.shape, jnp.int32)
            loss_sum, num_correct = cross_entropy(scores, first_BL, weights_BL)
        sums |= {f"{name}_lm": loss_sum, f"{name}_lm_accuracy": num_correct}
    return sums


LOSS = Loss(
    input_keys=("token_ids", "backward_ids", "labels", "backward_labels"),
    optional_keys=("is_continued",),
    compute_sums=compute_sums,
    weight_keys={
        f"{name}_lm{end}": key for name, key in WEIGHTS.items() for end in ("", "_accuracy")
    },
    loss_terms=("forward_lm", "backward_lm"),
    loss_weights={"forward_lm": 0.5, "backward_lm": 0.5},
    perplexity_terms=("forward_lm", "backward_lm"),
    token_keys=("label_weights",),
)
