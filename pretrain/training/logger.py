"""Metrics and progress of a run, one step late, so that the devices never wait for the host."""

import time
from typing import Any

import jax

from pretrain.training import flops
from pretrain.workdir import environment_file
from pretrain.workdir.metrics_file import MetricsLog, ProgressLine


class Log:
    """A row of metrics for each step, and lines of text. A context manager. All processes fetch metrics, the first writes them.

    The row of a step is written when the next step has been started: `log_step` returns it then. `wait` returns it earlier.
    """

    def __init__(self, run, workdir, mesh, start, stragglers, lease):
        """stragglers: a `StragglerMonitor`, which measures what the loop waits for; lease: of the workdir."""
        self.first = jax.process_index() == 0
        self.pending = None  # (step, its metrics on the devices, seconds that it waited for input)
        self.row: dict[str, Any] | None = None  # of a step that is done, not yet written
        self.stragglers, self.lease, self.note = stragglers, lease, {}
        if self.first:
            device = mesh.devices.flat[0]
            peak = flops.peak(device, run.train.compute_dtype)
            many = (
                1 if device.platform == "cpu" else mesh.size
            )  # CPU devices share the cores of one host
            self.file = MetricsLog(workdir, start)
            needed, peak = flops.of_step(run), peak and peak * many
            self.progress = ProgressLine(start, run.train.end, needed, peak)
            environment_file.note(workdir, start, mesh, jax.process_count(), needed, peak)
        self.clock = time.perf_counter()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.write_row()
        if self.first:
            self.progress.close()
            self.file.close(sync=self.lease.is_held())

    def say(self, text):
        if self.first:
            self.progress.say(text)

    def log_step(self, step, metrics):
        """Note a step that has been started. Returns the row of the one before it, which is written, or None."""
        row = self.write_row()
        self.pending = (step, metrics, self.stragglers.input_seconds)
        return row

    def log_scores(self, scores):
        """Write the scores of an evaluation into the row of the step just started, but its time into no step's."""
        assert (
            self.row is not None
        )  # that of the step just started: `wait` comes before an evaluation
        self.row |= {f"heldout_{name}": value for name, value in scores.items()}
        shown = ", ".join(f"{name} {value:.4g}" for name, value in list_headlines(scores))
        self.say(f"step {self.row['step']:,}, held out: {shown}")
        self.write_row()
        self.clock = time.perf_counter()

    def wait(self):
        """Wait until the step just started is done. Returns its row, or None where that is known already."""
        if self.pending is None:
            return None
        step, metrics, input_seconds = self.pending
        with self.stragglers.waiting_for_devices():
            values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        now = time.perf_counter()
        seconds, self.clock, self.pending = now - self.clock, now, None
        self.row = {
            "step": step,
            **values,
            "seconds": seconds,
            "input_seconds": input_seconds,
            "tokens_per_second": values["tokens"] / seconds,
        }
        self.row |= self.stragglers.end_step(input_seconds) | self.note
        self.note = {}
        if values["skipped"]:
            self.say(
                f"step {step:,} skipped: loss {values['loss']:.4g}, gradient norm {values['gradient_norm']:.4g}"
            )
        return self.row

    def write_row(self):
        """Write the row that is not written yet. Returns it where `wait` has not returned it before, else None."""
        row = self.wait()
        if self.row and self.first:
            self.lease.check()
            self.file.write(self.row)
            self.progress.show(self.row)
        self.row = None
        return row

    def forget_step(self, **note):
        """Throw away the step just started, where it is not done; note: goes into the row of the next one."""
        self.pending, self.note = None, note

    def sync(self):
        """Make every row up to the step just started durable. Returns its row, or None where that is known already."""
        row = self.write_row()
        if self.first:
            self.lease.check()
            self.file.sync()
        return row


def list_headlines(scores):
    """Return [(name, value)] of the scores that a person is shown: of the parts of a mixture, the losses alone."""
    parts = {name.removesuffix("/rows") for name in scores if name.endswith("/rows")} - {"loss"}
    return [
        (name, value)
        for name, value in scores.items()
        if name.partition("/")[0] not in parts or name.removesuffix("/loss") in parts
    ]
