"""GPT (Radford et al. 2018): a Transformer decoder, pretrained to predict the next token.

B batch   L length   P masked positions   D width   V vocabulary
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax

from models.config.gpt import GptConfig
from models.layers.attention import Attention
from models.layers.cache import DecodingStep, look_up_positions
from models.layers.dropout import Dropout
from models.layers.heads import gather_positions
from models.layers.linear import Embed, Initializer, ModuleFactory
from models.layers.masks import Mask, make_causal_mask
from models.layers.mlp import Mlp, gelu_tanh
from models.layers.model import Model
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

NORMAL = nn.initializers.normal(0.02)  # section 4.1


def make_layer(
    config: GptConfig, wiring: ModuleFactory, ops: Ops, residual_init: Initializer = NORMAL
) -> partial[Any]:
    """Return the constructor of a layer.

    Args:
      config: the model's sizes.
      wiring: `PostNormLayer` or `PreNormLayer`.
      ops: the operations.
      residual_init: the initializer of the kernels whose outputs are added to the residual stream.
    """
    c = config
    return partial(
        wiring,
        attention=partial(
            Attention,
            c.num_heads,
            kernel_init=NORMAL,
            out_init=residual_init,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            ops=ops,
        ),
        mlp=partial(
            Mlp, c.mlp, activation=gelu_tanh, kernel_init=NORMAL, down_init=residual_init, ops=ops
        ),
        norm=partial(LayerNorm, c.epsilon, ops=ops),
        dropout=partial(Dropout, c.dropout, ops=ops),
    )


class GptEmbeddings(nn.Module):
    """token + position (section 3.1); the token embeddings are also the output's table."""

    config: GptConfig
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the two tables."""
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, NORMAL, self.ops)
        self.position_embedding = Embed(c.length, c.width, NORMAL, self.ops)
        self.drop = Dropout(c.embedding_dropout_rate, ops=self.ops)

    def __call__(
        self, token_ids: jax.Array, train: bool, step: DecodingStep | None = None
    ) -> jax.Array:
        """Return the embeddings [B, L, D] of int32 ids [B, L].

        Raises:
          ValueError: L is above the model's length.
        """
        L, max_length = token_ids.shape[1], self.config.length
        if L > max_length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {max_length} positions "
                "of the model (model.length)"
            )
        x_BLD = self.token_embedding(token_ids) + look_up_positions(
            self.position_embedding.embedding, L, step
        )
        return self.drop(x_BLD, deterministic=not train)


class Gpt(Model):
    """GPT's decoder (section 3.1)."""

    config: GptConfig

    def setup(self) -> None:
        """Make embeddings and layers."""
        c = self.config
        self.embeddings = GptEmbeddings(c, self.ops)
        self.decoder = Stack(
            make_layer(c, PostNormLayer, self.ops),
            c.depth,
            scan=c.scan,
            remat=c.remat,
            ops=self.ops,
        )

    def __call__(self, token_ids: jax.Array, train: bool = False) -> jax.Array:
        """Return the logits of the token after each position, float32 [B, L, V].

        token_ids: int32 [B, L]. Padding is allowed on the right: no token attends to it.
        """
        return self.compute_logits(self.compute_states(token_ids, train))

    def compute_states(
        self,
        token_ids: jax.Array,
        train: bool = False,
        step: DecodingStep | None = None,
        masked_positions: jax.Array | None = None,
    ) -> jax.Array:
        """Return the states [B, L, D] for `compute_logits`; that at l depends on tokens up to l.

        Args:
          token_ids: int32 [B, L], or [B, 1] with `step`.
          train: whether dropout is applied.
          step: a decoding step, whose tokens follow those in the cache.
          masked_positions: int32 [B, P], the positions before masked tokens. With them attention is
            bidirectional, and the states at these positions are returned, [B, P, D] (masked
            next-token prediction, Charpentier and Samuel 2024, section 3.1).
        """
        x_BLD = self.run_layers(token_ids, train, step, masked_positions)
        return gather_positions(x_BLD, masked_positions, self.ops)

    def run_layers(
        self,
        token_ids: jax.Array,
        train: bool,
        step: DecodingStep | None,
        masked_positions: jax.Array | None,
    ) -> jax.Array:
        """Return the last states at all positions [B, L, D]. Arguments: see `compute_states`."""
        mask = make_causal_mask(step=step) if masked_positions is None else Mask()
        return self.decoder(self.embeddings(token_ids, train, step), train, mask=mask)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return self.embeddings.token_embedding.attend(x_BLD)
