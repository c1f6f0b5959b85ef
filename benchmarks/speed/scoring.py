"""Measure `score` beside minicons, on sentences of books.

    python -m benchmarks.speed.scoring --corpora CORPORA [--texts 256] [--rounds 3]

A BERT-mini and a GPT-2 of its size, 100 steps old, score the same sentences by the same
parameters in float32, with one thread per core, in turns. Both programs have loaded and have scored
the sentences once before (so ours has compiled); minicons has the fastest of a few batch sizes.
The distance is between the scores of a sentence, in nats.

minicons runs on CLOZE_PEERS_PYTHON, or in an environment that is made at the first call.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import (
    ROOT,
    Worker,
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
)
from benchmarks.peer_environment import PEER_PACKAGES, find_peers_python
from benchmarks.program_turns import run_to_end
from benchmarks.results_pages import add_result

NAME = "scoring"
PEER = ROOT / "benchmarks" / "speed" / "scoring_peer.py"
PACKAGES = (*PEER_PACKAGES, "minicons>=0.3.39,<1")
PEER_BATCHES = (1, 4, 16, 64)  # texts
TRAINED = "charles-dickens_david-copperfield.jsonl"
SCORED = "jane-austen_pride-and-prejudice.jsonl"
STEPS = 100
WORDS = range(5, 31)  # of a sentence


class ScoredModel(NamedTuple):
    """A model of the table: its name, its training, options of its vocabulary, ways of scoring."""

    name: str
    words: tuple[str, ...]
    vocabulary: tuple[str, ...]
    ways: tuple[str, ...]


MODELS = (
    ScoredModel("BERT-mini", ("bert_mini",), ("--lowercase",), ("masked", "within_word_l2r")),
    ScoredModel(
        "GPT-2 of that size",
        (
            *("gpt2", "model.depth=4", "model.width=256", "model.num_heads=4", "model.length=128"),
            *("model.vocab=8192", "data.objective.length=64", "data.batch_size=16"),
        ),
        ("--algorithm", "byte_bpe", "--layout", "gpt2"),
        ("likelihood",),
    ),
)


class ScoringSpeed(NamedTuple):
    """A row: sentences a second of each program, the peer's batch, and the largest distance."""

    ours: float
    peers: float
    batch: int
    distance: float


def read_sentences(path: pathlib.Path, number: int) -> list[str]:
    """Return sentences of a file of books, in the order of the file."""
    found: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = " ".join(json.loads(line)["text"].split())
        sentences = re.findall(r"[A-Z][^.!?]*[.!?]", text)
        found += [one for one in sentences if len(one.split()) in WORDS]
        if len(found) >= number:
            return found[:number]
    raise ValueError(f"{path}: has {len(found)} sentences, not {number}; give fewer --texts")


def train_model(model: ScoredModel, books: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Train a model for a few steps; return its workdir, beside which its export is."""
    store, workdir = folder / "store", folder / "run"
    python = [sys.executable, "-m", "pretrain"]
    size = ["--vocab-size", 8192]
    run_to_end([*python, "prepare", books, "--output", store, *size, *model.vocabulary])
    words = [f"data.store={store}", f"train.stop_at_step={STEPS}", "train.compute_dtype=float32"]
    words += ["evaluate.every=0", "optimizer.warmup_steps=10"]
    run_to_end([*python, "train", *model.words, "--workdir", workdir, *words])
    run_to_end([*python, "export", "--workdir", workdir, "--output", folder / "export"])
    return workdir


def measure_way(
    workdir: pathlib.Path, peer: Worker, way: str, texts: list[str], rounds: int
) -> ScoringSpeed:
    """Return the speed of both programs, the median of some rounds."""
    from pretrain.api.scoring import ScoringOptions, make_requests, open_scorer

    options = ScoringOptions(str(workdir), texts, by=way)
    places = [(f"text {number}", {"text": text}) for number, text in enumerate(texts, 1)]
    requests: Any = make_requests(places, options)
    scorer = open_scorer(options)
    ours = np.array([score.total for score in scorer(requests)])
    tried = {batch: peer.ask_worker(texts=texts, batch=batch) for batch in PEER_BATCHES}
    batch = min(PEER_BATCHES, key=lambda one: tried[one]["seconds"])
    distance = np.abs(ours - np.array(tried[batch]["log_probabilities"])).max()
    seconds, peer_seconds = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        scorer(requests)
        seconds.append(time.perf_counter() - start)
        peer_seconds.append(peer.ask_worker(texts=texts, batch=batch)["seconds"])
    return ScoringSpeed(
        len(texts) / statistics.median(seconds),
        len(texts) / statistics.median(peer_seconds),
        batch,
        float(distance),
    )


def measure_models(
    python: pathlib.Path, book: pathlib.Path, texts: list[str], rounds: int
) -> list[str]:
    """Return a row of the table for each model and way."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for model in MODELS:
            folder = pathlib.Path(scratch) / model.words[0]
            workdir = train_model(model, book, folder)
            for way in model.ways:
                environment = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
                with Worker([python, PEER, folder / "export", way], environment) as peer:
                    peer.read_answer()
                    speed = measure_way(workdir, peer, way, texts, rounds)
                rows.append(format_row(model.name, way, speed))
    return rows


def format_row(name: str, way: str, speed: ScoringSpeed) -> str:
    """Return a line of the table."""
    cells = [
        *(name, f"`{way}`", f"{speed.ours:.1f}", f"{speed.peers:.1f}"),
        *(f"{speed.ours / speed.peers:.1f}", str(speed.batch), f"{speed.distance:.1e}"),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=int_at_least(1), default=256)
    parser.add_argument("--rounds", type=int_at_least(1), default=3)
    args = parser.parse_args()
    trained, scored = (args.corpora / "books" / "train" / name for name in (TRAINED, SCORED))
    require_paths(parser, "--corpora", trained, scored)
    with report_errors(parser):
        load, texts = os.getloadavg()[0], read_sentences(scored, args.texts)
        rows = measure_models(find_peers_python(PACKAGES, NAME), trained, texts, args.rounds)
    note = (
        f"`{format_command()}`: {args.texts} sentences of 5 to 30 words, medians of "
        f"{args.rounds} rounds in turns."
    )
    columns = ["model", "`--by`", "`score`, sentences/s", "minicons", "ratio"]
    columns += ["minicons' batch", "distance, nats"]
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows]
    print("\n".join([note, *table]))
    add_result(NAME, [format_title(load), "", note, "", *table], "`score` beside minicons")


if __name__ == "__main__":
    main()
