"""Contrastive learning: cross entropy of each query's own text among the texts of the batch.

The batch is the whole batch of all devices: under `jit` each query meets the texts of all, and the
gradient goes through their vectors.

B examples   K texts of each   C = B (K - 1) candidates   D width
"""

import jax
import jax.numpy as jnp

from data.objectives.contrastive import Contrastive
from models.heads.embedder import normalize_vectors
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens, stack_predictions

# Odd multipliers of two hashes of 32 bits, so that 2^14 texts have hardly a collision.
MULTIPLIERS = (0x9E3779B1, 0x85EBCA77)
EXCLUDED = -1e30  # the score of a candidate that does not count


def hash_texts(token_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """Return two hashes of each text, uint32 [..., 2]; inputs: [..., L].

    Two texts with the same hashes are taken to be the same.
    """
    ids = jnp.where(attention_mask, token_ids + 1, 0).astype(jnp.uint32)
    hashes = []
    for multiplier in MULTIPLIERS:
        powers_L = jnp.cumprod(jnp.full(ids.shape[-1], multiplier, jnp.uint32))
        mixed = ids * powers_L
        hashes.append((mixed ^ (mixed >> 15)).sum(axis=-1, dtype=jnp.uint32))
    return jnp.stack(hashes, axis=-1)


def exclude_texts(batch: Batch) -> jax.Array:
    """Return bool [B, C]: candidates that are no negatives of a query.

    Those are other copies of its own texts, and texts of rows that only fill the batch. The
    candidates are the positives of all examples, then the first negative of all, and so on.
    """
    B, K, _ = batch["token_ids"].shape
    hash_BK2 = hash_texts(batch["token_ids"], batch["attention_mask"])
    candidate_C2 = hash_BK2[:, 1:].swapaxes(0, 1).reshape(-1, 2)
    own_BK2 = hash_BK2[:, :2]  # the query and its positive
    is_copy_BC = (own_BK2[:, :, None] == candidate_C2).all(axis=-1).any(axis=1)
    is_filler_C = jnp.tile(batch["label_weights"] == 0, K - 1)
    is_own_BC = jnp.arange(B)[:, None] == jnp.arange(B * (K - 1))
    return (is_copy_BC | is_filler_C) & ~is_own_BC


def score_pairs(
    vectors_BKD: jax.Array, scale: jax.Array, excluded_BC: jax.Array, both: bool
) -> tuple[jax.Array, jax.Array]:
    """Return the loss of each example, and whether its positive is first, float32 [B] each.

    Args:
      scale: factor of the cosines, the inverse of the temperature.
      excluded_BC: of `exclude_texts`.
      both: whether the queries of the positives are found too.
    """
    B = len(vectors_BKD)
    vectors_BKD = normalize_vectors(vectors_BKD)
    query_BD = vectors_BKD[:, 0]
    candidate_CD = vectors_BKD[:, 1:].swapaxes(0, 1).reshape(-1, query_BD.shape[-1])
    score_BC = scale * jnp.einsum("bd,cd->bc", query_BD, candidate_CD, precision="highest")
    score_BC = jnp.where(excluded_BC, EXCLUDED, score_BC)
    own_B = jnp.arange(B)
    loss_B = -jax.nn.log_softmax(score_BC)[own_B, own_B]
    if both:
        # The score of a positive and a query is that of the query and the positive.
        loss_B = (loss_B - jax.nn.log_softmax(score_BC[:, :B].T)[own_B, own_B]) / 2
    return loss_B, (score_BC.argmax(axis=1) == own_B).astype(jnp.float32)


def make_contrastive(objective: Contrastive) -> Loss:
    """Return the loss of an objective's directions and widths."""
    both = objective.directions == "both"

    def compute_sums(
        states: tuple[jax.Array, jax.Array], score_tokens: ScoreTokens, batch: Batch
    ) -> dict[str, jax.Array]:
        score_tokens.refuse_smoothing("the texts of a batch are no classes")
        vectors_BKD, scale = states
        width = vectors_BKD.shape[-1]
        if max(objective.widths, default=0) > width:
            raise ValueError(
                f"data.objective.widths={objective.widths}: the vectors have {width} components"
            )
        excluded_BC, weights_B = exclude_texts(batch), batch["label_weights"]
        losses_B = [
            score_pairs(vectors_BKD[..., :first], scale, excluded_BC, both)
            for first in objective.widths or (width,)
        ]
        _, is_right_B = score_pairs(vectors_BKD, scale, excluded_BC, both)
        total_B = sum(loss_B for loss_B, _ in losses_B)
        return {
            "contrastive": (total_B * weights_B).sum(),
            "contrastive_accuracy": (is_right_B * weights_B).sum(),
        }

    # A loss with predictions of rows has no perplexity, which is of tokens.
    def predict_rows(states: tuple[jax.Array, jax.Array], batch: Batch) -> jax.Array:
        _, is_right_B = score_pairs(*states, exclude_texts(batch), both)
        return stack_predictions(is_right_B, jnp.ones_like(is_right_B), batch["label_weights"])

    return Loss(
        input_keys=("token_ids", "attention_mask", "token_type_ids"),
        compute_sums=compute_sums,
        weight_keys=dict.fromkeys(("contrastive", "contrastive_accuracy"), "label_weights"),
        loss_terms=("contrastive",),
        token_keys=("attention_mask",),
        row_predictions=predict_rows,
        configure=make_contrastive,
    )


LOSS = make_contrastive(Contrastive())
