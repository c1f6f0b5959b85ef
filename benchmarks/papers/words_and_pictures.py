"""Captions filled from pictures and pictures from captions: two digits and where they are.

    python -m benchmarks.papers.words_and_pictures CORPUS [--work runs/captions] [--steps 4000]
      [--pictures 30000] [--test 1000] [--note TEXT]

CORPUS has MNIST as train.npz and test.npz, with arrays x and y. A picture has two different digits
in two of its four quarters, and a caption such as "the three is left of the seven". Training
pictures are made of the training digits, and those that are scored of the test digits. The model is
that of configs/words_and_pictures.py. A dated section is added to
benchmarks/results/words_and_pictures.md, and some filled pictures are drawn next to it.
"""

# scikit-learn is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import os
import pathlib
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from PIL import Image, ImageDraw

from benchmarks.cached_results import require_settings
from benchmarks.harness import (
    RESULTS,
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
)
from benchmarks.papers.digit_scenes import (
    DIGITS,
    RELATIONS,
    SIDE,
    Scene,
    draw_scenes,
    find_digits,
    get_quarter,
    write_scenes,
)
from benchmarks.papers.translate import run_verb
from benchmarks.results_pages import add_result
from pretrain.inference.batching import pad_rows
from pretrain.inference.images.captioned_pairs import ROUNDS, PairFiller
from pretrain.workdir import metrics_file
from pretrain.workdir.trained import open_trained

NAME = "words_and_pictures"

# ---- what is measured ----------------------------------------------------------


class Judge:
    """Measures a model on scenes that it has not seen.

    tokens_ST: the visual tokens of the scenes, as ids.
    other_ST: the next scene's, a picture of another caption.
    """

    def __init__(self, filler: PairFiller, scenes: Sequence[Scene], corpus: pathlib.Path) -> None:
        self.filler, self.scenes, self.corpus = filler, scenes, corpus
        pixels = np.stack([scene.pixels_HW for scene in scenes])[..., None]
        self.tokens_ST = filler.visual.encode_pixels(pixels)
        self.other_ST = np.roll(self.tokens_ST, 1, axis=0)

    def make_rows(self, captions: Sequence[str], tokens_ST: np.ndarray) -> list[list[int]]:
        """Return `[CLS] words [SEP] visual tokens [SEP]` of each scene."""
        encoded = self.filler.tokenizer.encode_batch(list(captions))
        sep: Any = self.filler.vocabulary.sep
        return [[*one.ids, *tokens, sep] for one, tokens in zip(encoded, tokens_ST.tolist())]

    def fill_words(self, captions: Sequence[str], tokens_ST: np.ndarray) -> list[list[str]]:
        """Return the likeliest word of each mask of the captions."""
        filler, found = self.filler, []
        rows, first = self.make_rows(captions, tokens_ST), filler.visual.first_patch
        for start in range(0, len(rows), 100):
            part = rows[start : start + 100]
            ends = [len(row) - 1 - tokens_ST.shape[1] for row in part]
            masks = [[i for i in filler.find_masks(row) if i < end] for row, end in zip(part, ends)]
            for answer in filler.score_masks(part, masks, 1, 0, first):
                found.append([filler.vocabulary.pieces[ranked[0][1]] for ranked in answer])
        return found

    def measure_digits(self, tokens_ST: np.ndarray) -> float:
        """Return the share of digits that are filled rightly where both words are masked."""
        captions = [f"the [MASK] is {scene.relation} the [MASK]" for scene in self.scenes]
        filled = self.fill_words(captions, tokens_ST)
        wanted = [[DIGITS[digit] for digit in scene.digits] for scene in self.scenes]
        return float((np.array(filled) == np.array(wanted)).mean())

    def measure_relations(self, tokens_ST: np.ndarray) -> float:
        """Return the share of captions whose masked left, right, above or below is filled rightly.

        The word after it leaves two of them possible.
        """
        words = [scene.relation.split()[0] for scene in self.scenes]
        captions = [s.caption.replace(word, "[MASK]") for s, word in zip(self.scenes, words)]
        filled = self.fill_words(captions, tokens_ST)
        return float(np.mean([[word] == found for word, found in zip(words, filled)]))

    def measure_alignment(self) -> float:
        """Return the share of right answers, on own pictures and on others'."""
        filler, right = self.filler, []
        captions = [scene.caption for scene in self.scenes]
        differs_S = np.array(captions) != np.roll(captions, 1)
        for label, tokens_ST in ((0, self.tokens_ST), (1, self.other_ST)):
            rows = self.make_rows(captions, tokens_ST)
            ids_BL, valid_BL = pad_rows(rows, len(rows), filler.length, filler.pad)
            types_BL = filler._make_token_types(ids_BL)
            _, logits_B2 = filler.model.apply(
                {"params": filler.params}, ids_BL, valid_BL, types_BL, np.zeros((len(rows), 1), int)
            )
            right.append((np.asarray(logits_B2).argmax(axis=1) == label)[differs_S])
        return float(np.mean(right))

    def fill_pictures(self, rounds: int) -> np.ndarray:
        """Return the visual tokens of the pictures filled from the captions, numbers [S, T]."""
        masked_ST = np.full_like(self.tokens_ST, self.filler.vocabulary.mask)
        rows = self.make_rows([scene.caption for scene in self.scenes], masked_ST)
        return self.filler.predict_patches(rows, rounds)

    def train_reader(self) -> Any:
        """Return a logistic regression that reads digits of the training part made of centroids."""
        from sklearn.linear_model import LogisticRegression

        scenes = draw_scenes(self.corpus, "train.npz", 5000, seed=2)
        pixels = np.stack([scene.pixels_HW for scene in scenes])[..., None]
        numbers = self.filler.visual.codebook.encode(pixels)
        digits, labels = [], []
        for scene, picture in zip(scenes, map(self.decode, numbers)):
            digits += [part.ravel() / 255 for part in find_digits(picture, scene.relation)]
            labels += scene.digits
        return LogisticRegression(max_iter=100).fit(np.array(digits), labels)

    def decode(self, numbers_T: np.ndarray) -> np.ndarray:
        """Return the picture of visual tokens, [H, W]."""
        return self.filler.visual.codebook.decode(numbers_T)[..., 0]

    def measure_pictures(self, numbers_ST: np.ndarray, reader: Any) -> dict[str, float]:
        """Return how many digits are read as the captions want them, and how many are in place."""
        right, placed = [], []
        for scene, picture in zip(self.scenes, map(self.decode, numbers_ST)):
            parts = find_digits(picture, scene.relation)
            read = reader.predict(np.array([part.ravel() / 255 for part in parts]))
            right.append(read == np.array(scene.digits))
            ink = [get_quarter(picture, i, j).astype(int).sum() for i in (0, 1) for j in (0, 1)]
            filled = {divmod(i, 2) for i in range(4) if ink[i]}
            placed.append(filled == set(RELATIONS[scene.relation]))
        true_ST = self.tokens_ST - self.filler.visual.first_patch
        return {
            "digits": float(np.mean(right)),
            "places": float(np.mean(placed)),
            "tokens": float((numbers_ST == true_ST).mean()),
        }


