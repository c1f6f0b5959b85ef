"""Measure the throughput of the input pipeline for each objective, and the time to a first batch.

    python benchmarks/speed/input.py [--seconds 3] [--rounds 3] [--tokens 40000000]
      [--documents 10000000] [--store STORE]

The store is synthetic, in a temporary folder: documents of 16 sentences (geometric) of 25 tokens
(exponential), ids uniform over 30,522 WordPiece ids (span corruption: over a small T5 vocabulary,
whose size does not affect the speed). `--store STORE` reads a prepared store instead, with the
objectives that its vocabulary allows.

Tokens are rows times row length, the model's input including padding; "text" excludes padding and
special tokens. Batches are only read, through the tf.data iterator of training with its one
thread. The objectives take turns, and the best of the rounds is reported. "CPU s" is per CPU
second, the speed of one core. "seek" is the time from `Stream(...)` to the first batch of step
10^9, with TensorFlow already imported. `--documents` makes the row tables of that many documents
of 4 such sentences in memory (0: none). A dated section is appended to benchmarks/results/input.md.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks.harness import (  # noqa: E402
    duration,
    format_command,
    format_title,
    int_at_least,
    measure_peak_memory,
    report_errors,
)
from benchmarks.results_pages import add_result  # noqa: E402
from data.config import Data  # noqa: E402
from data.objectives import MaskedLm, SentencePair, SpanCorruption  # noqa: E402
from data.pipeline import Stream  # noqa: E402
from data.rows.packed import PackedRows  # noqa: E402
from data.rows.sentence_pairs import SentencePairRows  # noqa: E402
from data.rows.tables import DocumentRows, WindowRows  # noqa: E402
from data.store.reader import Store  # noqa: E402
from data.store.writer import StoreWriter  # noqa: E402
from data.tensorflow_import import import_tensorflow  # noqa: E402
from data.vocabulary.base import Vocabulary  # noqa: E402
from data.vocabulary.load import read_vocabulary, train_vocabulary  # noqa: E402

CASES = (  # name, objective, rows of a batch
    ("masked words, rows within documents", MaskedLm(128, 20, rows="documents"), 32),
    ("masked words, rows within documents", MaskedLm(128, 20, rows="documents"), 256),
    ("masked words, packed rows", MaskedLm(128, 20, rows="packed"), 256),
    ("masked words, packed rows", MaskedLm(512, 77, rows="packed"), 64),
    ("masked words, joined stream", MaskedLm(128, 20, rows="windows"), 256),
    ("masked words, joined stream", MaskedLm(512, 77, rows="windows"), 256),
    ("whole words", MaskedLm(128, 20, whole_words=True, rows="documents"), 256),
    ("sentence pairs", SentencePair(128, 20), 256),
    ("sentence pairs", SentencePair(512, 77), 256),
    ("span corruption, 568 to 512 and 114", SpanCorruption(), 32),
    ("span corruption, 568 to 512 and 114", SpanCorruption(), 128),
)


def draw_documents(number: int, sentences: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw the sizes of documents.

    Args:
      number: of documents.
      sentences: mean number of sentences of a document (geometric).

    Returns:
      (token offsets of documents, token offsets of sentences); the lengths of sentences are
      exponential with mean 25.
    """
    rng = np.random.default_rng(seed)
    number_D = rng.geometric(1 / sentences, number)
    starts_S = np.concatenate(
        [[0], np.cumsum(rng.exponential(25, number_D.sum()).astype(np.int64) + 1)]
    )
    return starts_S[np.concatenate([[0], np.cumsum(number_D)])], starts_S


