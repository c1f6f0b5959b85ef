"""Articles as fields: cross entropy of the next token (Zellers et al. 2019, section 3.1)."""

from functools import partial

from pretrain.training.losses.loss import Loss, compute_token_sums

LOSS = Loss(
    input_keys=("token_ids",),
    compute_sums=partial(compute_token_sums, "partitioned_fields"),
    weight_keys={
        "partitioned_fields": "label_weights",
        "partitioned_fields_accuracy": "label_weights",
    },
    loss_terms=("partitioned_fields",),
    token_keys=("label_weights",),
)
