"""GPT-BERT (Charpentier and Samuel 2024): one network that predicts next tokens and masked ones.

A masked token is predicted at the position before it, so an output always means the next token;
the call chooses causal attention or attention in both directions. The layers are LTG-BERT's (Samuel
et al. 2023): attention by the bucket of the distance (He et al. 2021), gated feed-forward networks,
and norms without parameters. GPT-BERT gates the values, and gives each sublayer a learned sum of
all earlier outputs (Pagliardini et al. 2024) instead of the last one.

B batch   L query length   M key length   R buckets of distances   D width   F hidden width
V vocabulary   H heads   K head width   N earlier outputs
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.gpt_bert import GptBertConfig
from models.gpt import Gpt
from models.layers.attention import Attention
from models.layers.cache import CACHE, DecodingStep
from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Embed, Initializer
from models.layers.masks import Mask, make_causal_mask
from models.layers.mlp import GatedMlp, gelu, gelu_tanh
from models.layers.norms import LayerNorm, apply_layer_norm
from models.layers.ops import PLAIN, Ops
from models.layers.relative.distance_buckets import Distances, add_pair_terms, make_distances
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


def normalize(x: jax.Array, epsilon: float) -> jax.Array:
    """Return (x - mean) / sqrt(variance + epsilon) over the last dimension."""
    return apply_layer_norm(x, jnp.ones(x.shape[-1:]), epsilon=epsilon)


class PlainNorm(nn.Module):
    """A layer norm without parameters."""

    epsilon: float
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """Return x normalised over its last dimension."""
        return self.ops.recompute(partial(normalize, epsilon=self.epsilon))(x_BLD)


class BucketAttention(Attention):
    """Attention by content and distance, with gated values.

    The score of query i and key j is (q_i k_j + q_i k(r) + q(r) k_j) / sqrt(3 K), where q(r) and
    k(r) are the embedding of their distance's bucket, projected as content is. The output is
    projected of norm(GELU(gate) * values).
    """

    epsilon: float = 1e-5

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        mask: Mask,
        relative: Distances,
    ) -> jax.Array:
        """Return the output at each position, [B, L, D].

        Args:
          x_BLD: activations.
          train: whether dropout is applied.
          mask: causal or not.
          relative: the distances.

        Raises:
          ValueError: as `find_head_shapes`.
        """
        D = x_BLD.shape[-1]
        shape_HK, _ = self.find_head_shapes(D)
        dense = partial(Dense, kernel_init=self.kernel_init, ops=self.ops)
        query, key, value, gate = (
            dense(shape_HK, name=name) for name in ("query", "key", "value", "gate")
        )
        q_BLHK, k_BLHK, v_BLHK, gate_BLHK = (part(x_BLD) for part in (query, key, value, gate))
        e_RD = relative.embedding_RD.astype(x_BLD.dtype)
        e_RD = self.dropout()(e_RD, deterministic=not train, by_row=False)
        scale = (3 * shape_HK[1]) ** -0.5

        # Scaled in float32, and in the dtype of the activations for the product that picks them.
        def score(x_BLHK: jax.Array, e_RHK: jax.Array) -> jax.Array:
            score_BHLR = jnp.einsum(
                "blhk,rhk->bhlr", x_BLHK, e_RHK, preferred_element_type=jnp.float32
            )
            return (score_BHLR * scale).astype(x_BLHK.dtype)

        key_term_BHMR = self.join_cache(score(k_BLHK, query(e_RD)), mask.step)
        bias_BHLM = add_pair_terms(
            score(q_BLHK, key(e_RD)), key_term_BHMR, relative.bucket, mask.step is not None
        )
        drop = self.dropout(deterministic=not train).bind_key()
        context_BLHK = self.ops.attend(
            q_BLHK, k_BLHK, v_BLHK, mask=mask, bias=bias_BHLM, scale=scale, drop=drop
        )

        def join_gate(context_BLHK: jax.Array, gate_BLHK: jax.Array) -> jax.Array:
            y_BLD = (context_BLHK * gelu(gate_BLHK)).reshape(x_BLD.shape)
            return normalize(y_BLD, self.epsilon).reshape(context_BLHK.shape)

        out = dense(D, num_contracting_dims=2, name="out")
        return out(context_BLHK, gate_BLHK, activation=self.ops.recompute(join_gate))

    def join_cache(self, term_BHMR: jax.Array, step: DecodingStep | None) -> jax.Array:
        """Return the terms of all keys; in a decoding step, the earlier ones are from the cache.

        Keys themselves are in the cache too, where `attend` alone reads them.
        """
        name = "distance_terms"
        if step is None:
            if self.is_mutable_collection(CACHE) and not self.is_initializing():
                self.put_variable(CACHE, name, term_BHMR)
            return term_BHMR
        row_B = jnp.arange(len(step.position_B))
        cached_BHNR = self.get_variable(CACHE, name)
        cached_BHNR = cached_BHNR.at[row_B, :, step.position_B].set(term_BHMR[:, :, 0])
        self.put_variable(CACHE, name, cached_BHNR)
        return cached_BHNR


# ---- layers ------------------------------------------------------------------


class NormedGatedMlp(GatedMlp):
    """norm(activation(x W_gate) * x W_up) W_down."""

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x_BLD: jax.Array, train: bool = False) -> jax.Array:
        """Return activations [B, L, D]; there is no dropout of the hidden layer."""
        dense = partial(Dense, use_bias=False, kernel_init=self.kernel_init, ops=self.ops)
        gate_BLF, hidden_BLF = (dense(self.width, name=name)(x_BLD) for name in ("gate", "up"))

        def join_gate(gate_BLF: jax.Array, hidden_BLF: jax.Array) -> jax.Array:
            return normalize(self.activation(gate_BLF) * hidden_BLF, self.epsilon)

        down = dense(x_BLD.shape[-1], name="down")
        return down(gate_BLF, hidden_BLF, activation=self.ops.recompute(join_gate))


def initialize_last(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return weights that begin with the last output alone: 0, ..., 0, 1."""
    return jnp.zeros(shape).at[-1].set(1.0)


