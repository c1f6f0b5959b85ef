"""Random changes of training images, each a function of the key of a row.

A random crop of a share of the area (Szegedy et al. 2015, section 6), a mirror image, RandAugment
(Cubuk et al. 2020) and random erasing (Zhong et al. 2020). The draws of a row are uniform numbers
from hashes, so that they are the same in any process and with any version of the libraries.

N operations   U draws of an image   H height   W width   C channels
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

ASPECT = math.log(4 / 3)  # of a crop: the logarithm of the largest ratio of its sides
TRIES = 10  # of a crop that does not fit
CROP_DRAWS = 4 * TRIES + 1
ERASE_DRAWS = 4 * TRIES + 1
ERASED_AREA, ERASED_ASPECT = (0.02, 1 / 3), math.log(3.3)
MAX_MAGNITUDE = 10.0
FILL = 128  # of pixels from beyond the edges


def crop_and_flip(image: Any, size: int, min_area: float, flip: bool, draw_U: np.ndarray) -> Any:
    """Return a random part of an image, `size` x `size` pixels (bicubic).

    Its share of the area is uniform from `min_area` to 1 and the logarithm of the ratio of its
    sides from -log(4/3) to log(4/3), drawn again while it does not fit; after TRIES it is the
    largest centered square. With min_area = 1 it is that square.

    Args:
      image: a `PIL.Image.Image`.
      min_area: share of the area.
      draw_U: uniform numbers, [CROP_DRAWS].
    """
    from PIL import Image, ImageOps

    width, height = image.size
    box = choose_box(width, height, min_area, draw_U)
    if box != (0, 0, size, size) or image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
    return ImageOps.mirror(image) if flip and draw_U[-1] < 0.5 else image


def choose_box(
    width: int, height: int, min_area: float, draw_U: np.ndarray
) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) of the crop of `crop_and_flip`."""
    if min_area < 1:
        for i in range(TRIES):
            u_area, u_ratio, u_left, u_top = draw_U[4 * i : 4 * i + 4].tolist()
            area = width * height * (min_area + (1 - min_area) * u_area)
            ratio = math.exp(ASPECT * (2 * u_ratio - 1))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(u_left * (width - w + 1)), int(u_top * (height - h + 1))
                return left, top, left + w, top + h
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


# ---- RandAugment -------------------------------------------------------------


def apply_random_operations(
    image: Any,
    num_ops: int,
    op_rate: float,
    magnitude: float,
    deviation: float,
    draw_N3: np.ndarray,
) -> Any:
    """Return an image after up to `num_ops` operations, drawn from OPERATIONS with replacement.

    Args:
      image: a `PIL.Image.Image` of mode L or RGB.
      op_rate: probability with which a drawn operation is applied.
      magnitude: M, from 0 to 10, where 10 is the strongest.
      deviation: the magnitude of each operation is uniform within so much of M; clipped to 0 to 10.
      draw_N3: uniform numbers, [N, 3], of the operation, its sign and its magnitude.
    """
    for u_op, u_sign, u_magnitude in draw_N3[:num_ops].tolist():
        level = magnitude + deviation * (2 * u_magnitude - 1)
        level = min(max(level, 0.0), MAX_MAGNITUDE) / MAX_MAGNITUDE
        number, fraction = divmod(u_op * len(OPERATIONS), 1)  # the fraction is uniform, too
        if fraction < op_rate:
            image = OPERATIONS[int(number)](image, level, -1.0 if u_sign < 0.5 else 1.0)
    return image


def make_enhancer(name: str) -> Callable[[Any, float, float], Any]:
    """Return the operation that changes color, contrast, brightness or sharpness by up to 90 %."""

    def enhance(image: Any, level: float, sign: float) -> Any:
        from PIL import ImageEnhance

        return getattr(ImageEnhance, name)(image).enhance(1 + sign * 0.9 * level)

    return enhance


