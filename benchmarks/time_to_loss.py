"""How long until a held-out loss is reached, beside `transformers.Trainer`: BERT-mini on the books, both from the start of their process.

    python -m benchmarks.time_to_loss --store runs/books [--limit 600] [--every 100] [--ways cloze,cloze_bf16,trainer,trainer_bf16] [data.batch_size=32 ...]

The same tokens, model, batch size and schedule (configs/bert_mini.py: 64 rows of 16, three words in ten masked; words change them for both). Cloze is
`python -m pretrain train` under the environment that launch.sh sets, with a compilation cache of its own, empty at first; `cloze_bf16` with the
words that docs/speed.md gives for a CPU. The peer is a program after `run_mlm.py` in a plain environment: ids in rows as long,
`DataCollatorForLanguageModeling`, `Trainer`; `trainer_bf16` with its `bf16=True`. All score the same held-out batches each `--every`
steps, and that counts as their time.

They take turns of `--slice` seconds; a program that does not have its turn is stopped (SIGSTOP) and its clock with it. `--limit` is of each
one's own clock. A dated section is appended to benchmarks/results/time_to_loss.md.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.harness import (
    KEEP_PAGES,
    ROOT,
    append,
    at_least,
    command,
    duration,
    peers_python,
    some_of,
    title,
    told_plainly,
)
from data.pipeline import Stream
from data.store.reader import Store
from pretrain.config import load
from pretrain.convert.read_write import converter_of

# Loss is told in these steps of a nat; the commonest words alone are worth 6.6.
LOSSES = [6.5 - 0.25 * i for i in range(11)]
# way: (whether it is Cloze, what it is told besides)
WAYS = {
    "cloze": (True, []),
    "cloze_bf16": (True, ["model.scan=false", "train.compute_dtype=bfloat16"]),
    "trainer": (False, []),
    "trainer_bf16": (False, ["bf16"]),
}
RATIOS = [("trainer", "cloze"), ("trainer_bf16", "cloze_bf16"), ("trainer", "cloze_bf16")]


class Turn:
    """A program that runs only while it is told to, and what it has told of its held-out loss: [(own seconds, step, loss)]."""

    def __init__(self, words, page, key, environment, log):
        self.page, self.key, self.log, self.clock, self.told, self.read = page, key, log, 0.0, [], 0
        environment = {
            name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"
        } | environment
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [str(word) for word in words], cwd=ROOT, env=environment, stdout=file, stderr=file
            )
        self.process.send_signal(signal.SIGSTOP)

    def go(self, seconds):
        """Run for so long; returns whether it still does. Raises RuntimeError where it failed."""
        self.process.send_signal(signal.SIGCONT)
        began = time.monotonic()
        while (spent := time.monotonic() - began) < seconds and self.process.poll() is None:
            self.look(self.clock + spent)
            time.sleep(0.05)
        self.clock += time.monotonic() - began
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
        elif self.process.returncode:
            raise RuntimeError(
                f"{self.process.args[:4]} ended with status {self.process.returncode}:\n{self.log.read_text()[-2000:]}"
            )
        self.look(self.clock)
        return self.process.poll() is None

    def look(self, now):
        """What has been written since."""
        if not self.page.exists():
            return
        with self.page.open() as file:
            file.seek(self.read)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self.read += len(text.encode())
        rows = [json.loads(line) for line in text.splitlines()]
        self.told += [(now, row["step"], row[self.key]) for row in rows if self.key in row]

    def end(self):
        self.process.kill()
        self.process.wait()


def material(folder, store_path, words):
    """What the peer reads: ids of the training part, the held-out batches that `train` scores, and the model's configuration."""
    run = load("bert_mini", words)
    store = Store.open(store_path)
    held = list(Stream(store, run.data, split="heldout", seed=run.train.seed).evaluation_batches())
    np.savez(
        folder / "heldout.npz",
        **{key: np.concatenate([batch[key] for batch in held]) for key in held[0]},
    )
    np.save(
        folder / "ids.npy",
        np.asarray(Stream(store, run.data, split="train", seed=run.train.seed).split.tokens),
    )
    settings = converter_of(run.model).hf_config(run.model, store.vocabulary)
    settings |= {name: getattr(store.vocabulary, name) for name in ("cls", "sep", "mask")}
    o = run.optimizer
    settings["arguments"] = {
        "per_device_train_batch_size": run.data.batch_size, "max_steps": run.train.steps, "learning_rate": o.learning_rate,
        "warmup_steps": o.warmup, "adam_beta1": o.beta1, "adam_beta2": o.beta2, "adam_epsilon": o.epsilon, "weight_decay": o.weight_decay,
        "max_grad_norm": o.max_grad_norm,
    }  # fmt: skip
    settings["rate"], settings["length_of_rows"] = (
        run.data.objective.mask_rate,
        run.data.objective.length,
    )
    (folder / "settings.json").write_text(json.dumps(settings))


