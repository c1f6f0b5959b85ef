"""Small images of three shapes, in folders by class."""

import numpy as np
from PIL import Image

CLASSES = ("disk", "square", "stripes")


def draw_shape(label, rng, size=20):
    """Return uint8 [H, W, 3]: a shape of random place, extent and color on a random ground."""
    y, x = np.mgrid[:size, :size]
    middle, extent = rng.uniform(0.35, 0.65, 2) * size, rng.uniform(0.2, 0.35) * size
    near = np.abs(np.stack([y, x]) - middle[:, None, None])
    shape = {
        "disk": np.hypot(*near) < extent,
        "square": near.max(axis=0) < extent,
        "stripes": (y + int(rng.integers(4))) % 4 < 2,
    }[label]
    front, ground = rng.integers(130, 256, 3), rng.integers(0, 100, 3)
    return np.where(shape[..., None], front, ground).astype(np.uint8)


def write_class_folders(root, count=20, size=20, seed=0, ending=".png"):
    """Write `count` images of each class below `root`; return {class: their pixels}."""
    rng, images = np.random.default_rng(seed), {}
    for label in CLASSES:
        (root / label).mkdir(parents=True)
        images[label] = [draw_shape(label, rng, size) for _ in range(count)]
        for i, pixels in enumerate(images[label]):
            Image.fromarray(pixels).save(root / label / f"{i:03}{ending}")
    return images
