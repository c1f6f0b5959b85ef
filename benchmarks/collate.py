"""How fast masked batches are made, beside `transformers`' collator: tokens a CPU second, 256 rows of 128.

    python -m benchmarks.collate [--seconds 2] [--rounds 5] [--length 128] [--rows 256]

Cloze is the tf.data pipeline that `train` reads: it finds rows in a token store, cuts them, masks them and checks them. The peer is
`DataCollatorForLanguageModeling` alone, which gets rows of ids that lie ready in memory, with their masks of special tokens; what a data
loader does to bring them there is not counted. Each in a process of its own, in turns; the CPU time is that of all threads of the process.
A dated section is appended to benchmarks/results/collate.md.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

from benchmarks.harness import ROOT, Worker, append, interleaved, peers_python, title


def serve():
    """The side of Cloze: a function that reads batches for some seconds."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from benchmarks.input import synthetic
    from data.config import Data
    from data.objectives import MaskedLm
    from data.pipeline import Stream, import_tensorflow

    case = json.loads(sys.argv[1])
    length, rows = case["length"], case["rows"]
    store = synthetic(pathlib.Path(case["folder"]), 8_000_000)["bert"]
    objective = MaskedLm(length, -(-length * 15 // 100), rows="windows")
    batches = Stream(store, Data(objective=objective, batch_size=rows, threads=2), seed=1).batches(1000)
    next(batches)

    def step(seconds):
        used, began, count = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            next(batches)
            count += 1
        return {"wall": count * rows * length / (time.perf_counter() - began), "cpu": count * rows * length / (time.process_time() - used)}

    return {"ready": {"versions": [f"TensorFlow {import_tensorflow().__version__}"]}, "step": step}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rows", type=int, default=256)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        case = json.dumps({"length": args.length, "rows": args.rows, "folder": folder})
        ours = [sys.executable, "-c", "from benchmarks.harness import answer; from benchmarks.collate import serve; answer(serve)", case]
        theirs = [peers_python(), ROOT / "benchmarks" / "collate_torch.py", case]
        with Worker(ours) as cloze, Worker(theirs) as collator:
            workers = {"Cloze": cloze, "DataCollatorForLanguageModeling": collator}
            versions = [version for worker in workers.values() for version in worker.hear()["versions"]]
            found = interleaved(workers, args.rounds, seconds=args.seconds)
    speeds = {name: np.array([[reply["wall"], reply["cpu"]] for reply in replies]) / 1e6 for name, replies in found.items()}
    lines = ["| program | M tokens/s | M tokens/CPU s |", "|---|---|---|"]
    for name, values in speeds.items():
        cells = [f"{np.median(column):.1f} ({column.min():.1f} to {column.max():.1f})" for column in values.T]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    wall, cpu = np.median(speeds["Cloze"] / speeds["DataCollatorForLanguageModeling"], axis=0)
    note = f"`python -m benchmarks.collate --length {args.length} --rows {args.rows} --rounds {args.rounds}`: medians, and the least and the most."
    ratio = f"Cloze is {wall:.1f} times as fast by the clock, {cpu:.1f} times by CPU seconds (medians of the rounds' ratios)."
    append("collate.md", [title(load, *versions), "", note, "", *lines, "", ratio])


if __name__ == "__main__":
    main()
