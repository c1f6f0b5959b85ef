"""preprocessor_config.json: how an image becomes the pixels that a model reads.

An export has what an evaluation here does. An import reads the mean and the deviation of each
channel, and checks that the images have the size and the scale that the model reads.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from models.config.base import ImageConfig, Pixels
from pretrain.convert.safe_folder import FolderError, read_json

PROCESSOR = "preprocessor_config.json"
CROP_RATIO = 0.875  # default: size of a model's images by the shorter side of resized ones
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # Pillow's, by number
BICUBIC = FILTERS.index("bicubic")
MAX_SIDE = 1 << 16  # [pixels]
MOST = 1e3  # of a mean or a deviation; images have values from 0 to 1

ImageModel = TypeVar("ImageModel", bound=ImageConfig)


def describe_processor(config: ImageConfig, kind: str, crop_ratio: float | None) -> dict[str, Any]:
    """Return the content of preprocessor_config.json.

    The shorter side of an image is resized, and its center is cut out; without a ratio, the whole
    image is squashed into the square.

    Args:
      kind: the class of transformers; "" for a model that transformers does not have.
      crop_ratio: of the size of the model's images to the shorter side of resized ones, or None.
    """
    size = config.image_size
    square = {"height": size, "width": size}
    return {
        **({"image_processor_type": kind} if kind else {}),
        "do_convert_rgb": True if config.channels == 3 else None,
        "do_resize": True,
        "size": {"shortest_edge": round(size / crop_ratio)} if crop_ratio else square,
        "resample": BICUBIC,
        "do_center_crop": crop_ratio is not None,
        "crop_size": square,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(config.pixels.mean),
        "image_std": list(config.pixels.std),
    }


def read_processor(
    folder: str | os.PathLike[str], config: ImageModel, report: Callable[[str], Any] = print
) -> tuple[ImageModel, float | None]:
    """Return (configuration with the mean and the deviation, crop ratio) of a folder's processor.

    The ratio is None where images are squashed into a square. `report` receives a line if the
    processor resizes images with another filter than the bicubic one of this project.

    Raises:
      FolderError: the file is missing or damaged, or prepares images of another size, of other
        channels or of another scale than this model reads; the message names the file and the key.
    """
    path = pathlib.Path(folder) / PROCESSOR
    content = read_json(path, missing="put the model's own file of its image processor there")
    try:
        check_size(content, config.image_size)
        check_resizing(content, lambda text: report(f"{path}: {text}"))
        check_scale(content)
        mean, std = (0.0,) * config.channels, (1.0,) * config.channels
        if content.get("do_normalize", True) is not False:
            mean = read_values(content, "image_mean", config.channels)
            std = read_values(content, "image_std", config.channels)
        pixels = Pixels(mean=mean, std=std)
        return dataclasses.replace(config, pixels=pixels), read_crop_ratio(content, config)
    except ValueError as error:
        raise FolderError(f"{path}: {error}") from None


def check_size(content: Mapping[str, Any], expected: int) -> None:
    """Raise ValueError unless the images have `expected` pixels along each side."""
    key = "crop_size" if content.get("do_center_crop") else "size"
    size = content.get(key)
    sides: Any = size
    if isinstance(size, dict):
        sides = [size.get("height"), size.get("width")] if "height" in size else size.values()
    sides = [size] if isinstance(size, int) else list(sides or ())
    if not sides or not all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides):
        raise ValueError(f"{key} is {size!r:.80}; expected a height and a width in pixels")
    if set(sides) != {expected}:
        raise ValueError(
            f"{key} is {size!r:.80}, and image_size in config.json is {expected}: the file is of "
            "another model"
        )


def check_resizing(content: Mapping[str, Any], report: Callable[[str], Any]) -> None:
    """Raise ValueError unless images are resized; report a filter that is not used here."""
    if content.get("do_resize", True) is False:
        raise ValueError(
            "do_resize is false, and images are resized here to the size of the model; set it to "
            "true if that is what you want"
        )
    number = content.get("resample")
    if number == BICUBIC and type(number) is int:
        return
    if number is not None and (type(number) is not int or not 0 <= number < len(FILTERS)):
        raise ValueError(f"resample is {number!r:.80}; expected 0 to {len(FILTERS) - 1}")
    found = "absent" if number is None else f"{number} ({FILTERS[number]})"
    report(
        f"resample is {found}; images are resized with {BICUBIC} (bicubic) here and in an export, "
        "so scores may differ a little from the original's. `evaluate` measures them"
    )


def read_crop_ratio(content: Mapping[str, Any], config: ImageConfig) -> float | None:
    """Return the size of the model's images as a share of the shorter side of resized ones.

    None where images are resized to a square, whatever their shape. Raises ValueError for a size
    that images cannot be cropped from.
    """
    size = content.get("size")
    if not content.get("do_center_crop"):
        return 1.0 if isinstance(size, dict) and "shortest_edge" in size else None
    sides: Any = size.values() if isinstance(size, dict) else (size,)
    if not sides or not all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides):
        raise ValueError(f"size is {size!r:.80}; expected pixels")
    if min(sides) < config.image_size:
        raise ValueError(
            f"size is {size!r:.80}, from which {config.image_size} pixels cannot be cropped"
        )
    return config.image_size / min(sides)


def check_scale(content: Mapping[str, Any]) -> None:
    """Raise ValueError unless values of 0 to 255 are scaled to 0 to 1."""
    if content.get("do_rescale", True) is False:
        raise ValueError("do_rescale is false; images are scaled to values from 0 to 1 here")
    factor = content.get("rescale_factor", 1 / 255)
    if type(factor) not in (int, float) or not abs(factor * 255 - 1) < 1e-3:
        raise ValueError(f"rescale_factor is {factor!r:.80}; expected 1 / 255")


def read_values(content: Mapping[str, Any], key: str, channels: int) -> tuple[float, ...]:
    """Return a number for each channel. Raises ValueError, which names the key."""
    values: Any = content.get(key)
    if type(values) in (int, float):
        values = [values] * channels
    if not isinstance(values, list) or len(values) != channels:
        raise ValueError(f"{key} is {values!r:.80}; expected {channels} numbers, one a channel")
    if not all(type(value) in (int, float) and abs(value) <= MOST for value in values):
        raise ValueError(f"{key} is {values!r:.80}; expected numbers from -{MOST:g} to {MOST:g}")
    return tuple(map(float, values))
