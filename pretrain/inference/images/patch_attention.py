"""Where a model of images looks: the attention to patches, its rollout, and its mean distance.

B batch   N layers   H heads   L positions   T learned tokens   S size of an image   C channels
G patches along each side   K classes
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from data.images.image_files import check_pillow
from models import build
from models.activations import capture_activations
from pretrain.inference.attention_maps import check_weights
from pretrain.inference.images.image_labels import read_image
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.device_feed import place_shared_rows
from pretrain.mesh.sharding import make_replicated_sharding
from pretrain.reporting.patch_maps import ImageMaps

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from pretrain.workdir.trained import Trained


def compute_image_maps(trained: Trained, mesh: Mesh, paths: Sequence[str]) -> list[ImageMaps]:
    """Return the maps of image files, each with its most probable class in the title.

    Raises:
      ValueError: a file is no image, or an attention weight is not a number; the message names the
        file.
    """
    check_pillow()
    objective: Any = trained.run.data.objective
    images = [read_image(path, objective) for path in paths]
    classes = trained.images.classes
    config: Any = trained.run.model
    model = build(config, **make_model_hooks(mesh, []))
    compute = jax.jit(partial(_compute_maps, model), out_shardings=make_replicated_sharding(mesh))
    maps = []
    for path, pixels_SSC in zip(paths, images):
        pixels_BSSC = place_shared_rows(mesh, pixels_SSC[None])
        weights_NHGG, rollout_NGG, logits_K = jax.device_get(compute(trained.params, pixels_BSSC))
        check_weights(path, weights_NHGG)
        title = pathlib.Path(path).name
        if not config.predicts_patches:
            shares_K = np.asarray(jax.nn.softmax(logits_K[: len(classes)]))
            title += f": {classes[shares_K.argmax()]} ({shares_K.max():.1%})"
        maps.append(ImageMaps(title, pixels_SSC, weights_NHGG, rollout_NGG))
    return maps


def _compute_maps(
    model: Any, params: Any, pixels_BSSC: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the weights [N, H, G, G], their rollout [N, G, G] and the logits [K] of one image.

    They belong to the positions that the head reads: the mean of the learned tokens, or of all
    patches in a model without such tokens, or that predicts patches.
    """
    G, T = model.config.grid_size, model.config.num_tokens
    activations = capture_activations(model, params, pixels_BSSC, method="compute_states")
    weights_NHLL = jnp.stack([w_BHLL[0] for w_BHLL in activations.attention_weights["attention"]])
    read = slice(T) if T and not model.config.predicts_patches else slice(T, None)
    weights_NHL = weights_NHLL[:, :, read].mean(axis=2)
    rollout_NL = roll_out(weights_NHLL.mean(axis=1))[:, read].mean(axis=1)
    weights_NHGG = weights_NHL[..., T:].reshape(*weights_NHL.shape[:2], G, G)
    return weights_NHGG, rollout_NL[:, T:].reshape(-1, G, G), activations.output[0]


def roll_out(weights_NLL: jax.Array) -> jax.Array:
    """Return the share of each input in each state of each layer (Abnar and Zuidema 2020).

        R_n = (A_n + I) / 2 R_(n-1)

    weights_NLL: A_n, the mean weights of the heads of each layer; their rows sum to 1.
    """
    identity_LL, rolled = jnp.eye(weights_NLL.shape[-1], dtype=weights_NLL.dtype), []
    for weights_LL in weights_NLL:
        share_LL = (weights_LL + identity_LL) / 2
        rolled.append(share_LL @ rolled[-1] if rolled else share_LL)
    return jnp.stack(rolled)
