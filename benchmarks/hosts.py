"""What each process of a run builds, reads and holds, with 1, 2 and 4 real processes; and what a step of BERT-base waits for its input.

    python benchmarks/hosts.py memory --store runs/books [--tokens 100000000] [--steps 10]
    python benchmarks/hosts.py input --store runs/books [--steps 10]

`memory`. Two stores: a prepared one, and a synthetic one (benchmarks/input.py makes it) of `--tokens` tokens, for what grows with the store. A
small BERT is trained on each for `--steps` steps of 64 rows of 128, as `pretrain.cli.local` starts its processes on one machine, with a data
axis of 4. When its last step is done, each process tells (two numbers are the least and the most of any):

- rows a step: counted where batches are built (`Stream.batch`, including those built ahead), divided by the batches;
- tokens a step: positions asked of the store's map, counted where it is read (`data.rows.tables.TokenReader`);
- pages: distinct 4-KiB pages among those positions, as bytes;
- map: what the kernel holds of the store's files for this process (Rss in /proc/self/smaps). It maps up to 16 pages around each fault;
- anonymous: RssAnon in /proc/self/status, all that is the process's own: Python, TensorFlow, JAX, the model, and the tables of rows.

`input`. BERT-base, as configured but for 8 rows a step, is trained for `--steps` steps and two more, by launch.sh, and its metrics tell the
wait for input. Without launch.sh's settings of glibc the kernel takes a step's memory back at its end: every thread that needs a page then
waits, and the one that fetches the input for 175 ms (LOG.md).

A dated section is appended to benchmarks/results/hosts.md.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

ROWS = 64  # of a step of the small model
SMALL = ["model.vocab=30592", "model.width=128", "model.depth=2", "model.num_heads=2", "model.mlp=512", "model.length=128",
         f"data.batch_size={ROWS}", "evaluate.every=0", "checkpoint.every=1000000", "train.stop_at_step=0", "mesh.data=4"]  # fmt: skip
OBJECTIVES = {  # name: words
    "masked words": ["bert_tiny", "data.objective.length=128", "data.objective.max_predictions=38"],
    "sentence pairs": ["bert_base", "train.compute_dtype=float32"],
}


# ---- in each process ---------------------------------------------------------


def worker(report, words):
    """Run a verb, counting; the last step writes {name: number} to `report`.<process>."""
    import jax

    from data.pipeline import Stream
    from data.rows.tables import TokenReader
    from pretrain.__main__ import main
    from pretrain.training import loop

    count = {"batches": 0, "rows": 0, "tokens": 0}
    pages, batch, read, feed, folder = set(), Stream.batch, TokenReader.__call__, loop.feed, []

    def counted_batch(stream, step, lo=0, hi=None, number=1):
        folder[:] = [str(stream.split.tokens.filename)]
        count["batches"] += number
        count["rows"] += number * ((stream.data.batch_size if hi is None else hi) - lo)
        return batch(stream, step, lo, hi, number)

    def counted_read(reader, index_BN):
        count["tokens"] += index_BN.size
        pages.update(np.unique(index_BN * reader.tokens.itemsize // 4096).tolist())
        return read(reader, index_BN)

    def counted_feed(*args):
        yield from feed(*args)
        facts = {
            "process": jax.process_index(),
            **count,
            "pages": len(pages) * 4096,
            **memory(pathlib.Path(folder[0]).parent),
        }
        pathlib.Path(f"{report}.{jax.process_index()}").write_text(json.dumps(facts))

    Stream.batch, TokenReader.__call__, loop.feed = counted_batch, counted_read, counted_feed
    return main(words)


def memory(folder):
    """{"map": bytes resident of the files in `folder`, "anonymous": bytes of this process's own}."""
    held, inside = 0, False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = str(folder) in line
            elif inside and line.startswith("Rss:"):
                held += int(line.split()[1]) * 1024
    with open("/proc/self/status") as status:
        own = next(line for line in status if line.startswith("RssAnon:"))
    return {"map": held, "anonymous": int(own.split()[1]) * 1024}


# ---- over them ---------------------------------------------------------------


def processes(count, words, report):
    """The facts of each of `count` processes."""
    from pretrain.cli import local

    real = local.command
    local.command = lambda *args: (
        real(*args) | {"args": [sys.executable, __file__, "--worker", str(report), *words]}
    )
    try:
        if status := local.run_all(count, 4 // count, words):
            raise SystemExit(status)
    finally:
        local.command = real
    return [json.loads(pathlib.Path(f"{report}.{i}").read_text()) for i in range(count)]


def spread(values, form):
    """One number where the processes agree, else the least and the most."""
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least} to {most}"


def table(stores, steps, folder):
    """The lines of the table: for each number of processes what each of them did."""
    columns = [
        "objective",
        "store, MiB",
        "processes",
        "rows a step",
        "tokens a step",
        "pages, MiB",
        "map, MiB",
        "anonymous, MiB",
    ]
    yield from (f"| {' | '.join(columns)} |", "|---" * len(columns) + "|")
    for objective, words in OBJECTIVES.items():
        for store in stores:
            size = sum(file.stat().st_size for file in (store.folder / "train").glob("*.bin"))
            for count in (1, 2, 4):
                workdir = folder / "run"
                words_all = [
                    "train",
                    *words,
                    *SMALL,
                    f"data.store={store.path}",
                    f"train.steps={steps}",
                    "--workdir",
                    str(workdir),
                ]
                facts = processes(count, words_all, folder / "facts")
                cells = [objective, f"{size / 2**20:,.0f}", str(count)]
                cells += [
                    spread([one[name] / one["batches"] for one in facts], "g")
                    for name in ("rows", "tokens")
                ]
                cells += [
                    spread([one[name] / 2**20 for one in facts], form)
                    for name, form in (("pages", ".1f"), ("map", ".1f"), ("anonymous", ",.0f"))
                ]
                yield f"| {' | '.join(cells)} |"
                shutil.rmtree(workdir)


def input_wait(store, steps, folder):
    """A sentence on how long steps of BERT-base waited for their input."""
    from pretrain.workdir import metrics_file

    workdir = folder / "base"
    words = [
        "train",
        "bert_base",
        f"data.store={store.path}",
        "data.batch_size=8",
        "evaluate.every=0",
        "train.steps=1000000",
    ]
    words += [
        f"train.stop_at_step={steps + 2}",
        "checkpoint.every=1000000",
        "--workdir",
        str(workdir),
    ]
    subprocess.run([ROOT / "launch.sh", *words], cwd=ROOT, check=True)
    rows = metrics_file.read(workdir / "metrics.jsonl")[
        2:
    ]  # the first compiles, the second waits for it
    seconds, waited = (
        np.array([row[name] for row in rows]) for name in ("seconds", "input_seconds")
    )
    return (
        f"`bert_base data.batch_size=8`, one process, {len(rows)} steps after the first two: {np.median(seconds):.2f} s a step (median), of which "
        f"{waited.mean() * 1000:.2f} ms waiting for input (mean; longest {waited.max() * 1000:.2f} ms): {waited.sum() / seconds.sum():.3%}."
    )


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2], sys.argv[3:])
    from benchmarks.harness import append, at_least, command, title, told_plainly
    from benchmarks.input import synthetic
    from data.store.reader import Store

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("memory", "input"))
    parser.add_argument("--store", required=True)
    parser.add_argument("--tokens", type=at_least(100_000), default=100_000_000)
    parser.add_argument("--steps", type=at_least(1), default=10)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with told_plainly(parser):
        store = Store.open(pathlib.Path(args.store).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.part == "memory":
            lines = list(table([store, synthetic(folder, args.tokens)["bert"]], args.steps, folder))
        else:
            lines = [input_wait(store, args.steps, folder)]
    append("hosts.md", [title(load), "", f"`{command()}`: {args.steps} steps", "", *lines])
    return 0


if __name__ == "__main__":
    sys.exit(main())
