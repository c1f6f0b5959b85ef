"""STS-B by the vectors of an encoder: as pretrained, after SimCSE, and after its training pairs.

    python -m benchmarks.papers.sts --workdir WORKDIR --corpora CORPORA --folder FOLDER --page

WORKDIR is a run that was pretrained on the books of CORPORA. SimCSE (Gao et al. 2021) trains on
sentences of the same books: a sentence is its own positive, under another dropout. The rows with
random parameters have the same encoder and steps. Scores are Spearman correlations of the cosine
with the score of STS-B's test pairs, times 100. The last step of every run is scored.

FOLDER has the files and the workdirs, so that a second command continues what was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from benchmarks.harness import (
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
)
from benchmarks.results_pages import add_result
from data.corpus.sentences import find_sentence_spans
from data.examples.text_sets import read_text_sets
from pretrain import api
from pretrain.inference.vectors.embedding import TextEmbedder, normalize_rows
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir

NAME = "sts"
WORDS = (5, 30)  # of a sentence of the books, from and to
SETTINGS = {"data.objective.length": 32, "evaluate.samples": 0}


class StsRow(NamedTuple):
    """A row of the table.

    Attributes:
      stages: (training file, fresh parameters, overrides) of each fine-tuning, in order.
      pooling: of the states; None: the embedder's own.
    """

    title: str
    stages: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    pooling: str | None = None


SIMCSE = {
    "data.batch_size": 64,
    "optimizer.learning_rate": 3e-5,
    "model.encoder.dropout": 0.1,
}
PAIRS = {"data.batch_size": 32, "optimizer.learning_rate": 1e-4}
ROWS = {
    "first": StsRow("as pretrained, state of the first token", pooling="cls"),
    "mean": StsRow("as pretrained, mean of the states", pooling="mean"),
    "simcse": StsRow("SimCSE on sentences of the books", (("sentences", "head", SIMCSE),)),
    "random_pairs": StsRow(
        "random parameters, then STS-B's training pairs", (("pairs", "all", PAIRS),)
    ),
    "pairs": StsRow("STS-B's training pairs", (("pairs", "head", PAIRS),)),
    "simcse_pairs": StsRow(
        "SimCSE, then STS-B's training pairs",
        (("sentences", "head", SIMCSE), ("pairs", "head", PAIRS)),
    ),
}


def write_sentences(books: pathlib.Path, path: pathlib.Path, count: int) -> None:
    """Write `count` sentences of the books, drawn with seed 0, unless the file exists."""
    if path.exists():
        return
    found = set()
    for book in sorted(books.glob("*.jsonl")):
        for line in book.read_text(encoding="utf-8").splitlines():
            text = json.loads(line)["text"].strip().encode()
            starts, ends, _ = find_sentence_spans(text, np.zeros(1, np.int64))
            for start, end in zip(starts.tolist(), ends.tolist()):
                sentence = " ".join(text[start:end].decode().split())
                if WORDS[0] <= len(sentence.split()) <= WORDS[1]:
                    found.add(sentence)
    chosen = random.Random(0).sample(sorted(found), count)
    lines = [json.dumps({"text": sentence}) + "\n" for sentence in chosen]
    path.write_text("".join(lines), encoding="utf-8")


def score_vectors(workdir: pathlib.Path, row: StsRow, pairs: Sequence[Any]) -> float:
    """Return the Spearman correlation of the cosines of test pairs with their scores."""
    embed = TextEmbedder(open_trained(workdir), pooling=row.pooling)
    first, second = (normalize_rows(embed([pair.texts[side] for pair in pairs])) for side in (0, 1))
    cosines = (first * second).sum(axis=1)
    correlation: Any = stats.spearmanr(cosines, [pair.label for pair in pairs])
    return 100 * float(correlation.statistic)


def train_row(
    start: pathlib.Path, row: StsRow, files: Mapping[str, str], folder: pathlib.Path, seed: int
) -> pathlib.Path:
    """Fine-tune a row's stages from a workdir, or resume it; return the last workdir."""
    workdir = start
    for number, (file, fresh, overrides) in enumerate(row.stages):
        own = folder / f"{number}_{seed}"
        changes = {**SETTINGS, **overrides, "train.seed": seed}
        api.finetune(
            workdir,
            "embedding",
            own,
            overrides=changes,
            train=files[file],
            heldout=files["dev"] if file == "pairs" else None,
            epochs=1 if file == "sentences" else 4,
            fresh=fresh,
        )
        workdir = own
    return workdir


def format_rows(scores: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the table."""
    lines = ["| vectors | Spearman, each seed | mean |", "|---|---|---|"]
    for name, found in scores.items():
        each = ", ".join(f"{score:.1f}" for score in found)
        lines.append(f"| {ROWS[name].title} | {each} | {statistics.fmean(found):.1f} |")
    return lines


def main() -> None:
    """Train what is not finished, and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workdir", type=pathlib.Path, required=True, help="a pretrained run")
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="books and glue_stsb")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of files and runs")
    parser.add_argument("--sentences", type=int_at_least(100), default=40_000, help="of SimCSE")
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--page", action="store_true", help="add the table to the page")
    args = parser.parse_args()
    books, stsb = args.corpora / "books" / "train", args.corpora / "glue_stsb"
    require_paths(parser, "--corpora", books, stsb)
    load, folder = os.getloadavg()[0], args.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    files = {"sentences": str(folder / "sentences.jsonl"), "pairs": str(stsb / "train.jsonl")}
    files["dev"] = str(stsb / "dev.jsonl")
    with report_errors(parser):
        model: Any = Workdir.open(args.workdir).run.model
        write_sentences(books, pathlib.Path(files["sentences"]), args.sentences)
        test, _ = read_text_sets(str(stsb / "test.jsonl"))
        scores: dict[str, list[float]] = {name: [] for name in ROWS}
        for name, row in ROWS.items():
            for seed in range(args.seeds if row.stages else 1):
                workdir = train_row(args.workdir, row, files, folder / name, seed)
                scores[name].append(score_vectors(workdir, row, test))
                print(f"{name}, seed {seed}: {scores[name][-1]:.2f}", flush=True)
    lines = format_rows(scores)
    print("\n".join(lines))
    if args.page:
        note = (
            f"`{format_command()}`: Spearman correlation times 100 on the {len(test):,} test pairs "
            f"of STS-B, by a {type(model).__name__} of {model.depth} layers of "
            f"{model.width}, pretrained for {open_trained(args.workdir).step:,} steps; "
            f"SimCSE reads {args.sentences:,} sentences once, STS-B's pairs are read four times."
        )
        add_result(
            NAME,
            [format_title(load, f"JAX {jax.__version__}"), "", note, "", *lines],
            "STS-B by the vectors of an encoder",
        )


if __name__ == "__main__":
    main()
