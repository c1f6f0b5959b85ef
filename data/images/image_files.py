"""Images as files: read within bounds, decoded, resized and cropped by Pillow.

A file of an image is hostile until it is decoded: only the formats of FORMATS are tried, and the
number of pixels is compared with MAX_PIXELS before they are decompressed.
"""

from __future__ import annotations

import importlib.util
import io
from typing import Any

import numpy as np

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
MAX_FILE_BYTES = 64 << 20
MAX_PIXELS = 1 << 26  # 8,192 x 8,192
MAX_16_BITS = (1 << 16) - 1
MODES = {1: "L", 3: "RGB"}  # of Pillow, by the number of channels
RATIOS = 100  # the longer side is at most so many times the shorter one


class ImageError(ValueError):
    """A file that is no image that can be decoded; the message has its name."""


def decode_image(content: bytes, channels: int, name: str = "an image") -> Any:
    """Return a `PIL.Image.Image` of a file: of its first frame, turned as its EXIF data says.

    Args:
      content: the bytes of the file.
      channels: 3 of red, green and blue, or 1 of brightness. What is transparent becomes white.

    Raises:
      ImageError: the file is empty, truncated, in no format of FORMATS, or too large.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if not content:
        raise ImageError(f"{name}: the file is empty")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        check_size(*image.size, name)
        image.load()
        return convert_channels(ImageOps.exif_transpose(image), channels)
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(f"{name}: too large; at most {MAX_PIXELS:,} pixels are decoded") from None
    except UnidentifiedImageError:
        raise ImageError(f"{name}: in none of the formats {', '.join(FORMATS)}") from None
    except Exception as error:  # Pillow raises many kinds for damaged files
        reason = f"{type(error).__name__}: {error!s:.120}"
        raise ImageError(f"{name}: a damaged image ({reason})") from error


def check_size(width: int, height: int, name: str) -> None:
    """Raise ImageError for an image with too many pixels, or one that is almost a line."""
    if width * height > MAX_PIXELS:
        raise ImageError(f"{name}: {width} x {height} pixels; at most {MAX_PIXELS:,} are decoded")
    if max(width, height) > RATIOS * min(width, height):
        raise ImageError(
            f"{name}: {width} x {height} pixels; the longer side is at most {RATIOS} times the "
            "shorter one"
        )


def convert_channels(image: Any, channels: int) -> Any:
    """Return an image of 8 bits a channel, in front of white where it is transparent.

    Of FORMATS only PNG has more bits: 16 of brightness, in mode I or I;16 by Pillow's version.
    """
    from PIL import Image

    if image.mode.startswith("I"):
        values = np.asarray(image)
        if isinstance(clear := image.info.get("transparency"), int):  # the value of 16 bits
            values = np.where(values == clear, MAX_16_BITS, values)
        image = Image.fromarray((values // values.dtype.type(MAX_16_BITS // 255)).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        front = image.convert("RGBA")
        image = Image.new("RGBA", front.size, "white")
        image.alpha_composite(front)
    return image.convert(MODES[channels])


def resize_and_crop(image: Any, size: int, crop_ratio: float | None) -> Any:
    """Return an image as an evaluation reads it, `size` x `size` pixels.

    The shorter side becomes size / crop_ratio pixels (bicubic), of which the center is cut out.
    Without a ratio, the whole image is squashed into the square.
    """
    from PIL import Image

    if crop_ratio is None:
        return image.resize((size, size), Image.Resampling.BICUBIC)
    width, height = image.size
    shorter = round(size / crop_ratio)
    scale = shorter / min(width, height)
    width, height = max(round(width * scale), shorter), max(round(height * scale), shorter)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def make_pixels(image: Any) -> np.ndarray:
    """Return the pixels of an image, uint8 [H, W, C]."""
    pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def encode_pixels(pixels: np.ndarray) -> bytes:
    """Return a PNG file of pixels, uint8 [H, W] or [H, W, C]: no value is lost.

    Raises:
      ValueError: the array has another dtype or shape.
    """
    from PIL import Image

    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or not pixels.size:
        raise ValueError(f"images are uint8 [H, W] or [H, W, C], not {pixels.dtype}{pixels.shape}")
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim == 3 and pixels.shape[-1] != 3:
        raise ValueError(f"images have 1 or 3 channels, not {pixels.shape[-1]}")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def check_pillow() -> None:
    """Raise ValueError unless Pillow, which decodes images, is installed."""
    if importlib.util.find_spec("PIL") is None:
        raise ValueError(
            "images are decoded by Pillow, which is missing: install Cloze's extra `images`"
        )
