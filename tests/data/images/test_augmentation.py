"""Random crops, RandAugment, random erasing and mixtures: their ranges, and their definitions."""

import numpy as np
import pytest
from PIL import Image

from data.images import augmentation
from data.images.augmentation import (
    CROP_DRAWS,
    ERASE_DRAWS,
    OPERATIONS,
    apply_random_operations,
    choose_box,
    crop_and_flip,
    erase_rectangle,
)
from data.images.mixing import Mixer, draw_beta, paste_rectangle
from data.rows import hashing

KEYS = hashing.derive_keys(np.arange(4000))
RAMP = Image.fromarray(np.add.outer(np.arange(32) * 4, np.arange(32) * 3).astype(np.uint8))


def test_crops_have_the_share_and_the_ratio_of_the_paper():
    """Shares of the area from 8 % to all, uniform; ratios from 3/4 to 4/3; inside of the image."""
    draws = hashing.draw_uniforms(KEYS, CROP_DRAWS)
    boxes = np.array([choose_box(300, 300, 0.08, draw) for draw in draws])
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    assert boxes.min() >= 0 and boxes.max() <= 300
    share, ratio = width * height / 300**2, np.log(width / height)
    assert 0.075 < share.min() < 0.1 and share.max() > 0.9
    assert np.abs(ratio).max() < np.log(4 / 3) + 0.05
    assert abs(ratio.mean()) < 0.02
    small = share[share < 0.5]  # crops of that size always fit: their share is uniform
    assert abs(small.mean() - 0.29) < 0.01
    middle = (boxes[:, :2] + boxes[:, 2:]).mean(axis=0) / 2
    assert np.abs(middle - 150).max() < 3
    assert choose_box(40, 30, 1.0, draws[0]) == (5, 0, 35, 30)
    # No crop of such an image fits: the middle is taken.
    assert choose_box(1000, 10, 0.9, draws[0]) == (495, 0, 505, 10)


def test_half_of_the_images_are_mirrored():
    draws = hashing.draw_uniforms(KEYS[:400], CROP_DRAWS)
    flips = [np.asarray(crop_and_flip(RAMP, 32, 1.0, True, draw))[0, 0] > 0 for draw in draws]
    assert 150 < sum(flips) < 250
    assert all(
        (np.asarray(crop_and_flip(RAMP, 32, 1.0, False, draw)) == np.asarray(RAMP)).all()
        for draw in draws[:20]
    )


def test_no_operation_changes_an_image_at_magnitude_0():
    """But those without a magnitude: contrast and histogram."""
    pixels = np.asarray(RAMP)
    for operation in OPERATIONS:
        if operation in (augmentation.stretch_contrast, augmentation.equalize):
            continue
        for sign in (-1.0, 1.0):
            assert (np.asarray(operation(RAMP, 0.0, sign)) == pixels).all(), operation


