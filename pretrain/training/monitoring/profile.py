"""`train --profile FIRST:LAST`: a trace of these steps, and a table of its operations by kind.

Only the first process traces: all processes run the same program, and each row of metrics names
stragglers. The trace begins when the step before it has ended, and ends with the last step, so that
it has whole steps. Nothing that a step computes depends on it.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, Self

import jax
from etils import epath

from data.members import call_later
from data.store.atomic import write_atomically
from pretrain.training.logger import RunLog
from pretrain.training.monitoring.options import StepRange

# What reads a trace, which most runs do not make.
format_operations, parse_operations, read_trace = (
    call_later(f"pretrain.training.monitoring.operations:{name}")
    for name in ("format_operations", "parse_operations", "read_trace")
)
FOLDER = "profile"
TABLE = "operations.md"


class StepProfiler:
    """Traces a range of steps. A context manager: a run that ends within the range writes the rest.

    A profiler that fails ends the trace with a message, never the run.

    Attributes:
      steps: the range, or None to trace nothing.
      traced: the number of steps in the trace; None before it begins.
    """

    def __init__(
        self,
        steps: StepRange | None,
        workdir: epath.PathLike,
        get_program_text: Callable[[], str],
        log: RunLog,
    ) -> None:
        """Keep the range for the steps to come.

        Args:
          workdir: of the run; the trace is written below its folder `profile`.
        """
        self.steps = None if jax.process_index() else steps
        self.folder = epath.Path(workdir) / FOLDER
        self.get_program_text, self.log = get_program_text, log
        self.traced: int | None = None
        self.scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if self.scratch:
            self.stop_trace()
        elif self.steps and self.traced is None and kind is None:
            self.log.log_message(f"--profile {self.steps}: none of these steps was run; no trace")

    def is_due(self, step: int) -> bool:
        """Return whether a step that is about to start is the first of the range that runs."""
        if self.traced is not None or not self.steps:
            return False
        return self.steps.first <= step <= self.steps.last

    def start_trace(self) -> None:
        """Start the trace; the devices have finished all steps before it."""
        self.traced = 0
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # An event for each Python call would slow the host down.
        self.scratch = tempfile.TemporaryDirectory(prefix="profile-")
        try:
            jax.profiler.start_trace(
                self.scratch.name, create_perfetto_trace=True, profiler_options=options
            )
        except (RuntimeError, OSError, ValueError) as error:
            self._report_failure(error)

    def stop_if_due(self, step: int, metrics: Any) -> float:
        """Count a started step; after the last of the range write the trace.

        Returns:
          The seconds that writing took.
        """
        if not self.scratch:
            return 0.0
        assert self.steps is not None and self.traced is not None
        self.traced += 1
        if step < self.steps.last:
            return 0.0
        jax.block_until_ready(metrics)
        began = time.perf_counter()
        self.stop_trace()
        return time.perf_counter() - began

    def stop_trace(self) -> None:
        """Write the trace and its table into the workdir."""
        assert self.scratch is not None and self.traced is not None
        self.log.lease.check_held()
        try:
            jax.profiler.stop_trace()
            folder = self.folder / f"steps-{str(self.steps).replace(':', '-')}"
            copy_files(pathlib.Path(self.scratch.name), folder)
            names = parse_operations(self.get_program_text())
            table = format_operations(
                read_trace(self.scratch.name), names, self.traced, str(self.steps)
            )
            write_atomically(folder / TABLE, table)
            self.log.log_message(f"traced {self.traced} steps of --profile {self.steps}: {folder}")
            self.scratch.cleanup()
            self.scratch = None
        except (RuntimeError, OSError, ValueError) as error:
            self._report_failure(error)

    def _report_failure(self, error: Exception) -> None:
        """Print why there is no trace, and drop what there is of it."""
        assert self.scratch is not None
        reason = str(error).partition("\n")[0]
        self.log.log_message(
            f"--profile {self.steps} failed, the run continues without it: {reason}"
        )
        self.scratch.cleanup()
        self.scratch = None


def copy_files(folder: pathlib.Path, target: epath.Path) -> None:
    """Copy all files below a local folder into another one, local or gs://."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            new = target / path.relative_to(folder).as_posix()
            new.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(new, path.read_bytes())
