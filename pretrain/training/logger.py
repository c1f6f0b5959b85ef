"""Metrics and progress of a run, written one step late so that devices never wait for the host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import jax
from etils import epath

from pretrain.config import Run
from pretrain.host.lost_output import note_error, note_losses
from pretrain.phases import find_phase, resolve_phases
from pretrain.processes.stragglers import StragglerMonitor
from pretrain.training import flops
from pretrain.training.monitoring.options import UNWATCHED, Monitoring
from pretrain.training.monitoring.sinks import MetricsSink, open_sinks
from pretrain.workdir import environment_file
from pretrain.workdir.leases.lease import Lease
from pretrain.workdir.metrics_file import MetricsLog, ProgressLine


class RunLog:
    """A row of metrics for each step, and lines of text. A context manager.

    All processes fetch metrics from the devices; the first one writes them. The row of a step is
    written, and returned by `log_step`, after the next step has started. `wait_for_step` returns it
    earlier.

    Attributes:
      is_first_process: whether this is the first process.
      pending: (step, its metrics on the devices, seconds waited for its batch) of a started step.
      row: metrics of a finished step that is not written yet.
      sinks: what else receives each row, in the first process.
      signal: the number of the signal that ended the run early, or None.
    """

    def __init__(
        self,
        run: Run,
        workdir: epath.PathLike,
        mesh: jax.sharding.Mesh,
        start: int,
        stragglers: StragglerMonitor,
        lease: Lease,
        monitoring: Monitoring = UNWATCHED,
    ) -> None:
        """Open the metrics file of a run that continues after step `start`."""
        self.is_first_process = jax.process_index() == 0
        self.pending: tuple[int, dict[str, jax.Array], float] | None = None
        self.row: dict[str, Any] | None = None
        self.stragglers, self.lease, self.note = stragglers, lease, {}
        self.sinks: list[MetricsSink] = []
        self.signal: int | None = None
        self.workdir, self.step, self.num_losses = workdir, start, 0
        if self.is_first_process:
            device = mesh.devices.flat[0]
            self.phases = resolve_phases(run)
            counts = flops.count_phase_flops([phase.run for phase in self.phases])
            self.flops = [count.all_pairs for count in counts]
            flops_per_step = self.flops[self.phases.index(find_phase(self.phases, start))]
            device_peak = flops.get_peak_flops(device, run.train.compute_dtype)
            # CPU devices share the cores of one host.
            num_devices = 1 if device.platform == "cpu" else mesh.size
            peak = device_peak and device_peak * num_devices
            self.file = MetricsLog(workdir, start)
            unit = run.data.objective.unit
            # The peak of a CPU is a short measurement: `report` shows it, the line does not.
            shown_peak = None if device.platform == "cpu" else peak
            self.progress = ProgressLine(
                start, run.train.last_step, flops_per_step, shown_peak, unit=unit
            )
            environment_file.add_start(
                workdir, start, mesh, jax.process_count(), flops_per_step, peak
            )
            if len(self.phases) > 1:
                self.record_start(phases=self.describe_phases())
            self.sinks = open_sinks(monitoring, run, workdir, self.log_message)
        self.clock = time.perf_counter()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.write_row()
                self.note_losses()
            elif error is not None and self.num_losses and self.lease.is_held():
                with contextlib.suppress(OSError):  # the run's own error goes on
                    note_error(self.workdir, jax.process_index(), self.step, error)
        finally:
            state = "failed" if kind else "preempted" if self.signal else "finished"
            for sink in self.sinks:
                sink.close(state)
            if self.is_first_process:
                self.progress.close()
                self.file.close(sync=self.lease.is_held())

    def describe_phases(self) -> list[dict[str, Any]]:
        """Return name, last step and FLOPs of a step of each phase or stair."""
        return [
            {"name": phase.name, "stop": phase.stop, "flops_per_step": own}
            for phase, own in zip(self.phases, self.flops)
        ]

    def note_phase(self, row: dict[str, Any]) -> None:
        """Add its phase to a row of a run with phases, and count FLOPs as it has them."""
        phase = find_phase(self.phases, row["step"] - 1)
        self.progress.flops = self.flops[self.phases.index(phase)]
        if phase.name:
            row["phase"] = phase.name

    def log_message(self, text: str) -> None:
        """Print lines of text, in the first process."""
        if self.is_first_process:
            self.progress.print_line(text)

    def record_start(self, **facts: Any) -> None:
        """Add facts to this start's line of the environment file, in the first process."""
        if self.is_first_process:
            self.lease.check_held()
            environment_file.extend_start(self.workdir, **facts)

    def log_step(self, step: int, metrics: dict[str, jax.Array]) -> dict[str, Any] | None:
        """Record a started step, and write and return the row of the previous step, if any."""
        row = self.write_row()
        self.pending = (step, metrics, self.stragglers.input_seconds)
        return row

    def leave_out_time(self, seconds: float) -> None:
        """Count the last `seconds` for no step."""
        self.clock += seconds

    def log_scores(self, scores: Mapping[str, float]) -> None:
        """Write the scores of an evaluation into the row of the step just started.

        The time of the evaluation counts for no step.
        """
        assert self.row is not None  # `wait_for_step` is called before an evaluation.
        self.row |= {f"heldout_{name}": value for name, value in scores.items()}
        headlines = ", ".join(f"{name} {value:.4g}" for name, value in list_headlines(scores))
        self.log_message(f"step {self.row['step']:,}, held out: {headlines}")
        self.write_row()
        self.clock = time.perf_counter()

    def wait_for_step(self) -> dict[str, Any] | None:
        """Wait for the step just started and return its row, or None if it was returned before."""
        if self.pending is None:
            return None
        step, metrics, input_seconds = self.pending
        with self.stragglers.measure_device_wait():
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
            self.log_message(
                f"step {step:,} skipped: loss {values['loss']:.4g}, "
                f"gradient norm {values['gradient_norm']:.4g}"
            )
        return self.row

    def write_row(self) -> dict[str, Any] | None:
        """Write the row that is not written yet; return it unless `wait_for_step` has done so."""
        row = self.wait_for_step()
        if self.row and self.is_first_process:
            self.lease.check_held()
            self.note_phase(self.row)
            self.file.write_row(self.row)
            self.progress.show_row(self.row)
            for sink in self.sinks:
                sink.write_row(self.row)
        self.step = self.row["step"] if self.row else self.step
        self.row = None
        self.note_losses()
        return row

    def note_losses(self) -> None:
        """Note in the workdir which streams this process has lost since the last call."""
        arguments = jax.process_index(), self.step, self.num_losses
        self.num_losses = note_losses(self.workdir, *arguments)

    def forget_step(self, **note: Any) -> None:
        """Discard the step just started if it is not finished; add `note` to the next row."""
        self.pending, self.note = None, note

    def sync_rows(self) -> dict[str, Any] | None:
        """Make every row up to the step just started durable.

        Returns:
          The row of that step, or None if it was returned before.
        """
        row = self.write_row()
        if self.is_first_process:
            self.lease.check_held()
            self.file.sync()
        return row


def list_headlines(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return (name, score) pairs to print: all scores, but of the parts of a mixture the losses."""
    parts = {name.removesuffix("/rows") for name in scores if name.endswith("/rows")} - {"loss"}
    return [
        (name, value)
        for name, value in scores.items()
        if name.partition("/")[0] not in parts or name.removesuffix("/loss") in parts
    ]