def test_operations_at_full_magnitude():
    """Each against its definition in numpy, or a property."""
    pixels = np.asarray(RAMP).astype(int)
    get = lambda operation, sign=1.0: np.asarray(operation(RAMP, 1.0, sign)).astype(int)  # noqa: E731
    assert (get(augmentation.posterize) == pixels // 16 * 16).all()
    assert (get(augmentation.solarize) == 255 - pixels).all()
    (_, _, _, _, _, color, _, contrast, brightness, _, *moves) = OPERATIONS
    assert (get(color) == pixels).all()  # an image of brightness has no color
    assert np.abs(get(brightness) - np.minimum(1.9 * pixels, 255)).max() <= 1
    assert np.abs(get(brightness, -1.0) - 0.1 * pixels).max() <= 1
    assert get(contrast, -1.0).std() < 0.12 * pixels.std()
    shear_x, shear_y, move_x, move_y = (get(move) for move in moves)
    shift = round(0.45 * 32 - 0.4)
    assert np.abs(move_x[:, 2:10] - pixels[:, 2 + shift : 10 + shift]).max() <= 3
    assert np.abs(move_y[2:10] - pixels[2 + shift : 10 + shift]).max() <= 4
    assert (move_x[:, -10:] == 128).all() and (move_y[-10:] == 128).all()
    assert np.abs(shear_x[0, :20] - pixels[0, :20]).max() <= 3 and (shear_x[-1, -5:] == 128).all()
    assert np.abs(shear_y[:20, 0] - pixels[:20, 0]).max() <= 3 and (shear_y[-5:, -1] == 128).all()


def test_random_operations_are_drawn_alike():
    """All operations occur; equal draws give equal images."""
    seen = []
    monitored = tuple(
        lambda image, level, sign, i=i: seen.append((i, level, sign)) or image
        for i in range(len(OPERATIONS))
    )
    draws = hashing.draw_uniforms(KEYS[:700], 6).reshape(-1, 2, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augmentation, "OPERATIONS", monitored)
        for draw_N3 in draws:
            apply_random_operations(RAMP, 2, 1.0, 9.0, 0.5, draw_N3)
    numbers, levels, signs = map(np.array, zip(*seen, strict=True))
    assert np.bincount(numbers).min() > 60 and len(np.bincount(numbers)) == 14
    assert levels.min() >= 0.85 and levels.max() <= 0.95 and abs(levels.mean() - 0.9) < 0.01
    assert abs((signs > 0).mean() - 0.5) < 0.05
    one, two = (apply_random_operations(RAMP, 2, 1.0, 9.0, 0.5, draws[3]) for _ in range(2))
    assert (np.asarray(one) == np.asarray(two)).all()


def test_a_drawn_operation_is_applied_at_its_rate():
    """Half of the two operations of an image, as in DeiT's code, whichever they are."""
    counts = np.zeros(len(OPERATIONS), int)
    monitored = tuple(
        lambda image, level, sign, i=i: counts.__setitem__(i, counts[i] + 1) or image
        for i in range(len(OPERATIONS))
    )
    draws = hashing.draw_uniforms(KEYS, 6).reshape(-1, 2, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augmentation, "OPERATIONS", monitored)
        for op_rate in (0.0, 0.5):
            for draw_N3 in draws:
                apply_random_operations(RAMP, 2, op_rate, 9.0, 0.5, draw_N3)
            assert op_rate or not counts.any()
    drawn = 2 * len(draws)
    assert abs(counts.sum() / drawn - 0.5) < 0.02
    assert np.abs(counts / drawn - 0.5 / len(OPERATIONS)).max() < 0.007


def test_a_rectangle_is_erased():
    draws = hashing.draw_uniforms(KEYS, ERASE_DRAWS)
    pixels = np.zeros((40, 40, 3), np.uint8)
    shares = []
    for draw in draws[:1500]:
        found = erase_rectangle(pixels, 0.25, draw, lambda n: np.full(n, 7, np.uint8))
        erased = (found == 7).all(axis=-1)
        rows, columns = erased.any(axis=1), erased.any(axis=0)
        assert erased.sum() == rows.sum() * columns.sum()  # one rectangle
        shares.append(erased.mean())
    shares = np.array(shares)
    assert abs((shares > 0).mean() - 0.25) < 0.04
    assert shares[shares > 0].min() > 0.01 and shares.max() < 0.36
    assert not pixels.any()


# ---- mixtures ----------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.001, 0.2, 0.8, 1.0, 2.0])
def test_shares_are_of_the_beta_distribution(alpha):
    """The mean is 1/2 and the variance 1 / (4 (2 alpha + 1))."""
    share_B = draw_beta(hashing.derive_keys(np.arange(20_000)), alpha)
    assert share_B.min() >= 0 and share_B.max() <= 1
    assert abs(share_B.mean() - 0.5) < 0.01
    assert abs(share_B.var() - 1 / (4 * (2 * alpha + 1))) < 0.003


def test_mixtures_are_those_of_the_equations():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 256, (2, 64, 12, 12, 3), np.uint8)
    mixed, share_B = Mixer(0.8, 0.0).mix_images(first, second, KEYS[:64])
    share = share_B[:, None, None, None].astype(np.float64)
    assert np.abs(mixed - (share * first + (1 - share) * second)).max() <= 0.51
    mixed, share_B = Mixer(0.0, 1.0).mix_images(first, second, KEYS[:64])
    is_first, is_second = (mixed == first).all(axis=-1), (mixed == second).all(axis=-1)
    assert (is_first | is_second).all()
    assert np.abs(is_first.mean(axis=(1, 2)) - share_B).max() < 1e-6
    _, share_B = Mixer(0.8, 1.0).mix_images(first, second, KEYS[:64])
    assert len({*share_B.tolist()}) > 50
    rows_B, keys_B = Mixer(0.8, 0.0).choose_partners(KEYS, 10)
    assert np.bincount(rows_B).min() > 300 and len({*keys_B.tolist()}) == len(KEYS)


def test_a_pasted_rectangle_is_cut_off_at_the_edge():
    first, second = np.zeros((10, 10, 1), np.uint8), np.ones((10, 10, 1), np.uint8)
    assert paste_rectangle(first, second, 0.64, np.array([0.0, 0.0])) == pytest.approx(0.91)
    assert first.sum() == 9  # of 6 x 6 around the corner
    assert paste_rectangle(np.zeros_like(first), second, 1.0, np.array([0.5, 0.5])) == 1
