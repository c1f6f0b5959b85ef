"""Compare packed and padded rows of short documents: real tokens a second of the training step.

    python -m benchmarks.speed.packing [--corpus FILE] [--length 128] [--rows 32]

Each line of the corpus, or the field `text` of each line of a JSONL file, is a document; the
default is film reviews, one sentence a line. The same BERT (BERT-mini, float32, dropout, AdamW)
trains on the same store with rows of one length and batches of one size, once with
rows="documents" and once with rows="packed". The two take turns, each in its own process, with the
environment variables of launch.sh, on batches that are on the device already. Real tokens are all
tokens but padding; both kinds of rows add the same special tokens to a document, so that the ratio
also counts text tokens. A dated section is appended to benchmarks/results/packing.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    ROOT,
    Worker,
    answer_messages,
    format_command,
    format_spread,
    format_title,
    int_at_least,
    interleave_workers,
    json_object,
)
from benchmarks.results_pages import add_result

if TYPE_CHECKING:
    from pretrain.config import Run

CORPORA = ROOT.parent / "shared" / "corpora"
MODEL = {"width": 256, "depth": 4, "num_heads": 4, "mlp": 1024}  # BERT-mini
WAYS = ("documents", "packed")
BATCHES = 16  # batches of each program, used in turn


def make_config(case: Mapping[str, Any]) -> Run:
    """Return the configuration of a case."""
    from data.config import Data
    from data.objectives import MaskedLm
    from models.config.bert import BertConfig
    from pretrain.config import AdamW, Run, Train

    predictions = -(-case["length"] * 20 // 128)
    objective = MaskedLm(length=case["length"], max_predictions=predictions, rows=case["way"])
    data = Data(objective=objective, store=case["store"], batch_size=case["rows"])
    return Run(
        model=BertConfig(**case["model"]),
        data=data,
        optimizer=AdamW(),
        train=Train(steps=1_000_000, compute_dtype="float32"),
    )


def serve_requests(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first answer, with the share of real tokens, and the step function.

    The step function runs `steps` steps and returns their seconds and real tokens.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before JAX is imported
    import jax

    from data.pipeline import Stream
    from data.store.reader import Store
    from pretrain.config import Mesh
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.program import make_program

    run = make_config(case)
    stream = Stream(Store.open(run.data.store), run.data, seed=run.train.seed)
    program = make_program(run, make_mesh(Mesh(1), jax.devices()[:1]))
    state, position = program.init(), 0
    batches = [stream.build_batch(i) for i in range(BATCHES)]
    placed = [
        jax.device_put(batch, {key: leaf.sharding for key, leaf in program.batch.items()})
        for batch in batches
    ]
    state, metrics = program.train_step(state, placed[0])
    jax.block_until_ready(metrics)

    def train_steps(steps: int) -> dict[str, float]:
        nonlocal state, position
        start, tokens = time.perf_counter(), 0
        for _ in range(steps):
            state, metrics = program.train_step(state, placed[position % BATCHES])
            tokens += int(batches[position % BATCHES]["attention_mask"].sum())
            position += 1
        jax.block_until_ready((state, metrics))
        return {
            "seconds": time.perf_counter() - start,
            "tokens": tokens,
            "loss": float(metrics["loss"]),
        }

    real = sum(
        int(
            stream.build_evaluation_batch(i)["attention_mask"][
                : stream.num_rows - i * case["rows"]
            ].sum()
        )
        for i in range(stream.num_evaluation_batches)
    )
    ready = {
        "epoch": stream.num_rows,
        "real": real / (stream.num_rows * case["length"]),
        "versions": [f"JAX {jax.__version__}"],
    }
    return {"ready": ready, "step": train_steps}


def prepare_lines(
    corpus: pathlib.Path, vocabulary: pathlib.Path, folder: pathlib.Path
) -> tuple[pathlib.Path, int]:
    """Prepare a store with a document per line; return its folder and the number of documents."""
    from data.prepare.build import PrepareRequest, prepare_store

    text = corpus.read_text()
    if corpus.suffix == ".jsonl":
        text = "\n".join(json.loads(line)["text"] for line in text.splitlines())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    (folder / "lines.txt").write_text("\n\n".join(lines) + "\n")
    prepare_store(
        PrepareRequest(
            sources=(str(folder / "lines.txt"),),
            vocabulary=str(vocabulary),
            document="block",
            held_out=0.0,
        ),
        folder / "store",
    )
    return folder / "store", len(lines)


def measure_rows(
    args: argparse.Namespace, folder: pathlib.Path
) -> tuple[int, dict[str, Any], dict[str, list[Any]]]:
    """Run both kinds of rows.

    Returns:
      (number of documents, {rows: first answer}, {rows: [answer of each round]}).
    """
    store, documents = prepare_lines(args.corpus, args.vocabulary, folder)
    case = {
        "store": str(store),
        "length": args.length,
        "rows": args.rows,
        "model": MODEL | args.model,
    }
    with contextlib.ExitStack() as stack:
        workers, ready = {}, {}
        for way in WAYS:
            argv = [
                sys.executable,
                "-m",
                "benchmarks.speed.packing",
                "--worker",
                json.dumps(case | {"way": way}),
            ]
            workers[way] = stack.enter_context(Worker(argv, MALLOC_ENVIRONMENT))
            ready[way] = workers[way].read_answer()
        interleave_workers(workers, 1, steps=2)
        return documents, ready, interleave_workers(workers, args.rounds, steps=args.steps)


def format_table(
    ready: Mapping[str, Any], answers: Mapping[str, Sequence[Any]], steps: int
) -> list[str]:
    """Return the lines of the table.

    Args:
      ready, answers: the results of `measure_rows`.
      steps: of a round.
    """
    rate = {
        way: np.array([reply["tokens"] / reply["seconds"] for reply in replies])
        for way, replies in answers.items()
    }
    lines = [
        "| rows | rows an epoch | real | ms a step | real tokens/s | to padded rows |",
        "|---|---|---|---|---|---|",
    ]
    for way, replies in answers.items():
        ms = np.array([1000 * reply["seconds"] / steps for reply in replies])
        ratio = rate[way] / rate["documents"]
        cells = [
            way,
            f"{ready[way]['epoch']:,}",
            f"{ready[way]['real']:.1%}",
            format_spread(ms),
            format_spread(rate[way]),
        ]
        lines.append(f"| {' | '.join(cells)} | {format_spread(ratio, '.2f')} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--corpus",
        type=pathlib.Path,
        default=CORPORA / "cls_movie_reviews_polarity2" / "reviews.jsonl",
    )
    parser.add_argument(
        "--vocabulary", type=pathlib.Path, default=CORPORA / "vocab_bert_uncased" / "vocab.txt"
    )
    parser.add_argument("--length", type=int_at_least(8), default=128)
    parser.add_argument("--rows", type=int_at_least(1), default=32, help="rows of a batch")
    parser.add_argument(
        "--model",
        type=json_object,
        default={},
        help="JSON object of fields of BertConfig that differ from BERT-mini",
    )
    parser.add_argument("--rounds", type=int_at_least(1), default=7)
    parser.add_argument(
        "--steps",
        type=int_at_least(1),
        default=8,
        help="steps of a program before the other's turn",
    )
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return answer_messages(lambda: serve_requests(args.worker))
    for path in (args.corpus, args.vocabulary):
        if not path.is_file():
            parser.error(
                f"{path}: no such file; give a text with --corpus "
                "and a released WordPiece vocabulary with --vocabulary"
            )
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        documents, ready, answers = measure_rows(args, pathlib.Path(folder))
    note = (
        f"`{format_command()}`: {documents:,} documents, the lines of "
        f"{args.corpus.parent.name}/{args.corpus.name}; {args.rows} rows of {args.length}; medians "
        f"of {args.rounds} rounds of {args.steps} steps and, in brackets, the minimum and the "
        "maximum; ratios are computed in each round."
    )
    add_result(
        "packing",
        [
            format_title(load, *ready["packed"]["versions"]),
            "",
            note,
            "",
            *format_table(ready, answers, args.steps),
        ],
    )


if __name__ == "__main__":
    main()