def measure_model(judge: Judge, filled_ST: np.ndarray) -> dict[str, Any]:
    """Return all figures of the page.

    Args:
      filled_ST: the visual tokens of the pictures filled in `ROUNDS` rounds.
    """
    filler, reader = judge.filler, judge.train_reader()
    true_ST = judge.tokens_ST - filler.visual.first_patch
    masked_ST = np.full_like(judge.tokens_ST, filler.vocabulary.mask)
    pictures = {"own": judge.tokens_ST, "other": judge.other_ST, "none": masked_ST}
    return {
        "digits": {name: judge.measure_digits(tokens) for name, tokens in pictures.items()},
        "relations": {name: judge.measure_relations(tokens) for name, tokens in pictures.items()},
        "alignment": judge.measure_alignment(),
        "filled": judge.measure_pictures(filled_ST, reader),
        "filled_at_once": judge.measure_pictures(judge.fill_pictures(1), reader),
        "filled_of_others": judge.measure_pictures(np.roll(filled_ST, 1, axis=0), reader),
        "real": judge.measure_pictures(true_ST, reader),
        "commonest": float((true_ST == np.bincount(true_ST.ravel()).argmax()).mean()),
    }


def draw_examples(judge: Judge, filled_ST: np.ndarray, path: pathlib.Path, count: int = 4) -> None:
    """Draw the first caption of each relation, its picture, its tokens, and the filled picture."""
    scale, width, height = 3, 3 * SIDE * 2 + 30, SIDE * 2 + 22
    page = Image.new("L", (width * scale, height * scale * count), 255)
    draw = ImageDraw.Draw(page)
    true_ST = judge.tokens_ST - judge.filler.visual.first_patch
    for row, relation in enumerate(RELATIONS):
        i = next(i for i, scene in enumerate(judge.scenes) if scene.relation == relation)
        top = row * height * scale
        draw.text((8, top + 8), judge.scenes[i].caption, fill=0, font_size=20)
        shown = judge.scenes[i].pixels_HW, judge.decode(true_ST[i]), judge.decode(filled_ST[i])
        titles = "a picture of this caption", "its visual tokens", "filled from the caption"
        for column, (pixels, title) in enumerate(zip(shown, titles)):
            left = (column * (SIDE * 2 + 10) + 5) * scale
            size = (SIDE * 2 * scale, SIDE * 2 * scale)
            image = Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)
            page.paste(image, (left, top + 18 * scale))
            draw.text((left, top + 11 * scale), title, fill=90, font_size=12)
    page.save(path, optimize=True)


