"""The metrics of a run: JSON rows, TensorBoard events, and a progress line for the terminal."""

import collections
import math
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from etils import epath

from data.corpus.json_lines import format_json_lines, replace_nonfinite
from data.store.atomic import name_in_disk_errors, write_atomically
from pretrain.host.terminal import erase_line, is_redrawable
from pretrain.workdir.event_file import open_events
from pretrain.workdir.step_lines import mend_step_lines, report_step_lines


class MetricsLog:
    """`metrics.jsonl`, with one row for each finished step, in order; and TensorBoard events.

    A log that is opened at step `start` drops later rows and a last line that a crash has cut,
    because those steps are repeated. Damaged lines are dropped, too (step_lines.py).
    """

    def __init__(self, workdir: epath.PathLike, start: int) -> None:
        self.path = epath.Path(workdir) / "metrics.jsonl"
        rows = mend_step_lines(self.path)
        lines = [format_json_lines([row]) for row in rows if row["step"] <= start]
        # Object stores cannot append. There the lines stay in memory, and each `sync` rewrites the
        # file.
        self.lines = lines if "://" in str(workdir) else None
        if self.lines is None:
            write_atomically(self.path, "".join(lines))
            self.file = open(os.fspath(self.path), "a", encoding="utf-8")  # noqa: SIM115 - open until `close`
        self.events = open_events(str(epath.Path(workdir) / "tensorboard"))
        # From the second such event on, TensorBoard discards its step and all later ones.
        self._add_event(start + 1, session_log=True)

    def write_row(self, row: Mapping[str, Any]) -> None:
        """Append one row with `step`; its numbers become TensorBoard scalars of the same names.

        Floats that are not finite are written as null.
        """
        finite: dict[str, Any] = replace_nonfinite(dict(row))
        line = format_json_lines([finite])
        if self.lines is not None:
            self.lines.append(line)
        else:
            with name_in_disk_errors(self.path):
                self.file.write(line)
                self.file.flush()
        self._add_event(
            finite["step"],
            {
                key: value
                for key, value in finite.items()
                if key not in ("step", "time") and isinstance(value, (int, float))
            },
        )

    def sync(self) -> None:
        """Make all rows durable; called when a checkpoint is saved."""
        if self.lines is not None:
            write_atomically(self.path, "".join(self.lines))
        else:
            with name_in_disk_errors(self.path):
                self.file.flush()
                os.fsync(self.file.fileno())
        self.events.flush()

    def close(self, sync: bool = True) -> None:
        """Close the files, after `sync` unless it is False."""
        if sync:
            self.sync()
        self.events.close()
        if self.lines is None:
            self.file.close()

    def _add_event(
        self, step: int, scalars: Mapping[str, float] | None = None, session_log: bool = False
    ) -> None:
        """Add an event of scalars, or of a start of the run at `step`."""
        from tensorboard.compat.proto import event_pb2, summary_pb2

        # Protocol buffers build their classes at run time; type checkers do not see them.
        events: Any = event_pb2
        summaries: Any = summary_pb2
        event = events.Event(wall_time=time.time(), step=step)
        if session_log:
            event.session_log.CopyFrom(events.SessionLog(status=events.SessionLog.START))
        else:
            values = [
                summaries.Summary.Value(tag=tag, simple_value=value)
                for tag, value in (scalars or {}).items()
            ]
            event.summary.CopyFrom(summaries.Summary(value=values))
        self.events.add_event(event)


def read_metrics(path: epath.PathLike) -> list[dict[str, Any]]:
    """Return the sound rows of a metrics file; [] if there is no file. See `report_step_lines`."""
    return report_step_lines(path)


def compute_mfu(flops: float, seconds: float, peak: float) -> float | None:
    """Return the share of the peak that a step reaches; None if that is more than all of it.

    The peak of a CPU is measured when a run starts: on a machine that is busy at that moment it is
    less than what the run reaches later. On an accelerator, a kernel that skips the masked pairs of
    attention may compute less than the FLOPs that the papers count.

    Args:
      flops: matmul FLOPs of a step.
      peak: peak FLOP/s of all devices.
    """
    share = flops / seconds / peak
    return share if share <= 1 else None


