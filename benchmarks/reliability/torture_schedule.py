"""Random schedules of faults, as a function of a seed: what befalls a run, when, and where.

`torture_run` carries them out; tests/faults/test_soak.py uses the same code for the ten faults of
the reliability board.
"""

from __future__ import annotations

import dataclasses
import random
import signal

from pretrain.processes.watchdog import HUNG

STEPS, SAVE_EVERY, EVALUATE_EVERY, KEEP = 96, 4, 8, 3
BATCH_SIZE, DEVICES = 8, 2
LIMITS = ("watchdog.step=12", "watchdog.data=12", "watchdog.save=12")

# Faults inside the process, by tests/faults/faulty.py. kind: (the moments in which it comes, the
# status with which the process then ends)
INSIDE: dict[str, tuple[tuple[str, ...], int]] = {
    "kill": (
        ("compile", "data", "step", "evaluate", "save", "finish", "delete", "saved"),
        -signal.SIGKILL,
    ),
    "term": (
        ("compile", "data", "step", "evaluate", "save", "finish", "delete"),
        128 + signal.SIGTERM,
    ),
    "twice": (("step", "finish"), 128 + signal.SIGTERM),
    "hang": (("data", "step", "save", "finish"), HUNG),
    "full": (("saved",), 2),
}
AT_A_SAVE = ("save", "finish", "delete", "saved")

ENDINGS = {
    "kill": (-signal.SIGKILL,),
    # The signal's own action until the handler is installed.
    "term": (128 + signal.SIGTERM, -signal.SIGTERM),
    # KeyboardInterrupt ends Python with 1 or the signal while modules are imported.
    "int": (128 + signal.SIGINT, -signal.SIGINT, 1),
}
# Faults from outside, `Fault.share` of a run after the start. kind: (what a reader of the
# results must know, the statuses with which a process may end, besides 0 after the last step)
OUTSIDE: dict[str, tuple[str, tuple[int, ...]]] = {
    "SIGKILL": ("at a random moment", ENDINGS["kill"]),
    "SIGTERM": ("at a random moment", ENDINGS["term"]),
    "SIGINT": ("at a random moment", ENDINGS["int"]),
    "SIGSTOP": ("then SIGCONT, then SIGTERM", ENDINGS["term"]),
    "disk filled": ("at a random moment, to the last bytes", (2,)),
    "folder made read-only": ("workdir or checkpoints/, at a random moment", (2,)),
    "disk read-only": ("before the start", (2,)),
    "lease overwritten": ("at a random moment", (2,)),
    "clock set back": (
        "at a random moment, by 90 s to 30 days, and set right by the next; then SIGKILL",
        ENDINGS["kill"],
    ),
    "two writers": ("at once, or the second later; SIGKILL for the first", (2, -signal.SIGKILL)),
    "taken over": (
        "the holder is stopped until a run of another machine has its lease",
        (2, -signal.SIGKILL),
    ),
    "store damaged": ("a start, then the store is restored", (2, -signal.SIGKILL)),
    "workdir file damaged": (
        "configuration, vocabulary or ledger: a start, then it is restored",
        (2, -signal.SIGKILL),
    ),
}
# What the error line of a refused start must say one of.
EXPLAINED = {
    "full": ("No space left",),
    "disk filled": ("No space left",),
    "disk read-only": ("Read-only file system", "cannot be written"),
    "lease overwritten": ("lease of",),
    "two writers": ("is in use by",),
    "taken over": ("is in use by", "lease of"),
}
# Damage between two starts that the next start must cope with.
DAMAGES = ("checkpoint", "metrics.jsonl", "samples.jsonl", "lease")
# What else changes over a run: {name: (how often of 10, device counts, batch sizes)}.
CHANGES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "nothing": (4, (DEVICES,), (BATCH_SIZE,)),
    "devices": (3, (1, 2, 4), (BATCH_SIZE,)),
    "devices and batch sizes": (3, (1, 2, 4), (4, 8, 16)),
}
MODELS = ("bert", "gpt", "t5")
NUM_FAULTS = 14


