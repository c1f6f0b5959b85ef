"""What the training loop tells of each step, without making the devices wait."""

import time
from typing import Any

import jax

from pretrain.distributed.stragglers import Waits
from pretrain.training import flops
from pretrain.workdir import environment_file
from pretrain.workdir.metrics_file import MetricsLog, ProgressLine


class Log:
    """Metrics and progress of the first process, one step late, so that the devices never wait for the host."""

    def __init__(self, run, workdir, mesh, start, guard, ledger, lease):
        """guard: a `guard.Guard`, which is shown each step; ledger: a `goodput.Ledger`, which is told what the loop does; lease: of the workdir."""
        self.first = jax.process_index() == 0
        self.pending = None
        self.row: dict[str, Any] | None = None
        self.guard, self.ledger, self.lease, self.noted = guard, ledger, lease, {}
        self.others, self.waited, self.devices = Waits(), 0.0, 0.0
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
        self.clock = self.given = time.perf_counter()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.finish()
        if self.first:
            self.progress.close()
            self.file.close(sync=self.lease.is_held())

    def say(self, text):
        if self.first:
            self.progress.say(text)

    def waits(self, source):
        """Pass on what a source gives, and note as `input_seconds` how long the loop stood still for it.

        The devices are a step behind the loop: only what is longer than a step makes them wait as well.
        """
        source = iter(source)
        while True:
            began = time.perf_counter()
            self.ledger.to("data")
            item = next(source, None)
            self.ledger.to("step")
            self.given = time.perf_counter()
            self.waited = self.given - began
            if item is None:
                return
            yield item

    def step(self, step, metrics):
        """Note a step that has been started; the row of the one before it is written."""
        self.devices += (
            time.perf_counter() - self.given
        )  # some platforms start a step only when the one before is done
        self.finish()
        self.pending = (step, metrics, self.waited)

    def scores(self, evaluate, *args):
        """Evaluate, in the row of the step just started but not in its time; returns the scores."""
        self.measure()
        with self.ledger.during("evaluate"):
            scores = evaluate(*args, begin=lambda: self.ledger.to("evaluate"))
        assert self.row is not None  # that of the step just started
        self.row |= {f"heldout_{name}": value for name, value in scores.items()}
        self.say(
            f"step {self.row['step']:,}, held out: "
            + ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        )
        self.finish()
        self.clock = time.perf_counter()
        return scores

    def measure(self):
        """Wait until the pending step is done, and make its row."""
        if self.pending:
            step, metrics, waited = self.pending
            began = time.perf_counter()
            values = {name: float(value) for name, value in jax.device_get(metrics).items()}
            now = time.perf_counter()
            seconds, self.clock, self.pending = now - self.clock, now, None
            self.row = {
                "step": step,
                **values,
                "seconds": seconds,
                "input_seconds": waited,
                "tokens_per_second": values["tokens"] / seconds,
            }
            self.row |= self.others.step(waited, self.devices + now - began) | self.noted
            self.devices, self.noted = 0.0, {}
            self.guard.see(step, bool(values["skipped"]))
            if values["skipped"]:
                self.say(
                    f"step {step:,} skipped: loss {values['loss']:.4g}, gradient norm {values['gradient_norm']:.4g}"
                )

    def finish(self):
        """Write the row that is not written yet."""
        self.measure()
        if self.row and self.first:
            self.lease.check()
            self.file.write(self.row)
            self.progress.show(self.row)
        self.row = None

    def forget(self, **note):
        """A step of which no row is written yet is thrown away; note: goes into the row of the next one."""
        self.pending, self.noted = None, note

    def sync(self):
        """Make every row up to the step just started durable."""
        self.finish()
        if self.first:
            self.lease.check()
            self.file.sync()
