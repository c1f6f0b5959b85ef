"""The speedrun: time to 30.0 % held-out accuracy of masked tokens on two cores (docs/speedrun.md).

python -m benchmarks.speedrun prepare
python -m benchmarks.speedrun list
python -m benchmarks.speedrun run muon --seed 0 [--steps 2400] [key=value ...]
python -m benchmarks.speedrun add muon_2400_0 muon_2400_1
"""

from __future__ import annotations

import argparse
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks.harness import int_at_least, report_errors, require_paths
from benchmarks.speedrun.checkpoint_scores import score_run
from benchmarks.speedrun.entries import ENTRIES, TRAINER
from benchmarks.speedrun.heldout_rows import TARGET, prepare_store
from benchmarks.speedrun.race import Attempt, read_race, run_race
from benchmarks.speedrun.race_table import add_log, find_crossing, format_minutes, write_page

FOLDER, CORPORA = pathlib.Path("runs/speedrun"), pathlib.Path("../shared/corpora")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="print the entries")
    verbs.add_parser("page", help="make the table and the picture again")
    helps = {
        "prepare": "write the store, with the clock stopped",
        "run": "train an entry with the clock running, then score its checkpoints",
        "score": "score the checkpoints of finished runs that have no score",
        "add": "add finished runs to the table of docs/speedrun.md",
    }
    for name, text in helps.items():
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("--folder", type=pathlib.Path, default=FOLDER, help="of store and runs")
        if name == "prepare":
            verb.add_argument("--corpora", type=pathlib.Path, default=CORPORA)
        if name in ("score", "add"):
            verb.add_argument(
                "names", nargs="+", metavar="RUN", help="folder of a run, below FOLDER"
            )
        if name == "run":
            verb.add_argument("entry", choices=[*ENTRIES, TRAINER])
            verb.add_argument("--seed", type=int_at_least(0), default=0)
            verb.add_argument("--steps", type=int_at_least(2), help="default: the entry's")
            verb.add_argument("--every", type=int_at_least(1), help="steps between checkpoints")
            verb.add_argument("--name", help="of the run's folder; default: ENTRY_STEPS_SEED")
            verb.add_argument("overrides", nargs="*", metavar="key=value", help="of all stages")
    return parser


def print_outcome(folder: pathlib.Path, scores: list[list[float]]) -> None:
    """Print where a run reached the target, or how far it came."""
    if crossing := find_crossing(scores):
        at = f"{format_minutes(crossing.seconds)} at step {crossing.step:,}"
        print(f"{folder.name}: {TARGET:.1%} after {at}")
    else:
        print(f"{folder.name}: at most {max(row[2] for row in scores):.2%}")


def run_verb(args: argparse.Namespace) -> None:
    """Run a verb that needs the folder."""
    folder = args.folder.absolute()
    store = folder / "store"
    if args.verb == "prepare":
        prepare_store(args.corpora, folder)
    elif args.verb == "run":
        attempt = Attempt(
            args.entry, args.seed, args.steps or 0, args.every or 0, tuple(args.overrides)
        ).with_lengths()
        name = args.name or f"{attempt.entry}_{attempt.steps}_{attempt.seed}"
        run_race(attempt, store, folder / name)
        print_outcome(folder / name, score_run(folder / name, store))
    else:
        for path in (folder / name for name in args.names):
            scores = score_run(path, store)
            print_outcome(path, scores)
            if args.verb == "add":
                print(add_log(read_race(path), scores, path.name))


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    if args.verb == "list":
        for name, entry in ENTRIES.items():
            print(f"{name}: {entry.title}, {entry.steps:,} steps")
        return
    if args.verb == "prepare":
        require_paths(parser, "--corpora", args.corpora / "books" / "train")
    with report_errors(parser):
        if args.verb != "page":
            run_verb(args)
    if args.verb in ("add", "page"):
        write_page()


if __name__ == "__main__":
    main()
