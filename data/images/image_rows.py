"""Rows of one image each: decoded, cropped, and changed at random in training.

B rows   D images   S sources   H, W size   C channels
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from data.images.augmentation import (
    CROP_DRAWS,
    ERASE_DRAWS,
    apply_random_operations,
    crop_and_flip,
    erase_rectangle,
)
from data.images.image_files import decode_image, make_pixels, resize_and_crop
from data.images.mixing import Mixer
from data.rows import hashing
from data.rows.tables import Batch
from data.store.split import Split


class ImageRows:
    """The images of a split.

    count: D, the number of images.
    offsets: int64 [S + 1], number of each source's first image, and D.
    labels: int32 [D], the classes.
    """

    def __init__(self, split: Split) -> None:
        self.tokens, self.starts_D1 = split.tokens, np.asarray(split.document_starts)
        self.count = len(self.starts_D1) - 1
        self.offsets = np.array([0, *(source.documents[1] for source in split.sources)], np.int64)
        assert split.labels is not None, "a store of images has labels"
        self.labels = np.asarray(split.labels).astype(np.int32)

    def read_file(self, row: int) -> bytes:
        """Return the bytes of an image's file."""
        return np.asarray(self.tokens[self.starts_D1[row] : self.starts_D1[row + 1]]).tobytes()


def make_image_builder(
    objective: Any, table: ImageRows, is_training: bool
) -> Callable[[np.ndarray, np.ndarray], Batch]:
    """Return the function that builds batches: (row_B, key_B) -> {"pixels", "labels", ...}.

    Args:
      is_training: whether images are changed at random.
    """
    mixer = Mixer(objective.mixup, objective.cutmix)
    read = read_training_images if is_training else read_plain_images

    def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
        pixels_BHWC, labels_B = read(objective, table, row_B, key_B), table.labels[row_B]
        ones_B = np.ones(len(row_B), np.float32)
        batch = {"pixels": pixels_BHWC, "labels": labels_B, "row_weights": ones_B}
        if mixer.is_used:
            batch |= {"mixed_labels": labels_B.copy(), "label_shares": ones_B.copy()}
        if mixer.is_used and is_training:
            other_B, other_key_B = mixer.choose_partners(key_B, table.count)
            others = read(objective, table, other_B, other_key_B)
            batch["pixels"], batch["label_shares"] = mixer.mix_images(pixels_BHWC, others, key_B)
            batch["mixed_labels"] = table.labels[other_B]
        return batch

    return build_batch


def read_plain_images(
    objective: Any, table: ImageRows, row_B: np.ndarray, key_B: np.ndarray
) -> np.ndarray:
    """Return images as an evaluation reads them, uint8 [B, H, W, C]; the keys are not used."""
    images = []
    for row in row_B.tolist():
        image = decode_image(table.read_file(row), objective.channels, f"image {row}")
        images.append(make_pixels(resize_and_crop(image, objective.size, objective.crop_ratio)))
    return np.stack(images)


def read_training_images(
    objective: Any, table: ImageRows, row_B: np.ndarray, key_B: np.ndarray
) -> np.ndarray:
    """Return images that are changed at random, uint8 [B, H, W, C]."""
    crop_BU = draw_for(key_B, hashing.CROP, CROP_DRAWS)
    ops_BU = draw_for(key_B, hashing.AUGMENT, 3 * objective.num_ops)
    erase_BU = draw_for(key_B, hashing.ERASE, ERASE_DRAWS) if objective.erase_rate else crop_BU
    images = []
    for i, row in enumerate(row_B.tolist()):
        image = decode_image(table.read_file(row), objective.channels, f"image {row}")
        image = crop_and_flip(image, objective.size, objective.min_area, objective.flip, crop_BU[i])
        image = apply_random_operations(
            image,
            objective.num_ops,
            objective.op_rate,
            objective.magnitude,
            objective.magnitude_deviation,
            ops_BU[i].reshape(-1, 3),
        )
        pixels = make_pixels(image)
        if objective.erase_rate:
            noise = make_noise(key_B[i])
            pixels = erase_rectangle(pixels, objective.erase_rate, erase_BU[i], noise)
        images.append(pixels)
    return np.stack(images)


def draw_for(key_B: np.ndarray, purpose: int, number: int) -> np.ndarray:
    """Return uniform numbers, `number` for each key: float32 [B, U]."""
    return hashing.draw_uniforms(hashing.derive_keys(key_B, purpose), number)


def make_noise(key: np.uint64) -> Callable[[int], np.ndarray]:
    """Return the function of random bytes of a key: (number) -> uint8."""

    def draw_bytes(number: int) -> np.ndarray:
        keys = hashing.derive_keys(np.array([key], np.uint64), hashing.ERASE, 1)
        return hashing.draw_uint64(keys, -(-number // 8)).astype("<u8").view(np.uint8)[0, :number]

    return draw_bytes