def mix_outputs(weights_N: jax.Array, *outputs: jax.Array) -> jax.Array:
    """Return the weighted sum of outputs [B, L, D], summed in float32, in their dtype."""
    weighted = (w * x.astype(jnp.float32) for w, x in zip(weights_N.astype(jnp.float32), outputs))
    return sum(weighted, jnp.zeros((), jnp.float32)).astype(outputs[0].dtype)


class MixingLayer(PreNormLayer):
    """y = x + f(norm(x)) of a sublayer, and then x = the learned sum of all y so far."""

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        train: bool,
        outputs: Sequence[jax.Array],
        mask: Mask,
        relative: Distances,
    ) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """Return all outputs so far, and their last sum [B, L, D].

        Args:
          x_BLD: the sum that the layer before returned.
          train: whether dropout is applied.
          outputs: the embeddings, then the outputs y of all earlier sublayers.
          mask: of the attention.
          relative: the distances.
        """
        drop = self.dropout(deterministic=not train)
        outputs = tuple(outputs)
        sublayers: dict[str, Callable[..., jax.Array]] = {
            "attention": partial(
                self.attention(name="attention"), train=train, mask=mask, relative=relative
            ),
            "mlp": partial(self.mlp(name="mlp"), train=train),
        }
        for name, apply_sublayer in sublayers.items():
            outputs += (x_BLD + drop(apply_sublayer(self.norm(name=f"{name}_norm")(x_BLD))),)
            weights_N = self.param(f"{name}_mix", initialize_last, (len(outputs),))
            x_BLD = self.ops.recompute(mix_outputs)(weights_N, *outputs)
        return outputs, x_BLD


class MixingStack(Stack):
    """Layers that read all earlier outputs; they are unrolled, because their shapes differ.

    layer: the constructor of a layer, given its number.
    """

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, train: bool, by_layer: Any = None, **arguments: Any
    ) -> jax.Array:
        """Return the last sum [B, L, D]. Args: as in `Stack`, which has no layer of its own."""

        def apply_layer(layer: Any, x_BLD: jax.Array, outputs: Any) -> Any:
            return layer(self.ops.constrain(x_BLD), train, outputs=outputs, **arguments)

        if self.remat:
            apply_layer = nn.remat(apply_layer)
        outputs: tuple[jax.Array, ...] = (x_BLD,)
        for i in range(self.depth):
            outputs, x_BLD = apply_layer(self.layer(i, name=f"layer_{i}"), x_BLD, outputs)
        return x_BLD


