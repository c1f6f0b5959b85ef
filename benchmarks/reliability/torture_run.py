"""One run and what befalls it: starts, signals, a small disk, damaged files, a second writer."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.harness import ROOT
from benchmarks.reliability import torture_schedule as plan
from tests import forks

FAULTY = ROOT / "tests" / "faults" / "faulty.py"
DISK_SIZE = "64m"
LEASE_SECONDS = "0.3,3"  # between renewals, and until another machine takes over
TOO_LONG = 240.0  # seconds, after which a start counts as hung


class Failed(Exception):
    """A run did what it must not do."""


@contextlib.contextmanager
def mount_disk(folder: pathlib.Path, size: str = DISK_SIZE) -> Iterator[pathlib.Path]:
    """Mount a disk on a new folder; raise PermissionError where that is not allowed."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise PermissionError(f"a disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily: threads of a killed process may hold a file open for a moment.
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_disk(disk: pathlib.Path, free_bytes: int = 50_000) -> None:
    """Fill a disk with the file `ballast`, but for so many bytes."""
    free = os.statvfs(disk)
    size = max(0, free.f_bavail * free.f_frsize - free_bytes)
    with contextlib.suppress(OSError), open(disk / "ballast", "wb") as file:
        file.write(bytes(size))  # the run itself may take the last bytes first


def find_newest(workdir: pathlib.Path) -> int:
    """Return the newest committed step of a workdir, by its folder's name; 0 without one."""
    return max(list_steps(workdir), default=0)


def list_steps(workdir: pathlib.Path) -> list[int]:
    """Return the committed steps of a workdir, ascending."""
    folder = workdir / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())


class TorturedRun:
    """A run of a configuration on a disk of its own.

    Attributes:
      workdir: of the run.
      history: a line for each fault: what it was and what came of it.
      num_starts: number of processes that were started.
      counts: {kind: how often it befell the run}.
      store: replaces the configuration's, and may be damaged.
      clock, clock_shift: file of the clock's offset (torture_clock.py), and its seconds.
      pace: seconds that an undisturbed run takes here.
      lost_steps: steps whose lines in metrics.jsonl were damaged between starts.
      processes: all that were started.
    """

    def __init__(self, config: pathlib.Path, disk: pathlib.Path, notes: pathlib.Path) -> None:
        """Describe the run; `notes` is a folder for the outputs and the record of rows."""
        notes.mkdir(parents=True, exist_ok=True)
        self.config, self.disk, self.notes = config, disk, notes
        self.workdir, self.rows_file = disk / "run", notes / "rows.jsonl"
        self.store: pathlib.Path | None = None
        self.clock: pathlib.Path | None = None
        self.clock_shift = 0
        self.history: list[str] = []
        self.counts: dict[str, int] = {}
        self.num_starts, self.pace = 0, 8.0
        self.lost_steps: set[int] = set()
        self.is_newest_damaged = False
        self.processes: list[subprocess.Popen[str]] = []

    # ---- starts --------------------------------------------------------------

    def start_process(
        self, fault: str = "none", devices: int = plan.DEVICES, batch_size: int = plan.BATCH_SIZE,
        **environment: str,
    ) -> subprocess.Popen[str]:  # fmt: skip
        """Start `train`, with a fault of tests/faults/faulty.py in it; output goes to a file."""
        self.num_starts += 1
        words = [
            *("train", str(self.config), "--workdir", str(self.workdir), "--allow-changes"),
            *(f"train.steps={plan.STEPS}", f"checkpoint.every={plan.SAVE_EVERY}"),
            *(f"checkpoint.keep={plan.KEEP}", f"evaluate.every={plan.EVALUATE_EVERY}"),
            "evaluate.samples=2",
            *(f"data.batch_size={batch_size}", *plan.LIMITS),
            *([f"data.store={self.store}"] if self.store else []),
        ]
        set_here = {
            "JAX_NUM_CPU_DEVICES": str(devices),
            "FAULTY_ROWS": str(self.rows_file),
            "FAULTY_PLACE": str(self.disk),
            "FAULTY_LEASE": LEASE_SECONDS,
        }
        with open(self.notes / f"start{self.num_starts}.txt", "w") as output:
            process = forks.Popen(
                [sys.executable, str(FAULTY), fault, *words],
                cwd=ROOT,
                env=os.environ | set_here | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.processes.append(process)
        process.output = pathlib.Path(output.name)  # pyright: ignore[reportAttributeAccessIssue] - for `await_end`
        return process

    def await_end(self, process: subprocess.Popen[str], kind: str) -> int:
        """Wait until a process has ended; raise Failed where it ends as its fault does not allow.

        Returns:
          Its status.
        """
        status = wait_or_kill(process, f"{kind}: a start")
        output = process.output  # pyright: ignore[reportAttributeAccessIssue] - `start_process` has set it
        problem = plan.judge_ending(kind, status, output.read_text(), self.is_finished)
        if problem:
            raise Failed(f"{kind}: {problem}; its output: {output}")
        return status

    @property
    def is_finished(self) -> bool:
        """Whether the last step is saved."""
        return find_newest(self.workdir) == plan.STEPS

    def finish_run(self, devices: int, batch_size: int) -> None:
        """Train undisturbed to the last step; raise Failed where that does not succeed."""
        began = time.monotonic()
        process = self.start_process("none", devices, batch_size)
        if status := wait_or_kill(process, "the undisturbed last start"):
            raise Failed(
                f"the undisturbed last start ended with {status}: {self.notes}/"
                f"start{self.num_starts}.txt"
            )
        if not self.is_finished:
            raise Failed("the undisturbed last start did not save the last step")
        self.pace = time.monotonic() - began

    def end_processes(self) -> None:
        """Kill the processes that still run."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def wait_or_kill(process: subprocess.Popen[str], name: str) -> int:
    """Return the status of a process; kill it and raise Failed where it takes `TOO_LONG`."""
    try:
        return process.wait(TOO_LONG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Failed(f"{name} did not end within {TOO_LONG:g} s") from None


def wait_at_most(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait until a process has ended, but not longer than that."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
