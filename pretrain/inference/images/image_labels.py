"""Classes of images by a trained model. Images are read as in an evaluation of its run.

B batch   C classes
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from data.corpus.untrusted import read_bounded
from data.images.image_files import (
    ENDINGS,
    MAX_FILE_BYTES,
    check_pillow,
    decode_image,
    make_pixels,
    resize_and_crop,
)
from models import build
from pretrain.inference.batching import round_up_to_power
from pretrain.kernels.model_hooks import make_local_hooks

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


class ImageLabeller:
    """Predicts {"label", "probability", "probabilities"}: the `top` most probable classes.

    BLANK: the result of a blank line.
    """

    BLANK: ClassVar[Mapping[str, Any]] = {"label": None, "probability": None, "probabilities": {}}

    def __init__(self, trained: Trained, top: int, batch_size: int) -> None:
        check_pillow()
        if trained.run.model.predicts_patches:
            raise ValueError(
                f"{trained.workdir}: a model of masked patches predicts no classes of images; "
                "`train --from` begins a classifier with its parameters"
            )
        self.objective: Any = trained.run.data.objective
        self.model, self.params = build(trained.run.model, **make_local_hooks()), trained.params
        self.classes, self.batch_size = trained.images.classes, batch_size
        self.top = min(top, len(self.classes))

    def __call__(
        self, paths: Sequence[str], places: Sequence[str | None], first: int = 0
    ) -> list[dict[str, Any]]:
        """Return the result of each image file. Raises ValueError, which names a bad one."""
        results = []
        for start in range(0, len(paths), self.batch_size):
            batch = paths[start : start + self.batch_size]
            pixels = [read_image(path, self.objective) for path in batch]
            spare = round_up_to_power(len(pixels)) - len(pixels)
            pixels_BHWC = np.stack([*pixels, *(np.zeros_like(pixels[0]) for _ in range(spare))])
            probabilities_BC = compute_probabilities(
                self.model, self.params, pixels_BHWC, len(self.classes)
            )
            results += map(self.make_result, jax.device_get(probabilities_BC)[: len(pixels)])
        return results

    def make_result(self, probabilities_C: np.ndarray) -> dict[str, Any]:
        """Return the result of the probabilities of the classes."""
        best = np.argsort(-probabilities_C, kind="stable")[: self.top].tolist()
        probabilities = {self.classes[i]: float(probabilities_C[i]) for i in best}
        label = self.classes[best[0]]
        return {"label": label, "probability": probabilities[label], "probabilities": probabilities}


def read_image(path: str, objective: Any) -> np.ndarray:
    """Return the pixels of a file as an evaluation of an objective reads them, uint8 [H, W, C].

    Raises:
      ValueError: there is no such file, it is a folder, or no image is in it.
    """
    if os.path.isdir(path):
        raise ValueError(f"{path}: a folder; --input reads the images in one")
    try:
        content = read_bounded(pathlib.Path(path), MAX_FILE_BYTES)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; the texts of this model are images") from None
    image = decode_image(content, objective.channels, path)
    return make_pixels(resize_and_crop(image, objective.size, objective.crop_ratio))


@partial(jax.jit, static_argnums=(0, 3))
def compute_probabilities(
    model: Any, params: Any, pixels_BHWC: jax.Array, classes: int
) -> jax.Array:
    """Return the probabilities of the classes that have names, float32 [B, C]."""
    logits_BC = model.apply({"params": params}, pixels_BHWC)
    return jax.nn.softmax(logits_BC[:, :classes])


def list_image_files(folder: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (path, {"text": path}) of the image files below a folder, ordered by path.

    Raises:
      ValueError: there are none.
    """
    found = sorted(
        path
        for path in pathlib.Path(folder).rglob("*")
        if path.suffix.lower() in ENDINGS and path.is_file()
    )
    if not found:
        raise ValueError(f"{folder}: no image in it ({', '.join(ENDINGS)})")
    yield from ((str(path), {"text": str(path)}) for path in found)
