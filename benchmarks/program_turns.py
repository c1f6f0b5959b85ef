"""Run a program in turns and read the held-out losses that it writes."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from benchmarks.harness import ROOT

# (seconds of the program's own clock, step, loss)
HeldoutLoss = tuple[float, int, float]


class ProgramTurn:
    """A program that runs only in its turns.

    Attributes:
      clock: seconds that it has run.
      scores: its held-out losses so far.
      bytes_read: bytes of its file of losses that have been read.
    """

    def __init__(
        self,
        argv: Sequence[object],
        scores_path: pathlib.Path,
        score_key: str,
        environment: Mapping[str, str],
        log: pathlib.Path,
    ) -> None:
        """Start the program, stopped.

        Args:
          argv: its command.
          scores_path: the JSONL file to which it writes its losses.
          score_key: the key of the losses.
          environment: additional environment variables.
          log: file of its output.
        """
        self.scores_path, self.score_key, self.log = scores_path, score_key, log
        self.clock, self.bytes_read = 0.0, 0
        self.scores: list[HeldoutLoss] = []
        environment = {
            name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"
        } | dict(environment)
        self.argv = [str(word) for word in argv]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                self.argv, cwd=ROOT, env=environment, stdout=file, stderr=file
            )
        self.process.send_signal(signal.SIGSTOP)

    def run_slice(self, seconds: float) -> bool:
        """Run for a number of seconds and return whether the program still runs.

        Raises:
          RuntimeError: if it has failed.
        """
        self.process.send_signal(signal.SIGCONT)
        start = time.monotonic()
        while (spent := time.monotonic() - start) < seconds and self.process.poll() is None:
            self.read_scores(self.clock + spent)
            time.sleep(0.05)
        self.clock += time.monotonic() - start
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
        elif self.process.returncode:
            raise RuntimeError(
                f"{self.argv[:4]} ended with status {self.process.returncode}:\n"
                f"{self.log.read_text()[-2000:]}"
            )
        self.read_scores(self.clock)
        return self.process.poll() is None

    def read_scores(self, now: float) -> None:
        """Read the losses that have been written since the last call.

        Args:
          now: seconds of the program's clock.
        """
        if not self.scores_path.exists():
            return
        with self.scores_path.open() as file:
            file.seek(self.bytes_read)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self.bytes_read += len(text.encode())
        rows = [json.loads(line) for line in text.splitlines()]
        self.scores += [
            (now, row["step"], row[self.score_key]) for row in rows if self.score_key in row
        ]

    def end_process(self) -> None:
        """Kill the program."""
        self.process.kill()
        self.process.wait()


def run_to_end(argv: Sequence[object], environment: Mapping[str, str] | None = None) -> None:
    """Run a command with additional environment variables.

    Raises:
      RuntimeError: if it has failed, with the end of its output.
    """
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{done.args[:5]} ended with {done.returncode}:\n{done.stdout[-2000:]}")


def read_heldout_loss(workdir: pathlib.Path) -> float:
    """Return the last held-out loss of a pretraining, in nats."""
    from pretrain.workdir.metrics_file import read_metrics

    rows = read_metrics(workdir / "metrics.jsonl")
    return [row["heldout_loss"] for row in rows if "heldout_loss" in row][-1]


def exit_by_signal(number: int, frame: object) -> NoReturn:
    """Raise SystemExit, so that what is to be done at the end is done; a signal's handler."""
    raise SystemExit(128 + number)


def take_turns(
    starts: Mapping[str, Callable[[], ProgramTurn]], limit: float, seconds: float
) -> dict[str, list[HeldoutLoss]]:
    """Start the programs and run them in turns, each until its own clock has reached `limit`.

    Args:
      starts: {name: function that starts the program}.
      limit: seconds of each program's clock.
      seconds: of a turn.

    Returns:
      {name: its losses}.

    Raises:
      RuntimeError: a program has failed.
      SystemExit: a SIGTERM came.
    """
    turns: dict[str, ProgramTurn] = {}
    handler = signal.signal(signal.SIGTERM, exit_by_signal)
    try:
        for name, start in starts.items():
            turns[name] = start()
        running = dict(turns)
        while running:
            for name, turn in list(running.items()):
                is_running = turn.run_slice(min(seconds, limit - turn.clock))
                if not is_running or turn.clock >= limit - 0.1:
                    del running[name]
                    turn.end_process()
                print(
                    f"{name}: {turn.clock:.0f} s, {turn.scores[-1:]}", file=sys.stderr, flush=True
                )
    finally:
        for turn in turns.values():
            turn.end_process()
        signal.signal(signal.SIGTERM, handler)
    return {name: turn.scores for name, turn in turns.items()}
