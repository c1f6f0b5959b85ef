"""Draw what a trained ViT has learned to see, as in Dosovitskiy et al. 2021, figure 7.

K filters   G patches along each side   P size of a patch   C channels   N layers   H heads
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from data.images.image_files import encode_pixels
from pretrain.host.terminal import escape
from pretrain.reporting.fonts import choose_fonts, using_fonts
from pretrain.reporting.patch_maps import make_data_url

COLUMNS = 7  # of the filters
NEGATIVE, POSITIVE = (33, 102, 200), (214, 60, 45)  # colors of the cosines -1 and 1; 0 is white


class PatchFigures(NamedTuple):
    """What a model of patches has learned.

    Attributes:
      distances_NH: mean distance in pixels to what each head attends to; None: not measured.
    """

    filters_KPPC: np.ndarray
    cosines_GGGG: np.ndarray
    distances_NH: np.ndarray | None


def draw_filters(filters_KPPC: np.ndarray) -> np.ndarray:
    """Return the filters side by side, uint8 [height, width, C]; 0 is 128 and the largest 255."""
    peaks_K = np.abs(filters_KPPC).max(axis=(1, 2, 3), keepdims=True)
    tiles = np.rint(128 + 127 * filters_KPPC / np.maximum(peaks_K, 1e-30)).astype(np.uint8)
    return join_tiles(tiles, COLUMNS)


def draw_cosines(cosines_GGGG: np.ndarray) -> np.ndarray:
    """Return a tile for each patch, at its place, uint8 [height, width, 3]."""
    G = len(cosines_GGGG)
    share = np.abs(cosines_GGGG.clip(-1, 1)).reshape(G * G, G, G, 1)
    color = np.where(cosines_GGGG.reshape(share.shape) < 0, NEGATIVE, POSITIVE)
    return join_tiles(np.rint(255 * (1 - share) + color * share).astype(np.uint8), G)


def join_tiles(tiles: np.ndarray, columns: int) -> np.ndarray:
    """Return tiles uint8 [number, height, width, C] in rows, with white lines between them."""
    rows = -(-len(tiles) // columns)
    number, height, width, channels = tiles.shape
    whole = np.full((rows * columns, height + 1, width + 1, channels), 255, np.uint8)
    whole[:number, :height, :width] = tiles
    whole = whole.reshape(rows, columns, height + 1, width + 1, channels).swapaxes(1, 2)
    return whole.reshape(rows * (height + 1), columns * (width + 1), channels)[:-1, :-1]


def describe_figures(figures: PatchFigures) -> dict[str, Any]:
    """Return {"filters", "positions": addresses of images, "distances": [N][H] or None}."""
    distances_NH = figures.distances_NH
    return {
        "filters": make_data_url(encode_pixels(draw_filters(figures.filters_KPPC))),
        "positions": make_data_url(encode_pixels(draw_cosines(figures.cosines_GGGG))),
        "distances": None if distances_NH is None else distances_NH.tolist(),
    }


def draw_figures(title: str, figures: PatchFigures, path: str | os.PathLike[str]) -> None:
    """Draw the figures side by side, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    families, _ = choose_fonts([escape(title)])
    with using_fonts(families):
        figure = Figure(figsize=(12, 4.2), dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(escape(title), fontsize=10, parse_math=False)
        axes = figure.subplots(1, 2 if figures.distances_NH is None else 3)
        filters = draw_filters(figures.filters_KPPC)
        axes[0].imshow(np.broadcast_to(filters, (*filters.shape[:2], 3)), interpolation="nearest")
        axes[0].set_title("principal components of the filters", fontsize=9)
        axes[1].imshow(draw_cosines(figures.cosines_GGGG), interpolation="nearest")
        axes[1].set_title("cosine of the position embeddings\nred 1, white 0, blue -1", fontsize=9)
        for one in axes[:2]:
            one.set_axis_off()
        if figures.distances_NH is not None:
            layers = np.arange(1, len(figures.distances_NH) + 1)
            axes[2].plot(layers, np.sort(figures.distances_NH, axis=1), "o", color="C0")
            axes[2].set(xlabel="layer", ylabel="pixels", xticks=layers)
            axes[2].set_ylim(0, 1.1 * figures.distances_NH.max())
            axes[2].set_title("mean attention distance of each head", fontsize=9)
            axes[2].grid(alpha=0.3)
        figure.savefig(path)