def reached(told, loss):
    """(own seconds, step) when a loss was first reached, or None."""
    return next(((now, step) for now, step, value in told if value <= loss), None)


def ratios(told):
    """Those of RATIOS of which both were run."""
    return [pair for pair in RATIOS if told.keys() >= set(pair)]


def columns(told):
    return [
        "held-out loss",
        *(f"{name}, s (step)" for name in told),
        *(f"{theirs} / {ours}" for theirs, ours in ratios(told)),
    ]


def table(told, losses):
    """A row for each loss that any has reached."""
    for loss in losses:
        found = {name: reached(rows, loss) for name, rows in told.items()}
        if not any(found.values()):
            continue
        cells = [
            f"{loss:.2f}",
            *(f"{at[0]:.0f} ({at[1]})" if at else "not reached" for at in found.values()),
        ]
        pairs = [(found[theirs], found[ours]) for theirs, ours in ratios(told)]
        cells += [
            f"{theirs[0] / ours[0]:.2f}" if theirs and ours else "-" for theirs, ours in pairs
        ]
        yield f"| {' | '.join(cells)} |"


def begin(way, folder, words, every):
    """The `Turn` of a way."""
    own, more = WAYS[way]
    log = folder / f"{way}.log"
    if not own:
        peer = [
            peers_python(),
            ROOT / "benchmarks" / "time_to_loss_torch.py",
            folder,
            str(every),
            folder / f"{way}.jsonl",
            *more,
        ]
        return Turn(peer, folder / f"{way}.jsonl", "heldout_loss", {}, log)
    ours = [
        sys.executable,
        "-m",
        "pretrain",
        "train",
        "bert_mini",
        "--workdir",
        folder / way,
        *words,
        *more,
    ]
    fresh = {"JAX_COMPILATION_CACHE_DIR": str(folder / f"{way}_cache"), "JAX_PLATFORMS": "cpu"}
    return Turn(ours, folder / way / "metrics.jsonl", "heldout_loss", KEEP_PAGES | fresh, log)


def take_turns(args, folder, words):
    """Return {way: [(seconds, step, held-out loss)]} of programs that run a slice of time each, in turns, until the limit."""
    turns = {}
    try:
        for way in args.ways:
            turns[way] = begin(way, folder, words, args.every)
        running = dict(turns)
        while running:
            for name, turn in list(running.items()):
                left = min(args.slice, args.limit - turn.clock)
                if not turn.go(left) or turn.clock >= args.limit - 0.1:
                    del running[name]
                shown = f"{name}: {turn.clock:.0f} s, {turn.told[-1:]}"
                print(shown, file=sys.stderr, flush=True)
    finally:
        for turn in turns.values():
            turn.end()
    return {name: turn.told for name, turn in turns.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=pathlib.Path, default="runs/books")
    parser.add_argument("--limit", type=duration, default=600)
    parser.add_argument("--every", type=at_least(1), default=100)
    parser.add_argument("--slice", type=duration, default=15)
    parser.add_argument(
        "--ways", type=some_of(WAYS), default=list(WAYS), help=f"of {','.join(WAYS)}"
    )
    parser.add_argument(
        "words", nargs="*", metavar="key=value", help="changes of the configuration, for both"
    )
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    words = [
        f"data.store={args.store}",
        f"evaluate.every={args.every}",
        "train.stop_at_step=0",
        "checkpoint.every=100000",
        *args.words,
    ]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with told_plainly(parser):
            material(folder, args.store, words)
            if not all(WAYS[way][0] for way in args.ways):
                peers_python()
        told = take_turns(args, folder, words)
    last = ", ".join(
        f"{name} {now:.0f} s, step {step}, {loss:.3f}"
        for name, rows in told.items()
        for now, step, loss in rows[-1:]
    )
    note = (
        f"`{command()}`: seconds of each program's own clock, {args.limit:g} at most, from its start to the first held-out loss at or below the first "
        f"column, and the step; scored each {args.every} steps. The last of each: {last}."
    )
    head = columns(told)
    append(
        "time_to_loss.md",
        [
            title(load_before),
            "",
            note,
            "",
            f"| {' | '.join(head)} |",
            "|---" * len(head) + "|",
            *table(told, LOSSES),
        ],
    )


if __name__ == "__main__":
    main()