def make_layer(config: GptBertConfig, ops: Ops, number: int, name: str) -> MixingLayer:
    """Return a layer; number: from 0, the later the smaller its feed-forward network begins."""
    c = config
    return MixingLayer(
        attention=partial(
            BucketAttention,
            c.num_heads,
            kernel_init=make_init(c.width),
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            ops=ops,
            epsilon=c.epsilon,
        ),
        mlp=partial(
            NormedGatedMlp,
            c.mlp,
            activation=gelu_tanh,
            kernel_init=make_init(c.width, math.sqrt(1 / (2 * (1 + number)))),
            ops=ops,
            epsilon=c.epsilon,
        ),
        norm=partial(PlainNorm, c.epsilon, ops),
        dropout=partial(Dropout, c.dropout, ops=ops),
        ops=ops,
        name=name,
    )


def make_init(width: int, factor: float = 1.0) -> Initializer:
    """Return the initializer of kernels and tables: a truncated normal of sqrt(2 / 5D)."""
    return nn.initializers.truncated_normal(factor * math.sqrt(2 / (5 * width)))


# ---- model -------------------------------------------------------------------


class NormedHead(nn.Module):
    """Logits of the vocabulary: the similarity of norm(GELU(norm(x) W)) to each embedding.

    The paper's dropout before the last product is left out.
    """

    epsilon: float
    kernel_init: Initializer = TRUNCATED
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BPD: jax.Array, token_embedding: Embed) -> jax.Array:
        """Return logits, float32 [B, P, V]; token_embedding: the model's input table [V, D]."""
        norm = PlainNorm(self.epsilon, self.ops)
        transform = Dense(
            x_BPD.shape[-1], kernel_init=self.kernel_init, ops=self.ops, name="transform"
        )
        hidden_BPD = norm(self.ops.recompute(gelu)(transform(norm(x_BPD))))
        logits_BPV = token_embedding.attend(hidden_BPD)
        bias_V = self.param("bias", nn.initializers.zeros, (token_embedding.size,))
        return self.ops.add_bias(logits_BPV, bias_V.astype(jnp.float32))


class GptBert(Gpt):
    """GPT-BERT; the call is causal, and `compute_states` with `masked_positions` is not."""

    config: GptBertConfig

    def setup(self) -> None:
        """Make embeddings, layers and head."""
        c = self.config
        init = make_init(c.width)
        self.token_embedding = Embed(c.vocab, c.width, init, self.ops)
        self.norm = PlainNorm(c.epsilon, self.ops)
        self.drop = Dropout(c.dropout, ops=self.ops)
        self.relative_embedding = Embed(2 * c.buckets - 1, c.width, init, self.ops)
        self.relative_norm = LayerNorm(c.epsilon, self.ops)
        self.decoder = MixingStack(
            partial(make_layer, c, self.ops), c.depth, remat=c.remat, ops=self.ops
        )
        self.mlm_head = NormedHead(c.epsilon, init, self.ops)

    def run_layers(
        self,
        token_ids: jax.Array,
        train: bool,
        step: DecodingStep | None,
        masked_positions: jax.Array | None,
    ) -> jax.Array:
        """Return the last states at all positions [B, L, D]. Arguments: see `compute_states`.

        Raises:
          ValueError: the row, with what is generated, is longer than the model's length.
        """
        L, max_length = token_ids.shape[1], self.config.length
        if (N := L if step is None else step.num_slots) > max_length:
            raise ValueError(
                f"a row of {N} tokens is longer than model.length={max_length}. Distances have no "
                "table of positions: a larger model.length needs no new parameters"
            )
        mask = make_causal_mask(step=step) if masked_positions is None else Mask()
        table_RD = self.relative_norm(self.relative_embedding.embedding)
        distances = make_distances(table_RD, L, self.config.buckets, self.config.max_distance, step)
        x_BLD = self.drop(self.norm(self.token_embedding(token_ids)), deterministic=not train)
        return self.decoder(x_BLD, train, mask=mask, relative=distances)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return self.mlm_head(x_BLD, self.token_embedding)
