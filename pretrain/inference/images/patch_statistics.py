"""What a trained ViT has learned to see: the figures of Dosovitskiy et al. 2021, figure 7.

B batch   N layers   H heads   T learned tokens   S size of an image   G patches along each side
P size of a patch   C channels   D width   K components
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from data.store.kinds import open_source
from models import build
from models.activations import capture_activations
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.reporting.patch_figures import PatchFigures

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

NUM_FILTERS = 28  # as many as the paper's figure has
NUM_IMAGES = 32  # held-out images whose attention distances are averaged


def compute_patch_figures(trained: Trained, report: Callable[[str], Any] = print) -> PatchFigures:
    """Return the figures of a model of patches, with its parameters on the first device.

    The distances come from NUM_IMAGES held-out images of the run's store, spread over the split.

    report: receives a line if the store no longer exists; then there are no distances.
    """
    config: Any = trained.run.model
    embeddings = jax.device_get(trained.params["embeddings"])
    table_LD = embeddings["position_embedding"]["embedding"]
    distances_NH = None
    if trained.read_manifest() is None:
        report(f"{trained.run.data.store}: the store is absent, so no attention distance is drawn")
    else:
        rows = open_source(trained.run.data.store).open_rows("heldout", trained.run.data.objective)
        build_rows, count = rows.build_plain or rows.build, rows.table.count
        chosen = np.unique(np.linspace(0, count - 1, NUM_IMAGES).astype(np.int64))
        model = build(config, **make_local_hooks())
        distances = [
            measure_distances(
                model, trained.params, build_rows(row, row.astype(np.uint64))["pixels"]
            )
            for row in chosen[:, None]
        ]
        distances_NH = np.mean(jax.device_get(distances), axis=0)
    return PatchFigures(
        compute_filters(embeddings["patch_embedding"]["kernel"], NUM_FILTERS),
        compare_positions(table_LD[config.num_tokens :]),
        distances_NH,
    )


def compute_filters(kernel_PPCD: np.ndarray, count: int) -> np.ndarray:
    """Return the first principal components of D filters, [K, P, P, C], with the most variance.

    The largest value of each is positive. There are at most as many as a filter has values.
    """
    filters_DF = kernel_PPCD.reshape(-1, kernel_PPCD.shape[-1]).T.astype(np.float64)
    components_KF = np.linalg.svd(filters_DF - filters_DF.mean(axis=0), full_matrices=False)[2]
    components_KF = components_KF[:count]
    peaks_K = np.take_along_axis(components_KF, np.abs(components_KF).argmax(1)[:, None], axis=1)
    return (components_KF * np.sign(peaks_K)).reshape(-1, *kernel_PPCD.shape[:-1])


def compare_positions(table_ND: np.ndarray) -> np.ndarray:
    """Return the cosines of the position embeddings of all pairs of patches, [G, G, G, G]."""
    unit_ND = table_ND.astype(np.float64)
    unit_ND /= np.maximum(np.linalg.norm(unit_ND, axis=1, keepdims=True), 1e-30)
    G = round(len(unit_ND) ** 0.5)
    return (unit_ND @ unit_ND.T).reshape(G, G, G, G)


@partial(jax.jit, static_argnums=0)
def measure_distances(model: Any, params: Any, pixels_BSSC: jax.Array) -> jax.Array:
    """Return how far each head attends, float32 [N, H] in pixels.

    The mean over images and patches of the distance between the centres of a patch and of those
    that it attends to, weighted by its attention to patches.
    """
    config = model.config
    T, places_N2 = config.num_tokens, np.indices((config.grid_size,) * 2).reshape(2, -1).T
    between_NN = np.linalg.norm(places_N2[:, None] - places_N2, axis=-1) * config.patch_size
    activations = capture_activations(model, params, pixels_BSSC, method="compute_states")
    found = []
    for weights_BHLL in activations.attention_weights["attention"]:
        weights_BHNN = weights_BHLL[:, :, T:, T:]
        sums_BHN = (weights_BHNN * between_NN).sum(axis=-1)
        found.append((sums_BHN / weights_BHNN.sum(axis=-1)).mean(axis=(0, 2)))
    return jnp.stack(found)
