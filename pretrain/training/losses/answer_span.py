"""Extractive question answering: cross entropy of the first and last token of an answer.

B batch   L row length   M longest span   N candidate spans of a row
"""

import jax
import jax.numpy as jnp

from data.rows.frames import CLS_TYPE
from pretrain.evaluation.qa_spans import LONGEST
from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens

MASKED_SCORE = -1e30


def compute_sums(
    states_BL2: jax.Array, score_tokens: ScoreTokens, batch: Batch
) -> dict[str, jax.Array]:
    """Return the mean of the cross entropies of the first and the last token of each answer.

    Each is over the tokens of the row (Devlin et al. 2018, section 4.2).
    """
    score_tokens.refuse_smoothing("an answer's first and last token are learned without it")
    logits_BL2 = jnp.where(batch["attention_mask"][..., None], states_BL2, MASKED_SCORE)
    start, end = (
        cross_entropy(logits_BL2[..., i], batch[key], batch["label_weights"])
        for i, key in enumerate(("start_positions", "end_positions"))
    )
    return {"answer_span": (start[0] + end[0]) / 2, "answer_span_accuracy": (start[1] + end[1]) / 2}


def predict_spans(states_BL2: jax.Array, batch: Batch) -> jax.Array:
    """Return the best span of each row, float32 [B, 7].

    The columns are the question id; the first and the last token of the best span, as positions in
    the whole context; the sum of the two logits of that span; the sum of the two logits of [CLS];
    the log of the normaliser of span probabilities; and 1 for a row that counts, else 0. Integers
    are exact up to 2^24.

    A span is within the context, has at most LONGEST tokens and a token with text: tokens of blanks
    alone are no answer. All such spans are tried, where run_qa of transformers tries the 20 best
    starts and ends of each row.
    """
    states_BL2 = states_BL2.astype(jnp.float32)
    column_L, context_B1 = jnp.arange(states_BL2.shape[1]), batch["context_starts"][:, None]
    # The position of the [CLS]: its type differs from the texts' where it is last.
    cls_B1 = (batch["token_type_ids"] == CLS_TYPE).argmax(axis=1, keepdims=True)
    num_after_B1 = jnp.where(cls_B1 > 0, 2, 1)  # [SEP], and perhaps the [CLS]
    end_B1 = batch["attention_mask"].sum(axis=1, keepdims=True) - num_after_B1
    in_context_BL = (column_L >= context_B1) & (column_L < end_B1)
    start_BL, end_BL = (
        jnp.where(in_context_BL, states_BL2[..., i], MASKED_SCORE) for i in range(2)
    )
    end_column_LM = column_L[:, None] + jnp.arange(LONGEST)
    padded_end_BL = jnp.pad(end_BL, ((0, 0), (0, LONGEST)), constant_values=MASKED_SCORE)
    end_BLM = padded_end_BL[:, end_column_LM]
    has_text_BL = batch["text_tokens"].astype(jnp.int32)
    through_BL = jnp.cumsum(has_text_BL, axis=1)
    before_BL = through_BL - has_text_BL
    through_BL = jnp.pad(through_BL, ((0, 0), (0, LONGEST)), mode="edge")
    has_text_BLM = through_BL[:, end_column_LM] > before_BL[..., None]
    spans_BLM = jnp.where(has_text_BLM, start_BL[..., None] + end_BLM, 2 * MASKED_SCORE)
    spans_BN = spans_BLM.reshape(len(start_BL), -1)
    first_B, length_B = jnp.divmod(spans_BN.argmax(axis=1), LONGEST)
    first_B = first_B - batch["context_starts"] + batch["context_offsets"]
    log_normalizer_B = jax.nn.logsumexp(
        jnp.where(batch["attention_mask"][..., None], states_BL2, MASKED_SCORE), axis=1
    ).sum(-1)
    columns = (
        batch["question_ids"],
        first_B,
        first_B + length_B,
        spans_BN.max(axis=1),
        jnp.take_along_axis(states_BL2, cls_B1[..., None], axis=1).sum((1, 2)),
        log_normalizer_B,
        batch["label_weights"],
    )
    return jnp.stack([column.astype(jnp.float32) for column in columns], axis=1)


LOSS = Loss(
    input_keys=("token_ids", "attention_mask", "token_type_ids"),
    compute_sums=compute_sums,
    weight_keys={"answer_span": "label_weights", "answer_span_accuracy": "label_weights"},
    loss_terms=("answer_span",),
    token_keys=("attention_mask",),
    row_predictions=predict_spans,
)
