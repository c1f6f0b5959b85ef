"""Pictures of two digits with captions, for benchmarks/papers/words_and_pictures.py."""

import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data.images.image_files import encode_pixels

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIDE = 24  # pixels of a quarter: the middle of a digit of MNIST
# {words: the quarters (row, column) of the first and of the second digit}
RELATIONS = {
    "left of": ((0, 0), (0, 1)),
    "right of": ((0, 1), (0, 0)),
    "above": ((0, 0), (1, 0)),
    "below": ((1, 0), (0, 0)),
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
        if labels[first] == labels[second]:
            continue
        pixels = np.zeros((2 * SIDE, 2 * SIDE), np.uint8)
        for digit, (row, column) in zip((first, second), RELATIONS[relation]):
            get_quarter(pixels, row, column)[:] = images[digit]
        scenes.append(Scene(pixels, (int(labels[first]), int(labels[second])), relation))
    return scenes


def get_quarter(pixels_HW: np.ndarray, row: int, column: int) -> np.ndarray:
    """Return a view of a quarter of a picture."""
    return pixels_HW[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE]


def write_scenes(scenes: Sequence[Scene], folder: pathlib.Path) -> None:
    """Write pictures and their captions as `prepare-captions` reads them."""
    folder.mkdir(parents=True)
    lines = []
    for i, scene in enumerate(scenes):
        name = f"{i // 1000:02}/{i:05}.png"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(encode_pixels(scene.pixels_HW))
        lines.append(json.dumps({"image": name, "caption": scene.caption}) + "\n")
    (folder / "captions.jsonl").write_text("".join(lines))


def find_digits(pixels_HW: np.ndarray, relation: str) -> list[np.ndarray]:
    """Return views of the first and of the second digit of a picture."""
    return [get_quarter(pixels_HW, *place) for place in RELATIONS[relation]]