@dataclasses.dataclass(frozen=True)
class Fault:
    """What befalls one start of a run, or the files between two starts.

    Attributes:
      kind: a key of `INSIDE` or `OUTSIDE`, or one of `DAMAGES`.
      moment: of tests/faults/faulty.py, for a kind of `INSIDE`.
      ahead: the moment's step, counted from the newest checkpoint.
      share: of the time of an undisturbed run, after which a fault from outside comes.
      seed: decides the details, such as the damaged byte.
      devices, batch_size: of this start.
    """

    kind: str
    moment: str = ""
    ahead: int = 0
    share: float = 0.0
    seed: int = 0
    devices: int = DEVICES
    batch_size: int = BATCH_SIZE

    def __str__(self) -> str:
        where = f":{self.moment}+{self.ahead}" if self.moment else ""
        if self.kind in OUTSIDE:
            where = f"@{self.share:.0%}"
        change = f" on {self.devices}x{self.batch_size}" if self.kind not in DAMAGES else ""
        return f"{self.kind}{where}{change}"

    def locate_step(self, newest: int) -> int:
        """Return the step of the moment, after a checkpoint of step `newest`."""
        if self.moment == "evaluate":
            return (newest // EVALUATE_EVERY + 1) * EVALUATE_EVERY
        if self.moment in AT_A_SAVE:
            return (newest // SAVE_EVERY + 1) * SAVE_EVERY
        return newest + self.ahead


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The faults of one run, in order; `change` is a key of `CHANGES`."""

    seed: int
    model: str
    change: str
    faults: tuple[Fault, ...]


def draw_inside_fault(rng: random.Random, kind: str, **start: int) -> Fault:
    """Return a fault of `INSIDE` in one of its moments."""
    return Fault(kind, rng.choice(INSIDE[kind][0]), rng.randint(1, SAVE_EVERY), **start)


def draw_soak(seed: int) -> Schedule:
    """Return the reliability board's schedule: a stop, each fault of `INSIDE` once, a damaged
    checkpoint and three more.
    """
    rng = random.Random(f"soak {seed}")
    kinds = ["checkpoint", *INSIDE, *rng.choices(list(INSIDE), k=3)]
    rng.shuffle(kinds)
    # The first fault leaves two checkpoints, so that the newest may be damaged.
    faults = [Fault("term", "step", 2 * SAVE_EVERY + 1)]
    for kind in kinds:
        faults.append(
            draw_inside_fault(rng, kind)
            if kind in INSIDE
            else Fault(kind, seed=rng.randrange(1 << 30))
        )
    return Schedule(seed, "bert", "nothing", tuple(faults))


def draw_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed: a model, what changes between starts, and `NUM_FAULTS` faults.

    A third of the faults each are drawn from `INSIDE`, from `OUTSIDE`, and from the signals of
    `OUTSIDE` and `DAMAGES`.
    """
    rng = random.Random(f"torture {seed}")
    weights = [weight for weight, _, _ in CHANGES.values()]
    (change,) = rng.choices(list(CHANGES), weights)
    _, devices, batch_sizes = CHANGES[change]
    model, faults = rng.choice(MODELS), []
    for _ in range(NUM_FAULTS):
        start = {"devices": rng.choice(devices), "batch_size": rng.choice(batch_sizes)}
        groups = (
            list(INSIDE),
            list(OUTSIDE),
            [*DAMAGES, *(kind for kind in OUTSIDE if kind.startswith("SIG"))],
        )
        kind = rng.choice(rng.choice(groups))
        if kind in INSIDE:
            faults.append(draw_inside_fault(rng, kind, **start))
            continue
        share, details = round(rng.random() ** 1.5, 3), rng.randrange(1 << 30)
        faults.append(Fault(kind, share=share, seed=details, **start))
    return Schedule(seed, model, change, tuple(faults))


def list_statuses(kind: str) -> tuple[int, ...]:
    """Return the exit statuses that a fault allows, besides 0 after the last step."""
    return (INSIDE[kind][1],) if kind in INSIDE else OUTSIDE[kind][1]


def judge_ending(kind: str, status: int, errors: str, is_finished: bool) -> str:
    """Return what is wrong with the end of a process under a fault; "" if nothing is.

    Args:
      status: as of `subprocess.Popen.returncode`.
      errors: what it wrote to standard error.
      is_finished: whether the last step is saved.
    """
    if status == 0:
        return "" if is_finished else "status 0 before the last step is saved"
    if status not in list_statuses(kind):
        return f"status {status}; allowed: {', '.join(map(str, list_statuses(kind)))}"
    is_interrupted_import = kind == "SIGINT" and "KeyboardInterrupt" in errors
    if "Traceback (most recent call last)" in errors and not is_interrupted_import:
        return f"a traceback, status {status}"
    error_lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    if status == 2 and len(error_lines) != 1:
        return f"{len(error_lines)} error lines, status 2"
    words = EXPLAINED.get(kind, ("",))
    if status == 2 and not any(word in error_lines[0] for word in words):
        return f"the error line says none of {', '.join(words)}: {error_lines[0]}"
    return ""
