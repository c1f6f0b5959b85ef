"""What a run says of itself: one JSON row a step, TensorBoard events, and a line for the person who watches."""

import json
import math
import os
import sys
import time
from typing import Any

from etils import epath

from pretrain.workdir.errors import named


class MetricsLog:
    """`metrics.jsonl`, one row per finished step, in order, however often the run was stopped; and TensorBoard's events.

    On opening at `start`, rows after that step (and a last line that was cut by a crash) are dropped: those steps are done again.
    """

    def __init__(self, workdir, start):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.path = epath.Path(workdir) / "metrics.jsonl"
        rows = [row for row in read(self.path) if row["step"] <= start]
        # Object stores cannot append: there the rows gather in memory and the file is written anew at each `sync`.
        self.rows = rows if "://" in str(workdir) else None
        if self.rows is None:
            part = self.path.with_name("metrics.jsonl.part")
            part.write_text("".join(json.dumps(row) + "\n" for row in rows))
            part.replace(self.path)
            self.file = open(os.fspath(self.path), "a", encoding="utf-8")  # noqa: SIM115 - open until `close`
        self.events = EventFileWriter(str(epath.Path(workdir) / "tensorboard"))
        if start:
            self._event(start, session_log=True)

    def write(self, row):
        """Append one row: a dict with `step`; numbers become TensorBoard scalars of the same names. What is not finite is null in JSON."""
        row = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        if self.rows is not None:
            self.rows.append(row)
        else:
            with named(self.path):
                self.file.write(json.dumps(row) + "\n")
                self.file.flush()
        self._event(
            row["step"],
            {
                key: value
                for key, value in row.items()
                if key not in ("step", "time") and value is not None
            },
        )

    def sync(self):
        """Make what was written durable; called where a checkpoint is saved."""
        if self.rows is not None:
            self.path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        else:
            with named(self.path):
                self.file.flush()
                os.fsync(self.file.fileno())
        self.events.flush()

    def close(self, sync=True):
        if sync:
            self.sync()
        self.events.close()
        if self.rows is None:
            self.file.close()

    def _event(self, step, scalars=None, session_log=False):
        from tensorboard.compat.proto import event_pb2, summary_pb2

        # Protocol buffers build their classes at run time, where a type checker does not see them.
        events: Any = event_pb2
        summaries: Any = summary_pb2
        event = events.Event(wall_time=time.time(), step=step)
        if session_log:  # tells TensorBoard to forget what came after this step
            event.session_log.CopyFrom(events.SessionLog(status=events.SessionLog.START))
        else:
            values = [
                summaries.Summary.Value(tag=tag, simple_value=value)
                for tag, value in (scalars or {}).items()
            ]
            event.summary.CopyFrom(summaries.Summary(value=values))
        self.events.add_event(event)


def read(path):
    """The rows of a metrics file, none where there is no file; an incomplete last line is left out."""
    path = epath.Path(path)
    if not path.exists():
        return []
    *lines, _cut = path.read_text().split("\n")
    return [json.loads(line) for line in lines]


class Progress:
    """The line that a person watches: redrawn in place on a terminal, every `seconds` otherwise."""

    def __init__(self, start, stop, flops_per_step, peak, out=None, seconds=15.0):
        out = out or sys.stderr
        self.start, self.stop, self.flops, self.peak, self.out = (
            start,
            stop,
            flops_per_step,
            peak,
            out,
        )
        self.began = self.last = time.perf_counter()
        self.terminal = out.isatty()
        self.seconds = 0.2 if self.terminal else seconds
        self.shown = False

    def show(self, row):
        now = time.perf_counter()
        if row["step"] < self.stop and now - self.last < self.seconds:
            return
        self.last = now
        parts = [
            f"step {row['step']:,}/{self.stop:,}",
            f"loss {row['loss']:.4f}",
            f"rate {row['learning_rate']:.2e}",
            f"{_short(row['tokens_per_second'])} tokens/s",
        ]
        if self.peak and row["seconds"]:
            parts.append(f"MFU {self.flops / row['seconds'] / self.peak:.1%}")
        done = row["step"] - self.start
        parts.append(f"{clock((now - self.began) / done * (self.stop - row['step']))} left")
        self._put("  ".join(parts))

    def say(self, text):
        """A line of its own, between two progress lines."""
        if self.terminal and self.shown:
            self.out.write("\r\x1b[K")
            self.shown = False
        self.out.write(text + "\n")
        self.out.flush()

    def close(self):
        if self.terminal and self.shown:
            self.out.write("\n")
            self.out.flush()

    def _put(self, line):
        self.out.write(f"\r\x1b[K{line}" if self.terminal else f"{line}\n")
        self.out.flush()
        self.shown = True


def _short(number):
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def clock(seconds):
    """Seconds as minutes and seconds, with hours where there are any."""
    minutes, seconds = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
