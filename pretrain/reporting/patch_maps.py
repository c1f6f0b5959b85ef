"""Maps of attention over images: a page of static HTML, and PNG files.

A map is laid over its image in one color, whose opacity is the share of the map's largest value.

N layers   H heads   S height and width of an image   C channels   G patches along each side
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

import base64
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.images.image_files import encode_pixels
from pretrain.host.terminal import escape
from pretrain.reporting.fonts import choose_fonts, using_fonts
from pretrain.reporting.html import escape_name

COLOR = 230, 60, 20
OPACITY = 0.8  # of the largest value of a map
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # nothing is fetched
STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; font: 16px/1.45 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.15rem; }
h2 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0; font-size: .85rem; }
.layer { display: flex; flex-wrap: wrap; gap: .4rem; margin: .4rem 0; }
figure { margin: 0; width: 7rem; font-size: .75rem; }
.tile { width: 7rem; height: 7rem; background-size: 100% 100%; image-rendering: pixelated; }
.tile img { width: 100%; height: 100%; display: block; image-rendering: pixelated; }
"""
LEGEND = (
    "The redder a patch, the more attention it gets; the reddest patch of each map has the share "
    "below it. Rollout multiplies the layers up to its row, each with half of it as the residual."
)


class ImageMaps(NamedTuple):
    """The attention to the patches of an image, from the positions that the head reads.

    Attributes:
      title: what the image is.
      pixels_SSC: uint8, as the model reads the image.
      weights_NHGG: float32, of each head; their sum is at most 1, the rest is of learned tokens.
      rollout_NGG: float32, of all layers up to each.
    """

    title: str
    pixels_SSC: np.ndarray
    weights_NHGG: np.ndarray
    rollout_NGG: np.ndarray

    def list_maps(self, layer: int, heads: Sequence[int]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (name, map [G, G]) of a layer; layer, heads: numbers from 1."""
        yield "rollout", self.rollout_NGG[layer - 1]
        yield "mean of the heads", self.weights_NHGG[layer - 1].mean(axis=0)
        for head in heads:
            yield f"head {head}", self.weights_NHGG[layer - 1, head - 1]


def make_overlay(map_GG: np.ndarray) -> np.ndarray:
    """Return the color and opacity of each patch, uint8 [G, G, 4]."""
    opacity = OPACITY * map_GG / max(float(map_GG.max()), 1e-30)
    overlay = np.empty((*map_GG.shape, 4), np.uint8)
    overlay[..., :3], overlay[..., 3] = COLOR, np.rint(255 * opacity)
    return overlay


def lay_over(pixels_SSC: np.ndarray, map_GG: np.ndarray) -> np.ndarray:
    """Return an image under its map, uint8 [S, S, 3]."""
    size = len(pixels_SSC) // len(map_GG)
    overlay = make_overlay(map_GG).repeat(size, axis=0).repeat(size, axis=1).astype(np.float64)
    alpha = overlay[..., 3:] / 255
    return np.rint(pixels_SSC * (1 - alpha) + overlay[..., :3] * alpha).astype(np.uint8)


# ---- as a page ---------------------------------------------------------------


def render_patch_page(title: str, images: Sequence[ImageMaps], layers: Sequence[int]) -> str:
    """Return the page with all heads of these layers, numbers from 1; every text is escaped."""
    urls = [make_data_url(encode_pixels(image.pixels_SSC)) for image in images]
    backgrounds = "".join(
        f'.i{n} .tile {{ background-image: url("{url}"); }}\n' for n, url in enumerate(urls)
    )
    sections = "\n".join(
        f'<section class="i{n}">\n<h2>{escape_name(image.title)}</h2>\n'
        f'<div class="layer"><figure><div class="tile"></div>the image</figure></div>\n'
        + "".join(render_layer(image, layer) for layer in layers)
        + "</section>"
        for n, image in enumerate(images)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape_name(title)}</title>\n<style>{STYLE}{backgrounds}</style>\n</head>\n"
        f"<body>\n<h1>{escape_name(title)}</h1>\n<p>{LEGEND}</p>\n{sections}\n</body>\n</html>\n"
    )


def render_layer(image: ImageMaps, layer: int) -> str:
    """Return the maps of a layer over the image."""
    heads = range(1, image.weights_NHGG.shape[1] + 1)
    figures = "".join(
        '<figure><div class="tile">'
        f'<img alt="" src="{make_data_url(encode_overlay(map_GG))}"></div>'
        f"{name}: {map_GG.max():.1%}</figure>\n"
        for name, map_GG in image.list_maps(layer, heads)
    )
    return f'<p>layer {layer}</p>\n<div class="layer">\n{figures}</div>\n'


def encode_overlay(map_GG: np.ndarray) -> bytes:
    """Return the PNG file of an overlay, a pixel for each patch."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(make_overlay(map_GG)).save(file, "PNG")
    return file.getvalue()


def make_data_url(content: bytes) -> str:
    """Return the address that holds a PNG file itself."""
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


# ---- as PNG files ------------------------------------------------------------


def draw_image_maps(
    image: ImageMaps,
    layers: Sequence[int],
    heads: Sequence[int],
    path: str | os.PathLike[str] | Any,
) -> list[str]:
    """Draw a row of maps for each layer, as a PNG; layers, heads: numbers from 1.

    Returns:
      The letters that no installed font has, which are drawn as boxes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    title, columns = escape(image.title), 3 + len(heads)
    families, missing = choose_fonts([title])
    with using_fonts(families):
        size = 1.3 * columns, 1.5 * len(layers) + 0.4
        figure = Figure(figsize=size, dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, fontsize=9, parse_math=False)
        for row, layer in zip(figure.subplots(len(layers), columns, squeeze=False), layers):
            tiles = [
                ("the image", np.broadcast_to(image.pixels_SSC, image.pixels_SSC.shape[:2] + (3,)))
            ]
            tiles += [
                (name, lay_over(image.pixels_SSC, map_GG))
                for name, map_GG in image.list_maps(layer, heads)
            ]
            for axes, (name, tile) in zip(row, tiles, strict=True):
                axes.imshow(tile, interpolation="nearest")
                axes.set_title(name, fontsize=7)
                axes.set_xticks([])
                axes.set_yticks([])
            row[0].set_ylabel(f"layer {layer}", fontsize=8)
        figure.savefig(path)
    return missing
