"""Run a program in turns and read the held-out losses that it writes."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness import ROOT

# (seconds of the program's own clock, step, loss)
Score = tuple[float, int, float]


class Turn:
    """A program that runs only in its turns.

    Attributes:
      clock: seconds that it has run.
      scores: its held-out losses so far.
      bytes_read: bytes of its file of losses that have been read.
    """

    def __init__(
        self,
        words: Sequence[object],
        page: pathlib.Path,
        key: str,
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
        self.page, self.key, self.log = page, key, log
        self.clock, self.read = 0.0, 0
        self.told: list[Score] = []
        environment = {
            name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"
        } | dict(environment)
        self.command = [str(word) for word in words]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdout=file, stderr=file
            )
        self.process.send_signal(signal.SIGSTOP)

    def go(self, seconds: float) -> bool:
        """Run for a number of seconds and return whether the program still runs.

        Raises:
          RuntimeError: if it has failed.
        """
        self.process.send_signal(signal.SIGCONT)
        start = time.monotonic()
        while (spent := time.monotonic() - start) < seconds and self.process.poll() is None:
            self.look(self.clock + spent)
            time.sleep(0.05)
        self.clock += time.monotonic() - start
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
        elif self.process.returncode:
            raise RuntimeError(
                f"{self.command[:4]} ended with status {self.process.returncode}:\n"
                f"{self.log.read_text()[-2000:]}"
            )
        self.look(self.clock)
        return self.process.poll() is None

    def look(self, now: float) -> None:
        """Read the losses that have been written since the last call.

        Args:
          now: seconds of the program's clock.
        """
        if not self.page.exists():
            return
        with self.page.open() as file:
            file.seek(self.read)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self.read += len(text.encode())
        rows = [json.loads(line) for line in text.splitlines()]
        self.told += [(now, row["step"], row[self.key]) for row in rows if self.key in row]

    def end(self) -> None:
        """Kill the program."""
        self.process.kill()
        self.process.wait()
