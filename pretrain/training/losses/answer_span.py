"""The loss of the first and the last token of an answer, and the best span of each row.

B batch   L row length   M tokens of a span, at most
"""

import jax
import jax.numpy as jnp

from pretrain.evaluation.qa_spans import LONGEST
from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.base import Loss

NEVER = -1e30


def score(states_BL2, score_tokens, batch):
    """Return the mean of the cross-entropies of the first and the last token (Devlin et al. 2018, section 4.2).

    Each is over the tokens of the row.
    """
    scores_BL2 = jnp.where(batch["attention_mask"][..., None], states_BL2, NEVER)
    begin, end = (
        cross_entropy(scores_BL2[..., i], batch[key], batch["label_weights"])
        for i, key in enumerate(("start_positions", "end_positions"))
    )
    return {"answer_span": (begin[0] + end[0]) / 2, "answer_span_accuracy": (begin[1] + end[1]) / 2}


def predict_spans(states_BL2, batch):
    """Return float32 [B, 7] of the best span of each row.

    The columns: the question; the first and the last token of the best span, counted in its whole context; the sum of that span's logits;
    that of [CLS]'s; the logarithm of what the probability of a span is a share of; and 1 if the row counts. Numbers are exact up to 2^24.

    A span lies in the context and has at most LONGEST tokens; all of them are tried, where run_qa of transformers takes the 20 best ends of each.
    """
    states_BL2 = states_BL2.astype(jnp.float32)
    column_L, context_B1 = jnp.arange(states_BL2.shape[1]), batch["context_starts"][:, None]
    in_context_BL = (column_L >= context_B1) & (
        column_L < batch["attention_mask"].sum(axis=1, keepdims=True) - 1
    )
    begin_BL, end_BL = (jnp.where(in_context_BL, states_BL2[..., i], NEVER) for i in range(2))
    further_LM = column_L[:, None] + jnp.arange(LONGEST)
    ends_BLM = jnp.pad(end_BL, ((0, 0), (0, LONGEST)), constant_values=NEVER)[:, further_LM]
    spans_BN = (begin_BL[..., None] + ends_BLM).reshape(len(begin_BL), -1)
    first_B, more_B = jnp.divmod(spans_BN.argmax(axis=1), LONGEST)
    first_B = first_B - batch["context_starts"] + batch["context_offsets"]
    total_B = jax.nn.logsumexp(
        jnp.where(batch["attention_mask"][..., None], states_BL2, NEVER), axis=1
    ).sum(-1)
    columns = (
        batch["question_ids"],
        first_B,
        first_B + more_B,
        spans_BN.max(axis=1),
        states_BL2[:, 0].sum(-1),
        total_B,
        batch["label_weights"],
    )
    return jnp.stack([column.astype(jnp.float32) for column in columns], axis=1)


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "token_type_ids"),
    score=score,
    weights={"answer_span": "label_weights", "answer_span_accuracy": "label_weights"},
    loss_terms=("answer_span",),
    tokens=("attention_mask",),
    row_predictions=predict_spans,
)