WINDOW_SECONDS = 60.0  # over which the speed and the time left are averaged


class ProgressLine:
    """A line of progress: redrawn in place on a terminal, printed every `seconds` elsewhere.

    Speed and time left are averages over the last minute, without the first step, which holds the
    compilation. The first line has no time left: the first steps are slower than all others.
    """

    def __init__(
        self,
        start: int,
        stop: int,
        flops_per_step: float,
        peak: float | None,
        out: TextIO | None = None,
        seconds: float = 15.0,
        unit: str = "tokens",
    ) -> None:
        """Start the clock.

        Args:
          flops_per_step: matmul FLOPs of a step.
          peak: peak FLOP/s of all devices; None shows no MFU.
          out: None: the standard error.
          seconds: between two lines, unless `out` is a terminal or below a cell of a notebook.
          unit: what the throughput counts.
        """
        self.start, self.stop = start, stop
        self.flops, self.peak = flops_per_step, peak
        self.out, self.unit = out or sys.stderr, unit
        self.last = time.perf_counter()
        self.recent: collections.deque[tuple[float, Mapping[str, Any]]] = collections.deque()
        self.terminal = is_redrawable(self.out)
        self.seconds = 0.2 if self.out.isatty() else 2.0 if self.terminal else seconds
        self.shown = self.has_drawn = False

    def show_row(self, row: Mapping[str, Any]) -> None:
        """Show the metrics of a step, unless the last line is too recent."""
        now = time.perf_counter()
        self.recent.append((now, row))
        while now - self.recent[0][0] > WINDOW_SECONDS and len(self.recent) > 2:
            self.recent.popleft()
        if row["step"] < self.stop and now - self.last < self.seconds:
            return
        self.last = now
        columns = [
            f"step {row['step']:,}/{self.stop:,}",
            f"loss {row['loss']:.4f}",
            f"rate {row['learning_rate']:.2e}",
            f"{_format_count(self._average('tokens_per_second'))} {self.unit}/s",
        ]
        if self.peak and (seconds := self._average("seconds")):
            mfu = compute_mfu(self.flops, seconds, self.peak)
            columns.append("MFU unknown" if mfu is None else f"MFU {mfu:.1%}")
        begin, first = self.recent[0]
        if self.has_drawn and first["step"] < row["step"]:
            seconds_per_step = (now - begin) / (row["step"] - first["step"])
            columns.append(f"{format_duration(seconds_per_step * (self.stop - row['step']))} left")
        self._draw_line("  ".join(columns))

    def _average(self, name: str) -> float:
        """Return the mean of a metric over the recent steps, weighted by their seconds.

        The window begins at the end of its first step, which counts only while it is alone: the
        first step of a start holds the compilation.
        """
        pairs = [(row[name], row["seconds"]) for _, row in self.recent]
        pairs = pairs[1:] or pairs
        total = sum(seconds for _, seconds in pairs)
        return sum(value * seconds for value, seconds in pairs) / total if total else pairs[-1][0]

    def print_line(self, text: str) -> None:
        """Print a line of its own between two progress lines."""
        if self.terminal and self.shown:
            erase_line(self.out)
            self.shown = False
        self.out.write(text + "\n")
        self.out.flush()

    def close(self) -> None:
        """End the line on a terminal."""
        if self.terminal and self.shown:
            self.out.write("\n")
            self.out.flush()

    def _draw_line(self, line: str) -> None:
        if self.terminal:
            erase_line(self.out)
            self.out.write(line)
        else:
            self.out.write(f"{line}\n")
        self.out.flush()
        self.shown = self.has_drawn = True


def _format_count(number: float) -> str:
    """Return a number with three digits and a unit, such as 21.7k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def format_duration(seconds: float) -> str:
    """Return a duration as m:ss, or as h:mm:ss from one hour on."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
