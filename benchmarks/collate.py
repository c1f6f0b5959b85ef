"""How fast batches are made, beside what others make them with: tokens a second by the clock, and a CPU second.

    python -m benchmarks.collate [--case masked_lm] [--seconds 2] [--rounds 5] [--threads 1]

Cloze is the tf.data pipeline that `train` reads: it finds rows in a token store, cuts them, masks them and checks them, with so many
threads. The peers, below, work in one thread of Python and get the same text as lists of ids that lie ready in memory; what a data loader does
to bring them there is not counted. Masked words have two: the collator as run_mlm.py has it, with a fast tokenizer, which pads example by example
what that script's `map` leaves in a data set (lists input_ids, token_type_ids, attention_mask, special_tokens_mask), and the same collator
with a stand-in for the tokenizer, which only stacks rows of ready ids. Both make rows of the same length, and tokens are rows times length (the
encoder's, padding included). The two take turns, each in a process of its own; CPU time is that of all threads of the process. A dated section
is appended to benchmarks/results/collate.md.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

from benchmarks.harness import (
    ROOT,
    Worker,
    append,
    at_least,
    command,
    duration,
    interleaved,
    peers_python,
    spread,
    title,
    told_plainly,
)
from data.objectives import MaskedLm, SentencePair, SpanCorruption

TOKENS = 8_000_000  # of the store
MASKED = MaskedLm(128, 20, rows="windows")
CASES = {  # objective, vocabulary of its store and rows of a batch; what the peer is
    "masked_lm": (
        MASKED,
        "bert",
        256,
        "`DataCollatorForLanguageModeling` with a `BertTokenizerFast`, whose rows are framed already",
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
        "a collator after that of the T5 script for Flax that was in transformers: a mask an example",
    ),
    "sentence_pair": (
        SentencePair(128, 20),
        "bert",
        256,
        "pairs after BERT's published walk over documents, then that collator and stand-in",
    ),
}


def serve():
    """The side of Cloze: a function that reads batches of a case for some seconds."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from benchmarks.input import synthetic
    from data.config import Data
    from data.pipeline import Stream
    from data.tf_dataset import import_tensorflow

    asked, iterators = json.loads(sys.argv[1]), {}
    stores = synthetic(pathlib.Path(asked["folder"]), TOKENS)
    for name in asked["cases"]:
        objective, vocabulary, rows, _ = CASES[name]
        data = Data(objective=objective, batch_size=rows, threads=asked["threads"])
        iterators[name] = Stream(stores[vocabulary], data, seed=1).batches(1000)
        next(iterators[name])

    def step(name, seconds):
        objective, _, rows, _ = CASES[name]
        used, began, count = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            next(iterators[name])
            count += rows * objective.dims()["L"]
        return {
            "wall": count / (time.perf_counter() - began),
            "cpu": count / (time.process_time() - used),
        }

    sizes = {name: store.vocabulary.size for name, store in stores.items()}
    return {
        "ready": {"versions": [f"TensorFlow {import_tensorflow().__version__}"], "sizes": sizes},
        "step": step,
    }


def peer_case(name, folder, sizes):
    """What the peer must know of a case."""
    objective, vocabulary, rows, _ = CASES[name]
    shape = {
        "store": f"{folder}/{vocabulary}",
        "rows": rows,
        "length": objective.dims()["L"],
        "size": sizes[vocabulary],
    }
    if vocabulary == "bert":
        shape |= {"vocabulary": f"{folder}/vocab.txt"}
    if isinstance(objective, SpanCorruption):
        shape |= {"raw": objective.raw_length, "noise": objective.noise, "spans": objective.spans}
    return shape


def measure(names, args, folder):
    """(versions, {case: {program: [speeds by the clock and a CPU second of each round]}})."""
    asked = json.dumps({"cases": names, "folder": folder, "threads": args.threads})
    ours = [
        sys.executable,
        "-c",
        "from benchmarks.harness import answer; from benchmarks.collate import serve; answer(serve)",
        asked,
    ]
    with Worker(ours) as cloze:
        ready = cloze.hear()  # the store is there
        cases = {name: peer_case(name, folder, ready["sizes"]) for name in names}
        with Worker(
            [peers_python(), ROOT / "benchmarks" / "collate_torch.py", json.dumps(cases)]
        ) as peer:
            versions, workers, found = (
                ready["versions"] + peer.hear()["versions"],
                {"Cloze": cloze, "peer": peer},
                {},
            )
            for name in names:
                interleaved(workers, 1, name=name, seconds=0.2)
                replies = interleaved(workers, args.rounds, name=name, seconds=args.seconds)
                found[name] = {
                    who: np.array([[reply["wall"], reply["cpu"]] for reply in told]) / 1e6
                    for who, told in replies.items()
                }
    return versions, found


def row(name, speeds):
    """A line of the table."""
    objective, _, rows, _ = CASES[name]
    ratios = speeds["Cloze"] / speeds["peer"]
    cells = [spread(column, ".1f") for speed in (*speeds.values(), ratios) for column in speed.T]
    return f"| {name} | {rows} x {objective.dims()['L']} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", choices=CASES, help="one case; without, all of them")
    parser.add_argument("--seconds", type=duration, default=2.0)
    parser.add_argument("--rounds", type=at_least(1), default=5)
    parser.add_argument("--threads", type=at_least(1), default=1, help="of Cloze")
    args = parser.parse_args()
    with told_plainly(parser):
        peers_python()
    load, names = os.getloadavg()[0], [args.case] if args.case else list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        versions, found = measure(names, args, folder)
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
        *(row(name, speeds) for name, speeds in found.items()),
    ]
    note = (
        f"`{command()}`: medians of {args.rounds} rounds of {args.seconds:g} s, in brackets the least and the most; ratios round by round. Cloze with "
        f"data.threads={args.threads}, the peers in one thread of Python:"
    )
    peers = [f"- {name}: {CASES[name][-1]}." for name in names]
    append("collate.md", [title(load, *versions), "", note, "", *peers, "", *lines])


if __name__ == "__main__":
    main()
