"""Masked patches: predict the mean color of corrupted patches of an image.

The preliminary self-supervised experiment of Dosovitskiy et al. 2021, section 4.6 and appendix
B.1.2. Half of the patch embeddings are corrupted: 80 % become a learned [mask] embedding, 10 % that
of another patch, and 10 % stay. The target is the mean of a corrupted patch in 3 bits a channel.

B rows   H height   W width   C channels   N patches   K corrupted patches
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import Field
from data.images.image_rows import ImageRows, read_plain_images, read_training_images
from data.objectives.image_objective import ImageObjective
from data.objectives.objective import BuildBatch
from data.rows import hashing
from data.rows.tables import Batch
from data.store.split import Split

LEVELS = 8  # of the mean of a channel: 3 bits
MASK = -1  # instead of a source: the [mask] embedding


@dataclass(frozen=True)
class MaskedPatches(ImageObjective):
    """Rows of one image each, from a store that `prepare-images` writes; labels are not read."""

    name: ClassVar[str] = "masked_patches"
    description: ClassVar[str] = "mean colors of masked patches, {patch_size} x {patch_size} pixels"
    SHARES: ClassVar[tuple[str, ...]] = (*ImageObjective.SHARES, "mask_rate")
    # None of the augmentations of image_classification but crops and mirror images.
    num_ops: ClassVar[int] = 0
    op_rate: ClassVar[float] = 0.0
    magnitude: ClassVar[float] = 0.0
    magnitude_deviation: ClassVar[float] = 0.0
    erase_rate: ClassVar[float] = 0.0

    patch_size: int = 16  # [pixels] height and width of the model's patches
    mask_rate: float = 0.5  # share of the patches that are corrupted and predicted

    @property
    def num_patches(self) -> int:
        """The number of patches of an image."""
        return (self.size // self.patch_size) ** 2

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": pixels of a row}, and the axes of an image and of its patches."""
        return super().axis_sizes() | {"N": self.num_patches}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return {
            "pixels": Field("uint8", "BHWC"),
            "patch_sources": Field("int32", "BN"),  # whose embedding each patch has; -1: [mask]
            "labels": Field("int32", "BN"),  # mean colors
            "label_weights": Field("float32", "BN"),  # 1.0 for a corrupted patch
            "row_weights": Field("float32", "B"),  # 1.0 for a row
        }

    def check_settings(self) -> None:
        """Raise a ValueError for a setting out of its range, or if Pillow is missing."""
        super().check_settings()
        if not 0 < self.patch_size < self.size or self.size % self.patch_size:
            raise ValueError(
                f"masked_patches: patch_size={self.patch_size}; it divides size={self.size} into "
                "2 or more patches along each side"
            )
        if not round(self.mask_rate * self.num_patches):
            raise ValueError(
                f"masked_patches: mask_rate={self.mask_rate} of {self.num_patches} patches is none"
            )

    def make_image_rows(self, split: Split, is_training: bool) -> tuple[ImageRows, BuildBatch]:
        """Return the table of images and the function that builds batches.

        is_training: whether images are cropped and mirrored at random. Patches are corrupted in
          both cases.
        """
        table = ImageRows(split)
        read = read_training_images if is_training else read_plain_images

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            pixels_BHWC = read(self, table, row_B, key_B)
            sources_BN, weights_BN = draw_corruption(key_B, self.num_patches, self.mask_rate)
            return {
                "pixels": pixels_BHWC,
                "patch_sources": sources_BN,
                "labels": compute_mean_colors(pixels_BHWC, self.patch_size),
                "label_weights": weights_BN,
                "row_weights": np.ones(len(row_B), np.float32),
            }

        return table, build_batch


def draw_corruption(key_B: np.ndarray, n: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw which of `n` patches are corrupted, and how; a function of the keys.

    Returns:
      int32 [B, N], the patch whose embedding each one gets, or MASK, and float32 [B, N], 1.0 for a
      corrupted patch. A patch that is not corrupted has its own embedding, as 10 % of the others.
    """
    chosen_BK = hashing.choose_subset(hashing.derive_keys(key_B, hashing.HIDE), n, round(rate * n))
    K = chosen_BK.shape[1]
    coin_BK = hashing.draw_uniforms(hashing.derive_keys(key_B, hashing.COINS_A), K)
    bits_BK = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.FILL), K)
    other_BK = (chosen_BK + 1 + hashing.bits_to_ints(bits_BK, n - 1)) % n
    source_BK = np.where(coin_BK < 0.8, MASK, np.where(coin_BK < 0.9, other_BK, chosen_BK))
    sources_BN = np.tile(np.arange(n, dtype=np.int32), (len(key_B), 1))
    weights_BN = np.zeros((len(key_B), n), np.float32)
    np.put_along_axis(sources_BN, chosen_BK, source_BK.astype(np.int32), axis=1)
    np.put_along_axis(weights_BN, chosen_BK, np.float32(1), axis=1)
    return sources_BN, weights_BN


def compute_mean_colors(pixels_BHWC: np.ndarray, patch_size: int) -> np.ndarray:
    """Return the mean color of each patch, row by row: int32 [B, N] below LEVELS^C.

    The mean of a channel, from 0 to 255, is in one of LEVELS equal parts. The first channel has the
    highest digit.
    """
    B, H, W, C = pixels_BHWC.shape
    shape = B, H // patch_size, patch_size, W // patch_size, patch_size, C
    sums_BNC = pixels_BHWC.reshape(shape).sum(axis=(2, 4), dtype=np.int64).reshape(B, -1, C)
    levels_BNC = sums_BNC * LEVELS // (256 * patch_size**2)
    return (levels_BNC @ LEVELS ** np.arange(C)[::-1]).astype(np.int32)
