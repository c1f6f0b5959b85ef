"""The Reformer (Kitaev et al. 2020): long rows in little time and memory.

Attention is local, or among tokens that a hash puts into near buckets, in time linear in the length
of a row (section 2). The layers are reversible, so that a backward pass needs the activations of
one of them, and feed-forward networks are computed in chunks (section 3).

B batch   L length   D width   V vocabulary   N chunks   C positions of a chunk
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.reformer import ReformerConfig
from models.layers.cache import DecodingStep
from models.layers.dropout import Dropout
from models.layers.linear import Dense, Embed
from models.layers.long_rows.hashed_attention import HashedAttention, LocalAttention
from models.layers.long_rows.reversible import ReversibleLayer, ReversibleStack
from models.layers.masks import make_causal_mask
from models.layers.mlp import Mlp
from models.layers.model import Model
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops

NORMAL = nn.initializers.normal(0.02)


class ChunkedMlp(Mlp):
    """A feed-forward network that is applied to a chunk of positions at a time (section 3).

    The backward pass keeps the input of each chunk and computes the rest again.

    chunk: C; None: all positions at once.
    """

    chunk: int | None = None

    def __call__(self, x_BLD: jax.Array, train: bool = False) -> jax.Array:
        """Return activations [B, L, D]; train: whether dropout is applied."""
        (B, L, D), C = x_BLD.shape, self.chunk
        if not C or L <= C:
            return super().__call__(x_BLD, train)
        N = -(-L // C)
        padded_BLD = jnp.pad(x_BLD, ((0, 0), (0, N * C - L), (0, 0)))
        x_NBCD = padded_BLD.reshape(B, N, C, D).swapaxes(0, 1)
        apply_chunks = nn.scan(
            nn.remat(lambda mlp, _, x_BCD: (None, Mlp.__call__(mlp, x_BCD, train))),
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True},
        )
        y_NBCD = apply_chunks(self, None, x_NBCD)[1]
        return y_NBCD.swapaxes(0, 1).reshape(B, N * C, D)[:, :L]


def make_layers(config: ReformerConfig, ops: Ops) -> tuple[partial[ReversibleLayer], ...]:
    """Return the constructors of the layers that repeat.

    Raises:
      ValueError: they do not fit the depth, or the chunks of the two kinds do not fit each other.
    """
    c = config
    if not c.layers or c.depth % len(c.layers):
        raise ValueError(
            f"a depth of {c.depth} (model.depth) is not a multiple of the {len(c.layers)} layers "
            f"{','.join(c.layers)} that repeat (model.layers)"
        )
    chunks = {"lsh": c.hashing.chunk, "local": c.local.chunk}
    sizes = sorted({chunks[kind] for kind in c.layers})
    if sizes[-1] % sizes[0]:
        raise ValueError(
            f"chunks of {sizes[0]} and of {sizes[-1]} tokens: one must be a multiple of the other "
            "(model.hashing.chunk, model.local.chunk)"
        )
    shared = {"use_bias": False, "kernel_init": NORMAL, "multiple": sizes[-1], "ops": ops}
    attentions = {
        "lsh": partial(
            HashedAttention,
            *(c.num_heads, c.head_width),
            **shared,
            dropout=partial(Dropout, c.hashing.dropout, ops=ops),
            chunk=c.hashing.chunk,
            rounds=c.hashing.rounds,
            buckets=c.hashing.buckets,
            seed=c.hashing.seed,
            longest=c.length,
        ),
        "local": partial(
            LocalAttention,
            *(c.num_heads, c.head_width),
            **shared,
            dropout=partial(Dropout, c.local.dropout, ops=ops),
            chunk=c.local.chunk,
        ),
    }
    drop = partial(Dropout, c.dropout, ops=ops)
    mlp = partial(
        ChunkedMlp,
        c.mlp,
        activation=nn.relu,
        kernel_init=NORMAL,
        dropout=drop,
        ops=ops,
        chunk=c.mlp_chunk,
    )
    norm = partial(LayerNorm, c.epsilon, ops)
    return tuple(
        partial(ReversibleLayer, attentions[kind], mlp, norm, drop, ops) for kind in c.layers
    )


class AxialEmbeddings(nn.Module):
    """token + [row, column] of its position in a table of positions, side by side.

    A table of R x C positions has R + C embeddings.
    """

    config: ReformerConfig
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the three tables.

        Raises:
          ValueError: there are not two axes, or their widths do not add up to the model's.
        """
        c = self.config
        if len(c.axial_shape) != 2 or len(c.axial_widths) != 2 or min(c.axial_shape) < 1:
            raise ValueError(
                f"axial positions of shape {c.axial_shape} and widths {c.axial_widths}: both must "
                "be two numbers, of rows and columns (model.axial_shape, model.axial_widths)"
            )
        if sum(c.axial_widths) != c.width or min(c.axial_widths) < 1:
            raise ValueError(
                f"axial positions of widths {c.axial_widths} (model.axial_widths) do not add up to "
                f"the {c.width} of the model (model.width)"
            )
        self.token_embedding = Embed(c.vocab, c.width, NORMAL, self.ops)
        self.row_embedding, self.column_embedding = (
            Embed(size, width, NORMAL) for size, width in zip(c.axial_shape, c.axial_widths)
        )
        self.drop = Dropout(c.dropout, ops=self.ops)

    def __call__(
        self, token_ids: jax.Array, train: bool, step: DecodingStep | None = None
    ) -> jax.Array:
        """Return the embeddings [B, L, D] of int32 ids [B, L].

        Raises:
          ValueError: there are more positions than the table has.
        """
        c, L = self.config, token_ids.shape[1] if step is None else step.num_slots
        if L > c.length:
            rows, columns = c.axial_shape
            raise ValueError(
                f"a row of {L} tokens is longer than the {rows} x {columns} = {c.length} positions "
                "of the model (model.axial_shape)"
            )
        positions = jnp.arange(L) if step is None else step.position_B[:, None]
        row, column = jnp.divmod(positions, c.axial_shape[1])
        parts = self.row_embedding(row), self.column_embedding(column)
        x_BLD = self.token_embedding(token_ids) + jnp.concatenate(parts, axis=-1)
        return self.drop(x_BLD, deterministic=not train)


