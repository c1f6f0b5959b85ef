"""Which process keeps the others waiting: each reports what its loop waited for, through the coordinator and not through the devices.

All processes of a run have the same step time, for each step sums over all of them. They differ in what they wait for: a host whose
input or whose own work is slow finds its devices done, while all others stand still for theirs. So the slowest is the one that waits
least for the devices; where all wait nearly the whole step, no host is slow, and a slow chip would not show here.
"""

import contextlib
import json
import time

import jax

from pretrain.distributed import processes

EVERY = 10.0  # seconds between two reports: a few bytes a process, and no step waits for them


class StragglerMonitor:
    """Measures what this process waits for, and names the process that the others wait for. Of one process alone, nothing."""

    def __init__(self):
        self.client = processes.client() if jax.process_count() > 1 else None
        self.clock, self.steps, self.input, self.devices = time.monotonic(), 0, 0.0, 0.0
        self.input_seconds = 0.0  # what the loop waited for the newest batch
        self.device_seconds = 0.0  # what it waited for the devices since `end_step`

    def measure_input(self, batches):
        """Pass on the items of an iterable, and note in `input_seconds` how long the loop stood still for each.

        The devices are a step behind the loop: only what is longer than a step makes them wait as well.
        """
        batches = iter(batches)
        while True:
            began = time.perf_counter()
            batch = next(batches, None)
            self.input_seconds = time.perf_counter() - began
            if batch is None:
                return
            yield batch

    @contextlib.contextmanager
    def waiting_for_devices(self):
        """What happens within counts as waiting: for metrics, and for a step, which some platforms start only behind the one before."""
        began = time.perf_counter()
        yield
        self.device_seconds += time.perf_counter() - began

    def end_step(self, input_seconds):
        """End a step that waited so long for its batch; returns what `report` does."""
        device_seconds, self.device_seconds = self.device_seconds, 0.0
        return self.report(input_seconds, device_seconds)

    def report(self, input_seconds, device_seconds):
        """Note the seconds of one step; report them when it is time. Returns what the first process then adds to its metrics, else {}.

        input_seconds_max: what the process waited for its input that waited longest. device_seconds_min: what the process waited for the
        devices that waited least. slowest_host: the number of that one. What the others reported is at most EVERY seconds older.
        """
        self.steps += 1
        self.input += input_seconds
        self.devices += device_seconds
        now = time.monotonic()
        if self.client is None or now < self.clock + EVERY:
            return {}
        mine = json.dumps([self.input / self.steps, self.devices / self.steps])
        self.clock, self.steps, self.input, self.devices = now, 0, 0.0, 0.0
        self.client.key_value_set(f"cloze/waits/{jax.process_index()}", mine, allow_overwrite=True)
        if jax.process_index():
            return {}
        reports = {
            int(key.rpartition("/")[2]): json.loads(value)
            for key, value in self.client.key_value_dir_get("cloze/waits/")
        }
        slowest = min(reports, key=lambda process: reports[process][1])
        return {
            "input_seconds_max": max(waited for waited, _ in reports.values()),
            "device_seconds_min": reports[slowest][1],
            "slowest_host": slowest,
        }
