"""Linformer (Wang et al. 2020): attention in time and memory linear in the length of a row.

Keys and values are projected along the row, from its n positions to k mixtures of them, and each
query attends to the mixtures: softmax(Q (E K)^T / sqrt(d)) F V (section 4, equation 7). The rest is
BERT's encoder. All positions are mixed, so that nothing but padding can be hidden from a query.

B batch   L length of a row   N longest row, the paper's n   R rank, the paper's k   D width
H heads   K head width
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.linformer import LinformerConfig
from models.layers.attention import Attention
from models.layers.encoder import MaskedLanguageModel, PooledEncoder
from models.layers.heads import MaskedLMHead
from models.layers.linear import ModuleFactory
from models.layers.masks import Mask

# That of the authors' code, a variance of 1 / (N + R); the paper gives none.
INIT = partial(nn.initializers.variance_scaling, 0.5, "fan_avg", "uniform")


def project_positions(x_BLD: jax.Array, projection_NR: jax.Array) -> jax.Array:
    """Return E^T x, R mixtures of the positions of each row, [B, R, D].

    Position l has the weights of row l of E; a row of L < N positions reads the first L.
    """
    return jnp.einsum("bld,lr->brd", x_BLD, projection_NR[: x_BLD.shape[1]])


def check_mask(mask: Mask | jax.Array | None) -> None:
    """Raise ValueError if a mask hides more than padding."""
    if mask is not None and (
        not isinstance(mask, Mask) or mask.replace(attention_mask_BM=None) != Mask()
    ):
        raise ValueError(
            "Linformer's keys are mixtures of all positions of a row: no position can be hidden "
            "from another, as causal attention, a window and packed rows (segment_ids) need. Give "
            "it one text a row; to read several, use a model of full attention"
        )


class LinformerAttention(Attention):
    """Attention to `rank` mixtures of the positions of a row.

    Padding is replaced by 0 before it is projected, so that it adds nothing to a mixture.

    length: N.
    rank: R.
    sharing: as in `LinformerConfig`. The matrices are [N, R]; with "none" the heads have
      [H, N, R]. With "layerwise" the matrix is the argument `projection`.
    """

    length: int = 512
    rank: int = 256
    sharing: str = "layerwise"

    def project_source(
        self,
        project: ModuleFactory,
        source_BMD: jax.Array,
        mask: Mask | jax.Array | None,
        projection: Any,
    ) -> tuple[jax.Array, jax.Array, Mask]:
        """Return the keys E x W + b and the values F x W + b, [B, R, H, K], of which all are read.

        x is projected before W is applied where the heads share E: to R rows, not to L.

        Raises:
          ValueError: the mask hides more than padding, or the row is longer than N.
        """
        check_mask(mask)
        L = source_BMD.shape[1]
        if L > self.length:
            raise ValueError(
                f"a row of {L} tokens is longer than the {self.length} positions of the projection "
                "(model.length)"
            )
        if isinstance(mask, Mask) and mask.attention_mask_BM is not None:
            source_BMD = jnp.where(mask.attention_mask_BM[..., None], source_BMD, 0)
        if self.sharing == "none":
            key, value = (self.project_heads(project, name) for name in ("key", "value"))
            return key(source_BMD), value(source_BMD), Mask()
        names = {"headwise": ("key_projection", "value_projection"), "key-value": ("projection",)}
        shape_NR = self.length, self.rank
        matrices = [self.param(name, INIT(), shape_NR) for name in names.get(self.sharing, ())]
        mixtures = [project_positions(source_BMD, E_NR) for E_NR in matrices or [projection]]
        return project(name="key")(mixtures[0]), project(name="value")(mixtures[-1]), Mask()

    def project_heads(self, project: ModuleFactory, name: str) -> nn.Module:
        """Return the map x -> E_h x W_h + b_h of each head h, [B, R, H, K]."""
        shape_HNR = self.num_heads, self.length, self.rank
        projection_HNR = self.param(f"head_{name}_projection", INIT(batch_axis=(0,)), shape_HNR)

        def apply_linear(x_BLD: jax.Array, kernel: jax.Array, *settings: Any) -> jax.Array:
            x_BLHK = self.ops.linear(x_BLD, kernel, *settings)
            return jnp.einsum("blhk,hlr->brhk", x_BLHK, projection_HNR[:, : x_BLD.shape[1]])

        return project(name=name, ops=self.ops._replace(linear=apply_linear))


class LinformerEncoder(PooledEncoder):
    """BERT's encoder with `LinformerAttention`."""

    def setup(self) -> None:
        """Make embeddings, layers and pooler, and the projection that all layers share.

        Raises:
          ValueError: the rank is above the length.
        """
        super().setup()
        c = self.config
        if c.rank > c.length:
            raise ValueError(
                f"a rank of {c.rank} (model.rank) is above the {c.length} positions of a row "
                "(model.length): full attention costs less"
            )
        is_shared = c.sharing == "layerwise"
        shape_NR = c.length, c.rank
        self.projection = self.param("projection", INIT(), shape_NR) if is_shared else None

    def list_shared_arguments(self) -> dict[str, Any]:
        """Return {"projection": E [N, R], or None where each layer has its own}."""
        return {"projection": self.projection}


class LinformerForMaskedLM(MaskedLanguageModel):
    """Masked language modelling, as RoBERTa's (section 5.1).

    Pretraining does not update the pooler; a fine-tuning head reads it.
    """

    config: LinformerConfig

    def setup(self) -> None:
        """Make the encoder and the masked-LM head."""
        c = self.config
        attention = partial(LinformerAttention, length=c.length, rank=c.rank, sharing=c.sharing)
        self.linformer = LinformerEncoder(c, self.ops, attention=attention)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)

    @property
    def base_model(self) -> LinformerEncoder:
        """The encoder."""
        return self.linformer
