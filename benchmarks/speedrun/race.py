"""Train an entry with a clock that runs from the start of its process.

The folder of a run has the workdir or the peer's checkpoints, the program's output, and at the end
`race.json`. A run that was interrupted has no such file, and none can continue it.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import pathlib
import platform
import resource
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.cached_results import write_result
from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    ROOT,
    format_command,
    get_processor_name,
)
from benchmarks.peer_environment import find_peers_python
from benchmarks.program_turns import ProgramTurn
from benchmarks.speed.time_to_loss import write_inputs
from benchmarks.speedrun.entries import (
    BASELINE,
    CHECKPOINTS,
    ENTRIES,
    LONG,
    ONE_LINE,
    TRAINER,
    list_words,
    split_steps,
)
from benchmarks.speedrun.heldout_rows import STORE, check_store, write_heldout_arrays
from data.store.reader import Store
from pretrain.workdir import goodput

CORES = 2
NAME = "race.json"


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A training that is asked for.

    Attributes:
      entry: name of `ENTRIES`, or `TRAINER`.
      steps: number of steps; 0: the entry's own.
      every: steps between two checkpoints; 0: a twentieth of all.
      overrides: of the entry, which then has them in its name.
    """

    entry: str
    seed: int = 0
    steps: int = 0
    every: int = 0
    overrides: tuple[str, ...] = ()

    def with_lengths(self) -> Attempt:
        """Return the attempt with its number of steps and its interval of checkpoints."""
        steps = self.steps or ENTRIES[self.recipe].steps
        every = self.every or max(1, steps // CHECKPOINTS)
        return dataclasses.replace(self, steps=steps, every=every)

    @property
    def recipe(self) -> str:
        """The entry whose words it has; the Trainer has the baseline's."""
        return BASELINE if self.entry == TRAINER else self.entry

    @property
    def parameters(self) -> str:
        """Which parameters are scored."""
        return ENTRIES[self.recipe].parameters


def use_two_cores() -> list[int]:
    """Let this process and those that it starts run on two cores, and return their numbers.

    Raises ValueError where there are fewer.
    """
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    if len(cores) < CORES:
        raise ValueError(f"the speedrun needs {CORES} cores, and this process has {len(cores)}")
    os.sched_setaffinity(0, cores)
    return cores


def list_cloze_command(attempt: Attempt, store: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return the command that trains an entry."""
    entry = ENTRIES[attempt.entry]
    words = list_words(entry, store, attempt.steps, attempt.seed, attempt.every, attempt.overrides)
    train = [sys.executable, "-m", "pretrain", "train", words[0], "--workdir", folder / "workdir"]
    return [str(word) for word in (*train, *words[1:])]


def write_trainer_inputs(
    attempt: Attempt, store_path: pathlib.Path, folder: pathlib.Path
) -> list[str]:
    """Write what the Trainer reads, and return its command.

    It has the baseline's model, rates, rows and stages.
    """
    overrides = [f"data.store={store_path}", f"train.steps={attempt.steps}"]
    overrides += ["train.stop_at_step=0", *attempt.overrides]
    warmup = max(1, round(attempt.steps * ENTRIES[BASELINE].warmup))
    write_inputs(folder, store_path, [*overrides, f"optimizer.warmup_steps={warmup}"])
    write_heldout_arrays(Store.open(store_path), folder / "heldout.npz")
    lengths = [int(stage.words[0].partition("=")[2]) for stage in ONE_LINE]
    batches = [int(stage.words[2].partition("=")[2]) for stage in ONE_LINE]
    assert ONE_LINE[1].words[: len(LONG)] == LONG
    steps = split_steps(ENTRIES[BASELINE], attempt.steps)
    stages = [list(stage) for stage in zip(steps, lengths, batches, strict=True)]
    plan = {"stages": stages, "every": attempt.every, "seed": attempt.seed}
    (folder / "plan.json").write_text(json.dumps(plan))
    program = ROOT / "benchmarks" / "speedrun" / "speedrun_torch.py"
    return [str(word) for word in (find_peers_python(), program, "train", folder)]


def make_fresh_environment(folder: pathlib.Path) -> dict[str, str]:
    """Return the variables of a training that has nothing compiled or measured before it."""
    return MALLOC_ENVIRONMENT | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache" / "jax"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def list_marks(
    times: Sequence[tuple[float, int, float]], steps: int, every: int
) -> list[tuple[int, float]]:
    """Return (step, seconds) of the checkpoints, from (seconds, step, step) of all steps."""
    found = {step: seconds for seconds, step, _ in times}
    return [(step, found[step]) for step in sorted(found) if step % every == 0 or step == steps]


def run_race(attempt: Attempt, store_path: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """Train an entry and return what `race.json` has.

    Args:
      folder: of the run; it must be new.

    Raises:
      ValueError: the folder exists, or the store is another one.
      RuntimeError: the training has failed.
    """
    check_store(Store.open(store_path))
    attempt = attempt.with_lengths()
    if folder.exists():
        raise ValueError(
            f"{folder} exists: the clock of a run cannot be continued. Score it with `score`, or "
            "remove it, or name another with --name"
        )
    folder.mkdir(parents=True)
    cores = use_two_cores()
    if attempt.entry == TRAINER:
        argv, environment = write_trainer_inputs(attempt, store_path, folder), {}
        log = folder / "metrics.jsonl"
    else:
        argv = list_cloze_command(attempt, store_path, folder)
        environment = make_fresh_environment(folder)
        log = folder / "workdir" / "metrics.jsonl"
    load, before = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN)
    turn = ProgramTurn(argv, log, "step", environment, folder / "output.log")
    try:
        turn.run_slice(math.inf)
    finally:
        turn.end_process()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    race = {
        **dataclasses.asdict(attempt),
        "parameters": attempt.parameters,
        "date": str(datetime.date.today()),
        "command": format_command(),
        "training": [word.replace(str(ROOT), ".") for word in argv[1:]],
        "store": STORE,
        "processor": get_processor_name(),
        "cores": len(cores),
        "python": platform.python_version(),
        "load": [load, os.getloadavg()[0]],
        "seconds": turn.clock,
        "cpu_seconds": spent,
        "marks": list_marks(turn.scores, attempt.steps, attempt.every),
    }
    write_result(folder / NAME, race)
    return race


def read_race(folder: pathlib.Path) -> dict[str, Any]:
    """Return what `race.json` of a finished run has.

    Raises ValueError for a run that was interrupted or continued, so that its clock does not hold.
    """
    if not (folder / NAME).exists():
        raise ValueError(
            f"{folder} has no {NAME}: the run still trains, or it was interrupted and is no "
            "record. Run the entry again under another --name"
        )
    race = json.loads((folder / NAME).read_text())
    if race["store"] != STORE:
        raise ValueError(f"{folder} was trained on another store ({race['store'][:8]})")
    if race["entry"] != TRAINER:
        ledger = goodput.read_ledger(folder / "workdir" / goodput.NAME)
        starts = ledger["starts"] if ledger else 0
        if starts != 1:
            raise ValueError(
                f"{folder} was started {starts} times: only a run that was never interrupted is a "
                "record"
            )
    if not race["marks"] or race["marks"][-1][0] != race["steps"]:
        raise ValueError(f"{folder} ended before step {race['steps']:,}: it is no record")
    return race
