"""ViT (Dosovitskiy et al. 2021): a Transformer encoder that reads an image as a row of patches.

B batch   H W height and width in pixels   C channels   P height and width of a patch
N patches   T learned tokens   L positions, T + N   D width   K classes
"""

import dataclasses
import math
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from models.config.base import PatchConfig
from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead
from models.layers.images.pixels import normalize_pixels
from models.layers.linear import FAN_IN, Dense, Embed, Initializer
from models.layers.mlp import Mlp
from models.layers.model import Model
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer

NORMAL = nn.initializers.normal(0.02)
LEVELS = 8  # of a channel of a mean color: 3 bits (appendix B.1.2)
TOKENS = "class_token", "distillation_token"  # in the order of their positions


def split_patches(x_BHWC: jax.Array, size: int) -> jax.Array:
    """Return the patches of images, row by row from the top left, [B, N, P, P, C]."""
    B, H, W, C = x_BHWC.shape
    rows, columns = H // size, W // size
    x = x_BHWC.reshape(B, rows, size, columns, size, C)
    return x.swapaxes(2, 3).reshape(B, rows * columns, size, size, C)


def corrupt_patches(x_BND: jax.Array, sources_BN: jax.Array, mask_D: jax.Array) -> jax.Array:
    """Return the embedding of each patch's source, or the [mask]'s where the source is below 0.

    sources_BN: int32, numbers of patches. mask_D: the [mask] embedding.
    """
    moved_BND = jnp.take_along_axis(x_BND, jnp.maximum(sources_BN, 0)[..., None], axis=1)
    return jnp.where(sources_BN[..., None] < 0, mask_D, moved_BND)


class PatchEmbeddings(nn.Module):
    """[tokens; patches E] + positions (equation 1), with one linear map E of the patch's values."""

    config: PatchConfig
    ops: Ops = PLAIN

    def setup(self) -> None:
        """Make the map, the learned tokens and the positions."""
        c = self.config
        self.patch_embedding = Dense(
            c.width, num_contracting_dims=3, kernel_init=FAN_IN, ops=self.ops
        )
        self.tokens = [self.param(name, NORMAL, (c.width,)) for name in TOKENS[: c.num_tokens]]
        self.position_embedding = Embed(c.num_tokens + c.grid_size**2, c.width, NORMAL)
        if c.predicts_patches:
            self.mask_token = self.param("mask_token", NORMAL, (c.width,))
        self.drop = Dropout(c.dropout, ops=self.ops)

    def __call__(
        self, pixels_BHWC: jax.Array, train: bool, sources_BN: jax.Array | None = None
    ) -> jax.Array:
        """Return the embeddings [B, L, D] of uint8 images; sources_BN: as in `corrupt_patches`."""
        c, table_LD = self.config, self.position_embedding.embedding
        x_BHWC = normalize_pixels(pixels_BHWC, c, table_LD.dtype)
        x_BLD = self.patch_embedding(split_patches(x_BHWC, c.patch_size))
        if sources_BN is not None:
            x_BLD = corrupt_patches(x_BLD, sources_BN, self.mask_token)
        if self.tokens:
            tokens_TD = jnp.stack(self.tokens)
            tokens_BTD = jnp.broadcast_to(tokens_TD, (x_BLD.shape[0], *tokens_TD.shape))
            x_BLD = jnp.concatenate([tokens_BTD, x_BLD], axis=1)
        return self.drop(x_BLD + table_LD, deterministic=not train)