def make_affine(
    matrix: Callable[[float, int, int], tuple[float, ...]],
) -> Callable[[Any, float, float], Any]:
    """Return an operation that moves pixels. matrix: (signed level, W, H) -> six coefficients."""

    def move(image: Any, level: float, sign: float) -> Any:
        from PIL import Image

        return image.transform(
            image.size,
            Image.Transform.AFFINE,
            matrix(sign * level, *image.size),
            resample=Image.Resampling.BILINEAR,
            fillcolor=get_fill(image),
        )

    return move


def rotate(image: Any, level: float, sign: float) -> Any:
    """Rotate by up to 30 degrees."""
    from PIL import Image

    return image.rotate(
        sign * 30 * level, resample=Image.Resampling.BILINEAR, fillcolor=get_fill(image)
    )


def get_fill(image: Any) -> int | tuple[int, int, int]:
    """Return the color of pixels from beyond the edges."""
    return FILL if image.mode == "L" else (FILL, FILL, FILL)


def leave_unchanged(image: Any, level: float, sign: float) -> Any:
    """Return the image."""
    return image


def stretch_contrast(image: Any, level: float, sign: float) -> Any:
    """Let the darkest pixel be black and the brightest white."""
    from PIL import ImageOps

    return ImageOps.autocontrast(image)


def equalize(image: Any, level: float, sign: float) -> Any:
    """Equalize the histogram."""
    from PIL import ImageOps

    return ImageOps.equalize(image)


def posterize(image: Any, level: float, sign: float) -> Any:
    """Keep the upper 8 to 4 bits of each value, fewer with a higher level."""
    from PIL import ImageOps

    return ImageOps.posterize(image, 8 - round(4 * level))


def solarize(image: Any, level: float, sign: float) -> Any:
    """Invert values from a threshold on, which is 256 to 0."""
    from PIL import ImageOps

    return ImageOps.solarize(image, round(256 * (1 - level)))


# Cubuk et al. 2020, figure 2, with the ranges of AutoAugment (Cubuk et al. 2019, table 6).
OPERATIONS: tuple[Callable[[Any, float, float], Any], ...] = (
    leave_unchanged,
    stretch_contrast,
    equalize,
    rotate,
    solarize,
    make_enhancer("Color"),
    posterize,
    make_enhancer("Contrast"),
    make_enhancer("Brightness"),
    make_enhancer("Sharpness"),
    make_affine(lambda v, w, h: (1, 0.3 * v, 0, 0, 1, 0)),  # shear along x
    make_affine(lambda v, w, h: (1, 0, 0, 0.3 * v, 1, 0)),  # shear along y
    make_affine(lambda v, w, h: (1, 0, 0.45 * v * w, 0, 1, 0)),  # move along x
    make_affine(lambda v, w, h: (1, 0, 0, 0, 1, 0.45 * v * h)),  # move along y
)


# ---- random erasing ----------------------------------------------------------


def erase_rectangle(
    pixels_HWC: np.ndarray, rate: float, draw_U: np.ndarray, noise: Callable[[int], np.ndarray]
) -> np.ndarray:
    """Return pixels of which, with probability `rate`, a rectangle is noise (Zhong et al. 2020).

    Its share of the area is uniform from 2 % to a third, and the logarithm of the ratio of its
    sides from -log 3.3 to log 3.3.

    Args:
      pixels_HWC: uint8.
      rate: the probability.
      draw_U: uniform numbers, [ERASE_DRAWS].
      noise: (number) -> so many random bytes, uint8.
    """
    if draw_U[-1] >= rate:
        return pixels_HWC
    height, width, channels = pixels_HWC.shape
    low, high = ERASED_AREA
    for i in range(TRIES):
        u_area, u_ratio, u_left, u_top = draw_U[4 * i : 4 * i + 4].tolist()
        area = width * height * (low + (high - low) * u_area)
        ratio = math.exp(ERASED_ASPECT * (2 * u_ratio - 1))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w < width and 0 < h < height:
            left, top = int(u_left * (width - w + 1)), int(u_top * (height - h + 1))
            erased = pixels_HWC.copy()
            erased[top : top + h, left : left + w] = noise(w * h * channels).reshape(h, w, channels)
            return erased
    return pixels_HWC
