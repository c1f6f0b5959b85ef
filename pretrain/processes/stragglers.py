"""Find the process that keeps the others waiting, by reports through the coordinator.

All processes of a run have the same step time, since each step sums over all of them. They differ
in what they wait for: a host with slow input or slow work of its own finds its devices finished,
while all others wait for theirs. So the slowest process is the one that waits least for the
devices. If all processes wait for almost the whole step, no host is slow; this does not find a slow
chip.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import jax

from pretrain.processes import processes

# Seconds between two reports: a few bytes per process, and no step waits for them.
REPORT_INTERVAL = 10.0


class StragglerMonitor:
    """Measures what this process waits for, and names the process that the others wait for.

    A single process reports nothing.
    """

    def __init__(self) -> None:
        self.client = processes.get_client() if jax.process_count() > 1 else None
        self.clock, self.steps, self.input, self.devices = time.monotonic(), 0, 0.0, 0.0
        self.input_seconds = 0.0
        self.device_seconds = 0.0

    @contextlib.contextmanager
    def measure_input(self) -> Iterator[None]:
        """Record in `input_seconds` how long this context, which fetches a batch, takes.

        The devices lag the loop by one step: they wait only if a batch takes more than a step.
        """
        began = time.perf_counter()
        yield
        self.input_seconds = time.perf_counter() - began

    @contextlib.contextmanager
    def measure_device_wait(self) -> Iterator[None]:
        """Count the time in this context as waiting for the devices.

        It surrounds the fetching of metrics, and the start of a step, which some platforms delay
        until the previous step is finished.
        """
        began = time.perf_counter()
        yield
        self.device_seconds += time.perf_counter() - began

    def end_step(self, input_seconds: float) -> dict[str, float]:
        """End a step that waited `input_seconds` for its batch; return `report_waits`'s result."""
        device_seconds, self.device_seconds = self.device_seconds, 0.0
        return self.report_waits(input_seconds, device_seconds)

    def report_waits(self, input_seconds: float, device_seconds: float) -> dict[str, float]:
        """Count the waits of one step, and report their means every REPORT_INTERVAL seconds.

        Returns:
          Metrics in the first process when it reports, else {}. `input_seconds_max` is the longest
          wait for input of any process, `device_seconds_min` the shortest wait for the devices, and
          `slowest_host` the index of the process with the latter. The reports of other processes
          are at most REPORT_INTERVAL seconds older.
        """
        self.steps += 1
        self.input += input_seconds
        self.devices += device_seconds
        now = time.monotonic()
        if self.client is None or now < self.clock + REPORT_INTERVAL:
            return {}
        own_report = json.dumps([self.input / self.steps, self.devices / self.steps])
        self.clock, self.steps, self.input, self.devices = now, 0, 0.0, 0.0
        self.client.key_value_set(
            f"cloze/waits/{jax.process_index()}", own_report, allow_overwrite=True
        )
        if jax.process_index():
            return {}
        reports = {
            int(key.rpartition("/")[2]): json.loads(value)
            for key, value in self.client.key_value_dir_get("cloze/waits/")
        }
        slowest = min(reports, key=lambda process: reports[process][1])
        return {
            "input_seconds_max": max(input_wait for input_wait, _ in reports.values()),
            "device_seconds_min": reports[slowest][1],
            "slowest_host": slowest,
        }
