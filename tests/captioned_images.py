"""Small pictures of a shape and its captions: what `prepare-captions` reads."""

import json

import numpy as np
from PIL import Image

from tests.image_files import CLASSES, draw_shape

TINY_MODEL = dict(width=16, depth=1, num_heads=2, mlp=16, dropout=0.0, attention_dropout=0.0)


def draw_picture(label, where, rng):
    """Return uint8 [16, 16]: a shape of brightness at the top or at the bottom."""
    shape = draw_shape(label, rng, 8)[..., 0]
    picture = np.zeros((16, 16), np.uint8)
    top, left = 8 * (where == "bottom"), 4
    picture[top : top + 8, left : left + 8] = shape
    return picture


def write_captioned_images(folder, count=60, seed=0):
    """Write pictures with captions; return [(pixels, caption)]."""
    rng, pairs, lines = np.random.default_rng(seed), [], []
    folder.mkdir(parents=True)
    for i in range(count):
        label, where = CLASSES[rng.integers(3)], ("top", "bottom")[rng.integers(2)]
        pixels = draw_picture(label, where, rng)
        caption = f"A {label}, at the {where}" + ("." if i % 2 else " of it.")
        Image.fromarray(pixels).save(folder / f"{i:03}.png")
        lines.append(json.dumps({"image": f"{i:03}.png", "caption": caption}) + "\n")
        pairs.append((pixels, caption))
    (folder / "captions.jsonl").write_text("".join(lines))
    return pairs