class VisionTransformer(Model):
    """Embeddings, layers with the norm before each sublayer, a norm, and a head (section 3.1).

    kernel_init: of the layers; by default as in the paper's code.
    """

    encodes = True
    kernel_init: Initializer = nn.initializers.xavier_uniform()

    def setup(self) -> None:
        """Make embeddings, layers, norm and head."""
        c, ops = self.config, self.ops
        dropout = partial(Dropout, c.dropout, ops=ops)
        layer = partial(
            PreNormLayer,
            attention=partial(
                Attention,
                c.num_heads,
                use_bias=c.qkv_bias,
                out_bias=True,
                kernel_init=self.kernel_init,
                dropout=partial(Dropout, c.attention_dropout, ops=ops),
                ops=ops,
            ),
            mlp=partial(Mlp, c.mlp, kernel_init=self.kernel_init, dropout=dropout, ops=ops),
            norm=partial(LayerNorm, c.epsilon, ops=ops),
            dropout=dropout,
            ops=ops,
        )
        self.embeddings = PatchEmbeddings(c, ops)
        self.encoder = Stack(layer, c.depth, scan=c.scan, remat=c.remat, ops=ops)
        self.norm = LayerNorm(c.epsilon, ops)
        self.classifier = self.make_head()

    def make_head(self) -> ClassHead:
        """Return a linear map of a state to the logits of the classes, or of the mean colors."""
        c = self.config
        classes = LEVELS**c.channels if c.predicts_patches else c.classes
        return ClassHead(classes, partial(Dropout, 0.0), self.ops)

    def __call__(
        self, pixels: jax.Array, train: bool = False, **more_inputs: jax.Array
    ) -> jax.Array:
        """Return the logits of the classes, float32 [B, K]; of each patch's mean color, [B, N, K].

        Args:
          pixels: uint8 [B, H, W, C].
          train: whether dropout is applied.
          more_inputs: `patch_sources` of a model that predicts patches, as in `corrupt_patches`.
        """
        return self.compute_states(pixels, train, **more_inputs)

    def compute_states(
        self, pixels: jax.Array, train: bool = False, patch_sources: jax.Array | None = None
    ) -> jax.Array:
        """Return the logits, as `__call__`."""
        x_BLD, T = self.encode(pixels, train, patch_sources), self.config.num_tokens
        if self.config.predicts_patches:
            return self.classifier(x_BLD[:, T:])
        return self.classifier(x_BLD[:, 0] if T else x_BLD.mean(axis=1))

    def encode(
        self, pixels: jax.Array, train: bool = False, patch_sources: jax.Array | None = None
    ) -> jax.Array:
        """Return the final hidden states [B, L, D], learned tokens first, then patches."""
        c, own = self.config, {}
        if train and c.path_dropout:
            own["path_rate"] = np.linspace(0, c.path_dropout, c.depth, dtype=np.float32)
        x_BLD = self.encoder(self.embeddings(pixels, train, patch_sources), train, by_layer=own)
        return self.norm(x_BLD)


# ---- positions of other images -----------------------------------------------


def resize_positions(params: Any, config: PatchConfig, image_size: int) -> tuple[Any, PatchConfig]:
    """Return (parameters, configuration) for images of another size (section 3.2).

    The position embeddings of the patches are interpolated over the image: with cubic convolution
    and a = -0.75, whose points outside of the image are those at its edge, as PyTorch does.
    (`jax.image.resize` has a = -0.5.) The other parameters, and positions of tokens, stay.

    Raises:
      ValueError: the patches do not divide the new size.
    """
    resized = dataclasses.replace(config, image_size=image_size)
    table_LD = np.asarray(params["embeddings"]["position_embedding"]["embedding"])
    old, new, T = config.grid_size, resized.grid_size, config.num_tokens
    weights = make_cubic_weights(old, new)
    grid = table_LD[T:].astype(np.float64).reshape(old, old, -1)
    grid = np.einsum("yh,xw,hwd->yxd", weights, weights, grid).reshape(new * new, -1)
    positions = {"embedding": np.concatenate([table_LD[:T], grid.astype(table_LD.dtype)])}
    embeddings = {**params["embeddings"], "position_embedding": positions}
    return {**params, "embeddings": embeddings}, resized


def make_cubic_weights(old: int, new: int) -> np.ndarray:
    """Return the weights [new, old] with which `old` points in a row become `new` (Keys 1981).

    The points are the centres of equal parts of one interval.
    """
    a, weights = -0.75, np.zeros((new, old))
    for i in range(new):
        place = (i + 0.5) * old / new - 0.5
        for tap in range(math.floor(place) - 1, math.floor(place) + 3):
            d = abs(place - tap)
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weights[i, min(max(tap, 0), old - 1)] += near if d <= 1 else far
    return weights
