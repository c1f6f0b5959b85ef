"""Captions filled from pictures and pictures from captions: two digits and where they are.

    python -m benchmarks.words_and_pictures CORPUS [--work runs/words_and_pictures] [--steps 2000]
      [--pictures 30000] [--test 1000] [--note TEXT]

CORPUS has MNIST as train.npz and test.npz, with arrays x and y. A picture has two different digits
in two of its four quarters, and a caption such as "the three is left of the seven". Training
pictures are made of the training digits, and those that are scored of the test digits. The model is
that of configs/words_and_pictures.py. A dated section is added to
benchmarks/results/words_and_pictures.md, and beside it some filled pictures are drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

NAME = "words_and_pictures"
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIDE = 24  # pixels of a quarter: the middle of a digit of MNIST
# {words: the quarters (row, column) of the first and of the second digit; either may be drawn}
RELATIONS = {
    "left of": (((0, 0), (0, 1)), ((1, 0), (1, 1))),
    "right of": (((0, 1), (0, 0)), ((1, 1), (1, 0))),
    "above": (((0, 0), (1, 0)), ((0, 1), (1, 1))),
    "below": (((1, 0), (0, 0)), ((1, 1), (0, 1))),
}


class Scene(NamedTuple):
    """A picture, uint8 [H, W], the two digits in it, and where the first is from the second."""

    pixels_HW: np.ndarray
    digits: tuple[int, int]
    relation: str

    @property
    def caption(self) -> str:
        first, second = (DIGITS[digit] for digit in self.digits)
        return f"the {first} is {self.relation} the {second}"


def draw_scenes(corpus: pathlib.Path, file: str, number: int, seed: int) -> list[Scene]:
    """Return pictures of the digits in a file."""
    with np.load(corpus / file, allow_pickle=False) as arrays:
        images, labels = arrays["x"][:, 2:26, 2:26], arrays["y"]
    rng, scenes = np.random.default_rng(seed), []
    while len(scenes) < number:
        first, second = rng.integers(len(images), size=2)
        relation = list(RELATIONS)[rng.integers(4)]
        places = RELATIONS[relation][rng.integers(2)]
        if labels[first] == labels[second]:
            continue
        pixels = np.zeros((2 * SIDE, 2 * SIDE), np.uint8)
        for digit, (row, column) in zip((first, second), places):
            get_quarter(pixels, row, column)[:] = images[digit]
        scenes.append(Scene(pixels, (int(labels[first]), int(labels[second])), relation))
    return scenes


def get_quarter(pixels_HW: np.ndarray, row: int, column: int) -> np.ndarray:
    """Return a view of a quarter of a picture."""
    return pixels_HW[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE]


def write_scenes(scenes: Sequence[Scene], folder: pathlib.Path) -> None:
    """Write pictures and their captions as `prepare-captions` reads them."""
    from data.images.image_files import encode_pixels

    folder.mkdir(parents=True)
    lines = []
    for i, scene in enumerate(scenes):
        name = f"{i // 1000:02}/{i:05}.png"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(encode_pixels(scene.pixels_HW))
        lines.append(json.dumps({"image": name, "caption": scene.caption}) + "\n")
    (folder / "captions.jsonl").write_text("".join(lines))
