"""One vector a text: the states of an encoder, pooled (Reimers and Gurevych 2019, section 3).

A loss that compares all texts of a batch needs their vectors at once, but not their activations.
`texts_at_once` encodes a part at a time and computes each part again in the backward pass, so that
the gradient is the whole batch's in the memory of a part (Gao et al. 2021, GradCache).

B examples   K texts of each   N = B K texts   L length   D width
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.embedder import EmbedderConfig
from models.heads.base import HeadedModel
from models.layers.dropout import Dropout
from models.layers.heads import average_tokens, gather_last


def normalize_vectors(vectors_XD: jax.Array) -> jax.Array:
    """Return vectors [..., D] of length 1; a vector of zeros stays."""
    squares_X1 = jnp.square(vectors_XD).sum(axis=-1, keepdims=True)
    return vectors_XD * jax.lax.rsqrt(jnp.maximum(squares_X1, 1e-24))


class Embedder(HeadedModel):
    """The vectors of texts, and the scale of their cosines in a softmax."""

    config: EmbedderConfig

    def setup(self) -> None:
        """Make encoder, dropout and scale."""
        super().setup()
        self.drop = Dropout(self.config.dropout, ops=self.ops)
        if self.config.learn_temperature:
            initial = nn.initializers.constant(-math.log(self.config.temperature))
            self.log_scale = self.param("log_scale", initial, ())

    def compute_states(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the vectors of texts, float32 [B, K, D], and the scale of their cosines.

        The vectors have any length. Each text is a row of its own.

        Args:
          token_ids: int32 [B, K, L].
          attention_mask: bool [B, K, L], False on padding.
          token_type_ids: int32 [B, K, L]; all 0 by default. A [CLS] at the end has another type.
          train: whether dropout is applied.
        """
        B, K, L = token_ids.shape
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(token_ids)
        inputs = (token_ids, attention_mask, token_type_ids)
        vectors_ND = self.embed_parts([x.reshape(B * K, L) for x in inputs], train)
        scale = jnp.float32(1 / self.config.temperature)
        if self.config.learn_temperature:
            scale = jnp.exp(self.log_scale.astype(jnp.float32))
        return vectors_ND.reshape(B, K, -1), scale

    def embed(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array,
        train: bool = False,
    ) -> jax.Array:
        """Return the vectors of texts, float32 [N, D], of any length; inputs: [N, L]."""
        if self.config.encoder.is_causal:
            x_NLD = self.encoder.compute_states(token_ids, train=train)
        else:
            types_NL = jnp.minimum(token_type_ids, self.config.encoder.segments - 1)
            x_NLD, _ = self.encoder.encode(token_ids, attention_mask, types_NL, train=train)
        x_NLD = x_NLD.astype(jnp.float32)
        if self.config.pooling == "mean":
            vectors_ND = average_tokens(x_NLD, attention_mask)
        elif self.config.pooling == "last":
            vectors_ND = gather_last(x_NLD, attention_mask)
        else:
            vectors_ND = x_NLD[:, 0]
        return self.drop(vectors_ND, not train)

    def embed_parts(self, inputs: list[jax.Array], train: bool) -> jax.Array:
        """Return the result of `embed`, computed for `texts_at_once` texts after each other.

        Raises ValueError if the texts do not divide into such parts.
        """
        N, n = len(inputs[0]), self.config.texts_at_once
        if n is None or n >= N or self.is_initializing():
            return self.embed(*inputs, train=train)
        if N % n:
            raise ValueError(
                f"model.texts_at_once={n}: the batch has {N} texts, which do not divide into parts "
                "of that size; give a divisor"
            )

        def embed_part(model: "Embedder", _: None, part: list[jax.Array]) -> tuple[None, jax.Array]:
            return None, model.embed(*part, train=train)

        # Part i takes every (N / n)-th text, so that it is on all devices, as the batch is.
        parts = [x.reshape(n, N // n, -1).swapaxes(0, 1) for x in inputs]
        scan = nn.scan(
            nn.remat(embed_part, prevent_cse=False),
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True},
        )
        _, vectors_PnD = scan(self, None, parts)
        return vectors_PnD.swapaxes(0, 1).reshape(N, -1)
