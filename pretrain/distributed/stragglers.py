"""Which process keeps the others waiting: each tells what its loop waited for, through the coordinator and not through the devices.

All processes of a run have the same step time, for each step sums over all of them. They differ in what they wait for: a host whose
input or whose own work is slow finds its devices done, while all others stand still for theirs. So the slowest is the one that waits
least for the devices; where all wait nearly the whole step, no host is slow, and a slow chip would not show here.
"""

import json
import time

import jax

from pretrain.distributed import processes

EVERY = 10.0  # seconds between two tellings: a few bytes a process, and no step waits for them


class Waits:
    """Means over the steps since a process last told. Of one process alone, nothing."""

    def __init__(self):
        self.client = processes.client() if jax.process_count() > 1 else None
        self.clock, self.steps, self.input, self.devices = time.monotonic(), 0, 0.0, 0.0

    def step(self, for_input, for_devices):
        """Note the seconds of one step; tell them when it is time. Returns what the first process then adds to its metrics, else {}.

        input_seconds_max: what the process waited for its input that waited longest. device_seconds_min: what the process waited for the
        devices that waited least. slowest_host: the number of that one. What the others told is at most EVERY seconds older.
        """
        self.steps, self.input, self.devices = (
            self.steps + 1,
            self.input + for_input,
            self.devices + for_devices,
        )
        now = time.monotonic()
        if self.client is None or now < self.clock + EVERY:
            return {}
        mine = json.dumps([self.input / self.steps, self.devices / self.steps])
        self.clock, self.steps, self.input, self.devices = now, 0, 0.0, 0.0
        self.client.key_value_set(f"cloze/waits/{jax.process_index()}", mine, allow_overwrite=True)
        if jax.process_index():
            return {}
        told = {
            int(key.rpartition("/")[2]): json.loads(value)
            for key, value in self.client.key_value_dir_get("cloze/waits/")
        }
        slowest = min(told, key=lambda process: told[process][1])
        return {
            "input_seconds_max": max(waited for waited, _ in told.values()),
            "device_seconds_min": told[slowest][1],
            "slowest_host": slowest,
        }
