"""Captions filled from pictures, and pictures from captions.

A record has a caption, and either the picture that belongs to it, or the file for its picture:

    {"caption": "the [MASK] is left of the [MASK]", "image": "a.png"}
    {"caption": "the three is left of the seven", "output": "filled.png"}

A picture is filled in ROUNDS: each fixes the visual tokens that are most certain, and the others
are predicted again (Ghazvininejad et al. 2019, section 4).

B batch   L row length
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.corpus.json_lines import parse_object
from data.images.captioned_store import CaptionedImage, read_image
from data.images.captioned_vocabulary import CaptionedVocabulary
from data.images.image_files import check_pillow, encode_pixels
from pretrain.inference.batching import name_places, quote_text
from pretrain.inference.fill_mask import MaskFiller
from pretrain.workdir.trained import Trained

ROUNDS = 9
ENDING = ".png"  # of the pictures that are written


class Pair(NamedTuple):
    """A caption, the file of its picture or "", and the file to write its picture to or ""."""

    caption: str
    image: str
    output: str


def reads_pictures(trained: Trained) -> bool:
    """Return whether a model was trained on captions with pictures."""
    return trained.run.data.objective.reads_captions


def read_pair(record: Mapping[str, Any], place: str | None) -> Pair:
    """Return the caption and the files of a record, or of the JSON object that is its text.

    Raises ValueError for a record without a caption, or without one of the two files.
    """
    where = place or "the record"
    if "caption" not in record:
        if not isinstance(record.get("text"), str):
            raise ValueError(f"{where}: it has no caption")
        record = parse_object(record["text"], where)
    caption, image, output = (record.get(key) or "" for key in Pair._fields)
    if not all(isinstance(value, str) for value in (caption, image, output)) or not caption.strip():
        raise ValueError(f"{where}: caption, image and output are texts, and caption is not empty")
    if bool(image) == bool(output):
        raise ValueError(
            f"{where}: name either `image`, the picture from which the caption is filled, or "
            "`output`, the file for a picture that is filled from the caption"
        )
    if output and (not output.endswith(ENDING) or not pathlib.Path(output).parent.is_dir()):
        raise ValueError(
            f"{where}: output {output!r:.80}; its name ends in {ENDING}, and its folder exists"
        )
    return Pair(caption, image, output)


class PairFiller(MaskFiller):
    """Fills the masks of captions with words, or all visual tokens of pictures."""

    def __init__(self, trained: Trained, top: int, batch_size: int) -> None:
        """Build the model; top: the number of words for a mask.

        Raises ValueError if the workdir has no centroids of visual tokens.
        """
        check_pillow()
        super().__init__(trained, top, batch_size)
        if not isinstance(trained.encoding, CaptionedVocabulary):
            raise ValueError(
                f"{trained.workdir}: it has no folder `codebook` with the centroids of its visual "
                "tokens; copy it from the store of the run"
            )
        self.visual = trained.encoding
        self.top = min(top, self.visual.first_patch)

    def __call__(self, pairs: Sequence[Pair], places: Sequence[str | None]) -> list[dict[str, Any]]:
        """Return the result of each pair.

        A picture's is {"filled": caption, "masks": the likeliest words of each mask}, and
        an output's {"picture": its file, which is written, "visual_tokens": their numbers}.

        Raises ValueError, which begins with the place, for a picture that cannot be read, a caption
        without a mask next to a picture, or one that is too long.
        """
        rows = [self.make_row(pair, place) for pair, place in zip(pairs, name_places(places))]
        results: list[Any] = [None] * len(pairs)
        for is_read, fill in ((True, self.fill_captions), (False, self.fill_pictures)):
            chosen = [i for i, pair in enumerate(pairs) if bool(pair.image) == is_read]
            for start in range(0, len(chosen), self.batch_size):
                batch = chosen[start : start + self.batch_size]
                filled = fill([pairs[i] for i in batch], [rows[i] for i in batch])
                for i, result in zip(batch, filled, strict=True):
                    results[i] = result
        return results

    def make_row(self, pair: Pair, place: str) -> list[int]:
        """Return `[CLS] words [SEP] visual tokens [SEP]`, all masked if the picture is filled."""
        words, grid = self.tokenizer.encode(pair.caption).ids, self.visual.codebook.grid
        patches = [self.vocabulary.mask] * grid.num_patches
        if pair.image:
            if self.vocabulary.mask not in words:
                raise ValueError(
                    f"{place}: there is no {self.mask_piece} in {quote_text(pair.caption)}"
                )
            image = CaptionedImage(place, pathlib.Path(pair.image), pair.caption)
            patches = self.visual.encode_pixels(read_image(image, grid)[1][None])[0].tolist()
        row = [*words, *patches, self.vocabulary.sep]
        self._check_length(pair.caption, place, row)
        return row

    def fill_captions(
        self, pairs: Sequence[Pair], rows: Sequence[list[int]]
    ) -> list[dict[str, Any]]:
        """Return the results of captions with masks."""
        masks = [self.find_masks(row) for row in rows]
        answers = self.score_masks(rows, masks, self.top, 0, self.visual.first_patch)
        return [self._make_result(pair.caption, answer) for pair, answer in zip(pairs, answers)]

    def fill_pictures(
        self, pairs: Sequence[Pair], rows: Sequence[list[int]]
    ) -> list[dict[str, Any]]:
        """Write the pictures of captions; return their results."""
        results = []
        for pair, numbers in zip(pairs, self.predict_patches(rows)):
            pixels = self.visual.codebook.decode(numbers)
            pathlib.Path(pair.output).write_bytes(encode_pixels(pixels))
            results.append({"picture": pair.output, "visual_tokens": numbers.tolist()})
        return results

    def predict_patches(self, rows: Sequence[list[int]], rounds: int = ROUNDS) -> np.ndarray:
        """Return the visual tokens of rows whose pictures are masked, int64 [B, T]."""
        first, count = self.visual.first_patch, self.visual.codebook.grid.num_patches
        rows = [row.copy() for row in rows]
        for left in range(rounds, 0, -1):
            masks = [self.find_masks(row, len(row) - 1 - count) for row in rows]
            if not masks[0]:
                break
            answers = self.score_masks(rows, masks, 1, first, self.vocabulary.size)
            for row, mask, answer in zip(rows, masks, answers):
                found = [(probability, place, i) for place, [(probability, i)] in zip(mask, answer)]
                for _, place, i in sorted(found, reverse=True)[: -(-len(found) // left)]:
                    row[place] = i
        return np.array([row[-1 - count : -1] for row in rows]) - first

    def find_masks(self, row: Sequence[int], begin: int = 0) -> list[int]:
        """Return the places of the masks in a row from `begin` on."""
        return [i for i, token in enumerate(row) if i >= begin and token == self.vocabulary.mask]

    def _make_token_types(self, tokens_BL: jax.Array) -> jax.Array:
        """Return 1 for the visual tokens and what follows them, and 0 for the words."""
        is_sep_BL = (tokens_BL == self.vocabulary.sep).astype(jnp.int32)
        return jnp.minimum(jnp.cumsum(is_sep_BL, axis=1) - is_sep_BL, 1)
