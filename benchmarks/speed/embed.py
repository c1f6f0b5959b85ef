"""Measure `embed` beside sentence-transformers, on sentences of books.

    python -m benchmarks.speed.embed --corpora CORPORA [--texts 2000] [--rounds 3]

A BERT of MiniLM's shape (6 layers of 384) with random parameters gives the same sentences vectors
in float32, with one thread per core, in turns; sentence-transformers reads our export. Both
programs have loaded and have embedded the sentences once before (so ours has compiled), and each
has the fastest of a few batch sizes. The distance is the largest of a component.

sentence-transformers runs on CLOZE_PEERS_PYTHON, or in an environment that is made at the first
call.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import tempfile
import time
from typing import Any

import jax
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
from benchmarks.results_pages import add_result
from benchmarks.speed.scoring import SCORED, TRAINED, read_sentences
from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from models.config.embedder import EmbedderConfig
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.convert.read_write import write_model
from pretrain.inference.vectors.embedding import TextEmbedder
from pretrain.workdir.trained import Trained

NAME = "embed"
PEER = ROOT / "benchmarks" / "speed" / "embed_peer.py"
PACKAGES = (*PEER_PACKAGES, "sentence-transformers>=5,<7")
BATCHES = (8, 32, 128)  # texts
SIZES: dict[str, Any] = {"width": 384, "depth": 6, "num_heads": 12, "mlp": 1536}
VOCAB = 8192


def make_model(book: pathlib.Path) -> Trained:
    """Return an embedder with random parameters, whose vocabulary is trained on a book."""
    texts = read_sentences(book, 3_000)
    vocabulary = train_vocabulary(texts, VOCAB, algorithm="bpe", lowercase=True)
    encoder = BertConfig(**SIZES, vocab=VOCAB, length=128, scan=False)
    run = make_starting_run(EmbedderConfig(encoder=encoder))
    return Trained(None, run, 1, jax.jit(make_initializer(run))(), vocabulary)  # pyright: ignore


def measure(trained: Trained, peer: Worker, texts: list[str], rounds: int) -> list[str]:
    """Return the row of the table."""
    embedders = {batch: TextEmbedder(trained, batch_size=batch) for batch in BATCHES}

    def time_ours(batch: int) -> float:
        start = time.perf_counter()
        embedders[batch](texts)
        return time.perf_counter() - start

    ours_ND = embedders[BATCHES[0]](texts)
    for batch in BATCHES:
        embedders[batch](texts)  # compiles
    own = min(BATCHES, key=time_ours)
    first = peer.ask_worker(texts=texts, batch=BATCHES[0], vectors=True)
    distance = float(np.abs(ours_ND - np.array(first["vectors"])).max())
    tried = {batch: peer.ask_worker(texts=texts, batch=batch)["seconds"] for batch in BATCHES}
    theirs = min(BATCHES, key=lambda batch: tried[batch])
    seconds, peer_seconds = [], []
    for _ in range(rounds):
        seconds.append(time_ours(own))
        peer_seconds.append(peer.ask_worker(texts=texts, batch=theirs)["seconds"])
    rates = [len(texts) / statistics.median(each) for each in (seconds, peer_seconds)]
    cells = [f"{rates[0]:.0f}", f"{rates[1]:.0f}", f"{rates[0] / rates[1]:.2f}"]
    return [*cells, f"{own}, {theirs}", f"{distance:.1e}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=int_at_least(1), default=2_000)
    parser.add_argument("--rounds", type=int_at_least(1), default=3)
    args = parser.parse_args()
    trained, embedded = (args.corpora / "books" / "train" / name for name in (TRAINED, SCORED))
    require_paths(parser, "--corpora", trained, embedded)
    with report_errors(parser), tempfile.TemporaryDirectory() as scratch:
        load, texts = os.getloadavg()[0], read_sentences(embedded, args.texts)
        model, folder = make_model(trained), pathlib.Path(scratch) / "export"
        write_model(folder, model.run.model, model.params, model.vocabulary)
        python = find_peers_python(PACKAGES, NAME)
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with Worker([python, PEER, folder], {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}) as peer:
            versions = peer.read_answer()
            row = measure(model, peer, texts, args.rounds)
    note = (
        f"`{format_command()}`: {args.texts:,} sentences of 5 to 30 words, sorted by length, by a "
        f"BERT of 6 layers of 384, medians of {args.rounds} rounds in turns, beside "
        f"{' and '.join(versions)}."
    )
    columns = ["`embed`, sentences/s", "sentence-transformers", "ratio", "batches", "distance"]
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", f"| {' | '.join(row)} |"]
    print("\n".join([note, *table]))
    title = format_title(load, f"JAX {jax.__version__}")
    add_result(NAME, [title, "", note, "", *table], "`embed` beside sentence-transformers")


if __name__ == "__main__":
    main()