def make_vocabularies(folder: pathlib.Path) -> tuple[Vocabulary, Vocabulary]:
    """Return a WordPiece vocabulary of BERT's size and a small one with T5's layout."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *(f"{'##' * (i % 4 == 0)}p{i}" for i in range(30517)),
    ]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    text = [
        " ".join(f"{a}{b}" for b in ("alpha", "beta", "gamma", "delta"))
        for a in "stone river cloud light".split()
    ]
    return read_vocabulary(folder / "vocab.txt"), train_vocabulary(text * 4, 125, layout="t5")


def make_stores(folder: pathlib.Path, tokens: int) -> dict[str, Store]:
    """Write a store of about `tokens` tokens for each vocabulary; return {layout: store}."""
    starts_D, starts_S = draw_documents(tokens // 400, 16)
    stores = {}
    for name, vocabulary in zip(("bert", "t5"), make_vocabularies(folder), strict=True):
        writer = StoreWriter(folder / name, vocabulary)
        writer.begin_source("synthetic")
        ordinary = np.flatnonzero(~vocabulary.special)
        ids = ordinary[np.random.default_rng(1).integers(0, len(ordinary), starts_D[-1])]
        writer.add_documents("train", ids, np.diff(starts_D), np.diff(starts_S))
        writer.finish([1.0])
        stores[name] = Store.open(folder / name)
    return stores


def count_text_tokens(batch: Mapping[str, np.ndarray]) -> int:
    """Return the number of text tokens of a batch: neither padding nor special.

    For span corruption, the tokens before the corruption.
    """
    if "encoder_token_ids" in batch:
        objective = SpanCorruption(batch["encoder_token_ids"].shape[1])
        return batch["encoder_token_ids"].shape[0] * objective.raw_length
    if "segment_ids" in batch:
        return int(batch["attention_mask"].sum()) - 2 * int(batch["segment_ids"].max(axis=1).sum())
    extra = 3 if "token_type_ids" in batch else 2
    return int(batch["attention_mask"].sum()) - extra * len(batch["attention_mask"])


def measure_stream(stream: Stream, seconds: float) -> np.ndarray:
    """Return [tokens a second, text tokens a second, tokens a CPU second] after a warm-up."""
    iterator: Any = stream.iterate_batches(1000)
    for _ in range(5):
        next(iterator)
    cpu_start, start, text, count = time.process_time(), time.perf_counter(), 0, 0
    while time.perf_counter() - start < seconds:
        text += count_text_tokens(next(iterator))
        count += 1
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    iterator.close()
    tokens = count * stream.data.batch_size * stream.tokens_per_row
    return np.array([tokens / wall, text / wall, tokens / cpu])


def time_first_batch(make: Callable[[], Stream]) -> float:
    """Return the seconds to the first batch of step 10^9."""
    start = time.perf_counter()
    iterator: Any = make().iterate_batches(10**9)
    next(iterator)
    seconds = time.perf_counter() - start
    iterator.close()
    return seconds


def measure_throughput(stores: Mapping[str, Store], rounds: int, seconds: float) -> Iterator[str]:
    """Yield the rows of the first table.

    Args:
      seconds: of each measurement.
    """
    makers = []
    for name, objective, rows in CASES:
        store = stores.get("t5" if objective.name == "span_corruption" else "bert")
        if store:
            data = Data(objective=objective, batch_size=rows)
            makers.append(
                (name, objective, rows, lambda store=store, data=data: Stream(store, data, seed=1))
            )
    best, seeks = [np.zeros(3) for _ in makers], [np.inf for _ in makers]
    for _ in range(rounds):
        for i, (*_, make) in enumerate(makers):
            best[i] = np.maximum(best[i], measure_stream(make(), seconds))
            seeks[i] = min(seeks[i], time_first_batch(make))
    for (name, objective, rows, _), speed, first in zip(makers, best, seeks, strict=True):
        fast, text, cpu = speed / 1e6
        length = objective.axis_sizes()["L"]
        cells = [f"{rows} x {length}", f"{fast:.1f}", f"{text:.1f}", f"{cpu:.1f}"]
        yield f"| {name} | {' | '.join(cells)} | {first * 1000:.0f} |"


def measure_opening(number: int) -> Iterator[str]:
    """Yield the rows of the second table: the seconds to make row tables of `number` documents.

    At the end the peak memory, and the memory of packed rows, are printed.
    """
    starts_D, starts_S = draw_documents(number, 4)
    source = SimpleNamespace(name="all", documents=(0, number), rate=1.0)
    split: Any = SimpleNamespace(
        tokens=None, document_starts=starts_D, sentence_starts=starts_S, sources=(source,)
    )
    for name, table in (
        ("rows within documents, 128", lambda: DocumentRows(split, 126)),
        ("packed rows, 128", lambda: PackedRows(split, 128)),
        ("joined stream, 128", lambda: WindowRows(split, 126, separated=True)),
        ("windows of 568", lambda: WindowRows(split, 568)),
        ("sentence pairs, 128", lambda: SentencePairRows(split, 125)),
    ):
        start = time.perf_counter()
        rows = table().count
        seconds = time.perf_counter() - start
        sizes = f"{number:,} | {len(starts_S) - 1:,} | {starts_D[-1] / 1e9:.2f}"
        yield f"| {name} | {sizes} | {rows:,} | {seconds:.2f} |"
    # Of this process alone: ru_maxrss includes the parent's before the exec.
    peak = measure_peak_memory() / 1024
    tracemalloc.start()
    packed = PackedRows(split, 128)
    current_gib, peak_gib = (size / 2**30 for size in tracemalloc.get_traced_memory())
    print(
        f"peak memory {peak:.1f} GiB; {packed.count:,} packed rows take {peak_gib:.2f} GiB while "
        f"they are opened and {current_gib:.2f} GiB afterwards"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=duration, default=3.0)
    parser.add_argument("--rounds", type=int_at_least(1), default=3)
    parser.add_argument("--tokens", type=int_at_least(100_000), default=40_000_000)
    parser.add_argument("--documents", type=int_at_least(0), default=10_000_000)
    parser.add_argument("--store")
    parser.add_argument("--opening", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.opening:  # in its own process, to measure its memory
        print(*measure_opening(args.documents), sep="\n")
        return
    load = os.getloadavg()[0]
    if args.store:
        with report_errors(parser):
            store = Store.open(args.store)
        stores = {"t5" if store.vocabulary.mask is None else "bert": store}
    tf = import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        if not args.store:
            stores = make_stores(pathlib.Path(folder), args.tokens)
        columns = [
            "objective",
            "batch",
            "M tokens/s",
            "M text tokens/s",
            "M tokens/CPU s",
            "seek, ms",
        ]
        lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        lines += measure_throughput(stores, args.rounds, args.seconds)
    if args.documents:
        columns = ["row table", "documents", "sentences", "10^9 tokens", "rows", "seconds"]
        argv = [sys.executable, __file__, "--opening", "--documents", str(args.documents)]
        table = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
        lines += [
            "",
            f"| {' | '.join(columns)} |",
            "|---" * len(columns) + "|",
            *table[1:],
            "",
            table[0] + ".",
        ]
    corpus = "a prepared store" if args.store else f"synthetic, {args.tokens / 1e6:.0f} M tokens"
    rounds = f"{args.rounds} rounds of {args.seconds:g} s, the best of each"
    note = f"`{format_command()}`, {corpus}; {rounds}."
    add_result(
        "input",
        [
            format_title(load, f"NumPy {np.__version__}", f"TensorFlow {tf.__version__}"),
            "",
            note,
            "",
            *lines,
        ],
    )


if __name__ == "__main__":
    main()
