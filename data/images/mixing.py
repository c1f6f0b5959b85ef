"""Mixtures of two training images and of their labels: mixup and CutMix.

    mixup   x = l x_a + (1 - l) x_b, y = l y_a + (1 - l) y_b          (Zhang et al. 2018)
    CutMix  a rectangle of 1 - l of the area of x_a comes from x_b    (Yun et al. 2019)

with l drawn from Beta(a, a). With both, each row is mixed by one of them, with equal probability.

B rows   H height   W width   C channels
"""

from __future__ import annotations

import numpy as np

from data.rows import hashing

MAX_ALPHA = 2.0
BETA_TRIES = 128  # the chance that all fail is below 1e-5 with alpha = 2, and smaller below it
PARTNER, KIND, PLACE, BETA = range(4)  # purposes of a key


def draw_beta(key_B: np.ndarray, alpha: float) -> np.ndarray:
    """Draw from Beta(alpha, alpha) for each key, float32 [B] (Jöhnk 1964): u^(1/a) / (u^(1/a) +
    v^(1/a)) of the first pair of uniform numbers of which the sum is at most 1.
    """
    u_B2N = hashing.draw_uniforms(key_B, 2 * BETA_TRIES).reshape(len(key_B), 2, BETA_TRIES)
    u_B2N = np.maximum(u_B2N, 2.0**-25).astype(np.float64)
    x_BN, y_BN = np.moveaxis(u_B2N ** (1 / alpha), 1, 0)
    sum_BN = x_BN + y_BN
    first_B = (sum_BN <= 1).argmax(axis=1)
    rows_B = np.arange(len(key_B))
    total_B = sum_BN[rows_B, first_B]
    # With a small alpha both may be too small for a float; then the larger one is all of the sum.
    is_larger_B = u_B2N[rows_B, 0, first_B] > u_B2N[rows_B, 1, first_B]
    share_B = np.divide(
        x_BN[rows_B, first_B], total_B, out=is_larger_B.astype(np.float64), where=total_B > 0
    )
    return share_B.astype(np.float32)


class Mixer:
    """The mixtures of a batch.

    mixup, cutmix: alpha of each, from 0 to 2; 0: it is not used.
    """

    def __init__(self, mixup: float, cutmix: float) -> None:
        self.mixup, self.cutmix = mixup, cutmix

    @property
    def is_used(self) -> bool:
        """Whether images are mixed at all."""
        return bool(self.mixup or self.cutmix)

    def choose_partners(self, key_B: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the row that each row is mixed with, int64 [B] in [0, count), and its keys.

        It is any row of the split. So a mixture depends on the key of the row alone, and not on the
        others of the batch or on the number of hosts.
        """
        key_B = hashing.derive_keys(key_B, hashing.MIX, PARTNER)
        row_B = hashing.bits_to_ints(hashing.draw_uint64(key_B, 1)[:, 0], count)
        return row_B, key_B

    def mix_images(
        self, first_BHWC: np.ndarray, second_BHWC: np.ndarray, key_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mixtures, uint8 [B, H, W, C], and the shares of the first label, [B]."""
        key_B = hashing.derive_keys(key_B, hashing.MIX)
        kind_B = hashing.draw_uniforms(hashing.derive_keys(key_B, KIND), 1)[:, 0]
        is_cut_B = (
            kind_B < 0.5 if self.mixup and self.cutmix else np.full(len(key_B), bool(self.cutmix))
        )
        place_B2 = hashing.draw_uniforms(hashing.derive_keys(key_B, PLACE), 2)
        beta_key_B, share_B = hashing.derive_keys(key_B, BETA), np.ones(len(key_B), np.float32)
        for alpha, chosen_B in ((self.mixup, ~is_cut_B), (self.cutmix, is_cut_B)):
            if chosen_B.any():
                share_B[chosen_B] = draw_beta(beta_key_B[chosen_B], alpha)
        mixed_BHWC = first_BHWC.copy()
        for i, share in enumerate(share_B.tolist()):
            if is_cut_B[i]:
                share_B[i] = paste_rectangle(mixed_BHWC[i], second_BHWC[i], share, place_B2[i])
            else:
                mixed = share * first_BHWC[i].astype(np.float32)
                mixed_BHWC[i] = np.rint(mixed + (1 - share) * second_BHWC[i]).astype(np.uint8)
        return mixed_BHWC, share_B


def paste_rectangle(
    first_HWC: np.ndarray, second_HWC: np.ndarray, share: float, place_2: np.ndarray
) -> float:
    """Copy a rectangle of the second image into the first; return the share of what remains.

    share: of the area that the rectangle leaves; what is beyond the edges is cut off.
    place_2: the middle of the rectangle, uniform numbers.
    """
    height, width = first_HWC.shape[:2]
    side = (1 - share) ** 0.5
    half_w, half_h = int(width * side) / 2, int(height * side) / 2
    x, y = int(place_2[0] * width), int(place_2[1] * height)
    left, right = (round(min(max(x + s * half_w, 0), width)) for s in (-1, 1))
    top, bottom = (round(min(max(y + s * half_h, 0), height)) for s in (-1, 1))
    first_HWC[top:bottom, left:right] = second_HWC[top:bottom, left:right]
    return 1 - (right - left) * (bottom - top) / (width * height)