class Reformer(Model):
    """The language model.

    Raises:
      ValueError: sizes do not fit each other.
    """

    config: ReformerConfig

    def setup(self) -> None:
        """Make embeddings, layers, final norm and output."""
        c = self.config
        layers = make_layers(c, self.ops)
        self.embeddings = AxialEmbeddings(c, self.ops)
        self.decoder = ReversibleStack(
            layers, c.num_groups, scan=c.scan, remat=c.remat, ops=self.ops
        )
        self.norm = LayerNorm(c.epsilon, self.ops)
        self.drop = Dropout(c.dropout, ops=self.ops)
        self.lm_head = Dense(c.vocab, kernel_init=NORMAL, out_dtype=jnp.float32, ops=self.ops)

    def __call__(
        self, token_ids: jax.Array, segment_ids: jax.Array | None = None, train: bool = False
    ) -> jax.Array:
        """Return the logits of the token after each position, float32 [B, L, V].

        token_ids: int32 [B, L]. Padding is allowed on the right: no token attends to it.
        segment_ids: see `compute_states`.
        """
        return self.compute_logits(self.compute_states(token_ids, segment_ids, train))

    def compute_states(
        self,
        token_ids: jax.Array,
        segment_ids: jax.Array | None = None,
        train: bool = False,
        step: DecodingStep | None = None,
    ) -> jax.Array:
        """Return the states [B, L, 2 D] for `compute_logits`, of tokens up to each position.

        Args:
          token_ids: int32 [B, L], or [B, 1] with `step`.
          segment_ids: int32 [B, L], the text of each token in a packed row; a token attends to its
            own. Positions count from the start of the row. None: one text a row.
          train: whether dropout is applied, and tokens are hashed by new rotations.
          step: a decoding step, whose tokens follow those in the cache.
        """
        mask = make_causal_mask(segment_ids_BL=segment_ids, step=step)
        x_BLD = self.embeddings(token_ids, train, step)
        return self.drop(self.norm(self.decoder(x_BLD, train, mask)), deterministic=not train)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the logits of the vocabulary, float32 [B, L, V]."""
        return self.lm_head(x_BLD)