# ---- the page ------------------------------------------------------------------


def format_tables(found: dict[str, Any]) -> list[str]:
    """Return the tables of the captions and of the pictures."""
    words = [
        f"| {title} | {found[key]['own']:.1%} | {found[key]['other']:.1%} "
        f"| {found[key]['none']:.1%} | {chance} |"
        for title, key, chance in (
            ("both digits of a caption", "digits", "10 %"),
            ("left, right, above or below", "relations", "50 %"),
        )
    ]
    pictures = [
        f"| {title} | {found[key]['digits']:.1%} | {found[key]['places']:.1%} "
        f"| {found[key]['tokens']:.1%} |"
        for title, key in (
            (f"filled in {ROUNDS} rounds", "filled"),
            ("filled in one round", "filled_at_once"),
            ("filled from the next caption", "filled_of_others"),
            ("test pictures of the captions, as visual tokens", "real"),
        )
    ]
    return [
        "| filled words | with the picture | with another's | without a picture | chance |",
        "|---|---|---|---|---|",
        *words,
        "",
        f"Whether a picture is the caption's: {found['alignment']:.1%}; chance 50 %.",
        "",
        "| pictures | digits read as wanted | quarters as wanted | visual tokens as in the test "
        "picture |",
        "|---|---|---|---|",
        *pictures,
        f"| chance; the most frequent token everywhere | 10 % | – | {found['commonest']:.1%} |",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(f"runs/{NAME}"))
    parser.add_argument("--steps", type=int_at_least(3), default=4_000)
    parser.add_argument("--pictures", type=int_at_least(100), default=30_000)
    parser.add_argument("--test", type=int_at_least(10), default=1_000)
    parser.add_argument("--note", default="", help="a remark for the page, such as other load")
    args = parser.parse_args()
    require_paths(parser, "corpus", *(args.corpus / f"{part}.npz" for part in ("train", "test")))
    load, work = os.getloadavg()[0], args.work
    with report_errors(parser):
        settings = {"pictures": args.pictures}
        require_settings(work / "settings.json", settings, (work / "store").exists())
    if not (work / "store").exists():
        write_scenes(draw_scenes(args.corpus, "train.npz", args.pictures, 0), work / "pictures")
        where = ("--output", work / "store", "--patch", 12, "--clusters", 512, "--held-out", 0.03)
        run_verb("prepare-captions", work / "pictures", *where)
    run_verb(
        *("train", NAME, "--workdir", work / "run", f"data.store={work / 'store'}"),
        f"train.steps={args.steps}",
    )
    trained = open_trained(work / "run")
    scenes = draw_scenes(args.corpus, "test.npz", args.test, seed=1)
    judge = Judge(PairFiller(trained, 1, 100), scenes, args.corpus)
    filled_ST = judge.fill_pictures(ROUNDS)
    found = measure_model(judge, filled_ST)
    rows = metrics_file.read_metrics(work / "run" / "metrics.jsonl")
    minutes = sum(row["seconds"] for row in rows) / 60
    parameters = sum(leaf.size for leaf in jax.tree.leaves(trained.params))
    text = [
        format_title(load),
        "",
        f"`{format_command()}`: {parameters:,} parameters, {args.steps:,} steps of 64 rows in "
        f"{minutes:.1f} minutes of",
        f"steps, on {args.pictures:,} pictures. Scored on {args.test:,} pictures of digits of the "
        "test part. Digits are",
        "read by a logistic regression on digits of the training part made of the same centroids.",
        *filter(None, [args.note]),
        "",
        *format_tables(found),
        "",
        f"![A caption, a picture of it, and the picture that is filled from it]({NAME}.png)",
    ]
    add_result(NAME, text, "Words and pictures: captions and pictures filled from each other")
    draw_examples(judge, filled_ST, RESULTS / f"{NAME}.png")


if __name__ == "__main__":
    main()
