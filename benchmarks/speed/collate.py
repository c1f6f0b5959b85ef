"""Time the making of batches in Cloze and in other collators: tokens per second and CPU second.

    python -m benchmarks.speed.collate [--case masked_lm] [--seconds 2] [--rounds 5] [--threads 1]

Cloze is the tf.data pipeline that `train` reads: it locates rows in a token store, truncates,
masks and checks them, with `--threads` threads. The peers, listed below, run in one Python thread
and get the same text as lists of ids in memory; the work of a data loader to bring them there is
not counted. Masked LM has two peers: the collator of run_mlm.py with a fast tokenizer, which pads
example by example the output of that script's `map` (lists input_ids, token_type_ids,
attention_mask, special_tokens_mask), and the same collator with a stand-in for the tokenizer,
which only stacks rows. Both programs make rows of the same length; tokens are rows times length
(the encoder's, including padding). They take turns, each in its own process; CPU time is of all
threads of the process. A dated section is appended to benchmarks/results/collate.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import (
    ROOT,
    Worker,
    answer_messages,
    duration,
    format_command,
    format_spread,
    format_title,
    int_at_least,
    interleave_workers,
    report_errors,
)
from benchmarks.peer_environment import find_peers_python
from benchmarks.results_pages import add_result
from data.objectives import MaskedLm, SentencePair, SpanCorruption

TOKENS = 8_000_000  # of the store
MASKED = MaskedLm(128, 20, rows="windows")
# name: (objective, vocabulary of its store, rows of a batch, description of the peer)
CASES = {
    "masked_lm": (
        MASKED,
        "bert",
        256,
        "`DataCollatorForLanguageModeling` with a `BertTokenizerFast`; "
        "its rows have [CLS] and [SEP] already",
    ),
    "masked_lm, ready ids": (
        MASKED,
        "bert",
        256,
        "the same with a stand-in for the tokenizer, which stacks rows of one length",
    ),
    "span_corruption": (
        SpanCorruption(512),
        "t5",
        128,
        "a collator like the one in transformers' former Flax T5 script: a mask per example",
    ),
    "sentence_pair": (
        SentencePair(128, 20),
        "bert",
        256,
        "pairs made by BERT's published algorithm, then that collator and stand-in",
    ),
}


def serve_requests() -> dict[str, Any]:
    """Return the first answer of Cloze and its step function.

    The step function reads batches of a case for some seconds and returns tokens per second and
    per CPU second.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from benchmarks.speed.input import make_stores
    from data.config import Data
    from data.pipeline import Stream
    from data.tensorflow_import import import_tensorflow

    request, iterators = json.loads(sys.argv[2]), {}
    stores = make_stores(pathlib.Path(request["folder"]), TOKENS)
    for name in request["cases"]:
        objective, vocabulary, rows, _ = CASES[name]
        data = Data(objective=objective, batch_size=rows, threads=request["threads"])
        iterators[name] = Stream(stores[vocabulary], data, seed=1).iterate_batches(1000)
        next(iterators[name])

    def read_batches(name: str, seconds: float) -> dict[str, float]:
        objective, _, rows, _ = CASES[name]
        cpu_start, start, count = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            next(iterators[name])
            count += rows * objective.axis_sizes()["L"]
        return {
            "wall": count / (time.perf_counter() - start),
            "cpu": count / (time.process_time() - cpu_start),
        }

    sizes = {name: store.vocabulary.size for name, store in stores.items()}
    return {
        "ready": {
            "versions": [f"TensorFlow {import_tensorflow('a benchmark').__version__}"],
            "sizes": sizes,
        },
        "step": read_batches,
    }


def make_peer_case(name: str, folder: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the description of a case for the peer.

    Args:
      folder: the folder of the stores.
      sizes: {name of a store: size of its vocabulary}.
    """
    objective, vocabulary, rows, _ = CASES[name]
    shape = {
        "store": f"{folder}/{vocabulary}",
        "rows": rows,
        "length": objective.axis_sizes()["L"],
        "size": sizes[vocabulary],
    }
    if vocabulary == "bert":
        shape |= {"vocabulary": f"{folder}/vocab.txt"}
    if isinstance(objective, SpanCorruption):
        shape |= {
            "raw": objective.raw_length,
            "noise": objective.num_noise_tokens,
            "spans": objective.num_spans,
        }
    return shape


def measure_cases(
    names: Sequence[str], args: argparse.Namespace, folder: str
) -> tuple[list[str], dict[str, dict[str, np.ndarray]]]:
    """Run the cases.

    Returns:
      (versions, {case: {program: M tokens per second and per CPU second [rounds, 2]}}).
    """
    program = ROOT / "benchmarks" / "speed" / "collate_torch.py"
    request = json.dumps({"cases": names, "folder": folder, "threads": args.threads})
    ours = [sys.executable, "-m", "benchmarks.speed.collate", "--serve", request]
    with Worker(ours) as cloze:
        ready = cloze.read_answer()  # the stores are written
        cases = {name: make_peer_case(name, folder, ready["sizes"]) for name in names}
        with Worker([find_peers_python(), program, json.dumps(cases)]) as peer:
            versions = ready["versions"] + peer.read_answer()["versions"]
            workers, speeds = {"Cloze": cloze, "peer": peer}, {}
            for name in names:
                interleave_workers(workers, 1, name=name, seconds=0.2)
                replies = interleave_workers(workers, args.rounds, name=name, seconds=args.seconds)
                speeds[name] = {
                    program: np.array([[turn["wall"], turn["cpu"]] for turn in turns]) / 1e6
                    for program, turns in replies.items()
                }
    return versions, speeds


def format_row(name: str, speeds: Mapping[str, np.ndarray]) -> str:
    """Return a case's line of the table.

    Args:
      speeds: {program: M tokens per second and per CPU second [rounds, 2]}.
    """
    objective, _, rows, _ = CASES[name]
    ratios = speeds["Cloze"] / speeds["peer"]
    cells = [
        format_spread(column, ".1f") for speed in (*speeds.values(), ratios) for column in speed.T
    ]
    return f"| {name} | {rows} x {objective.axis_sizes()['L']} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", choices=CASES, help="one case; default: all")
    parser.add_argument("--seconds", type=duration, default=2.0)
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    parser.add_argument("--threads", type=int_at_least(1), default=1, help="threads of Cloze")
    args = parser.parse_args()
    with report_errors(parser):
        find_peers_python()
    load, names = os.getloadavg()[0], [args.case] if args.case else list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        versions, speeds = measure_cases(names, args, folder)
    head = [
        "objective",
        "batch",
        "Cloze, M tokens/s",
        "a CPU second",
        "peer, M tokens/s",
        "a CPU second",
        "ratio by the clock",
        "by CPU seconds",
    ]
    lines = [
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
        *(format_row(name, case_speeds) for name, case_speeds in speeds.items()),
    ]
    note = (
        f"`{format_command()}`: medians of {args.rounds} rounds of {args.seconds:g} s and, in "
        "brackets, the minimum and the maximum; ratios are computed in each round. Cloze with "
        f"data.threads={args.threads}, the peers in one Python thread:"
    )
    peers = [f"- {name}: {CASES[name][-1]}." for name in names]
    add_result("collate", [format_title(load, *versions), "", note, "", *peers, "", *lines])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        answer_messages(serve_requests)
    else:
        main()
