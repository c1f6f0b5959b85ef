"""A tracker in a thread of its own: whatever it does, the run continues.

The training loop puts rows into a bounded queue, and a thread takes them out. A call that raises is
reported once and counted. If a call hangs, the queue fills, further rows are dropped and counted,
and the end of the run leaves the thread. The rows are in `metrics.jsonl` in any case.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath

from data.store.atomic import write_atomically
from pretrain.training.monitoring.trackers import Tracker

ID_FILE = "tracker.json"
MAX_ROWS = 1000  # in the queue
MAX_SECONDS = 10.0  # that the end of a run waits for its tracker


class BackgroundTracker:
    """Sends rows to a tracker from another thread.

    Attributes:
      num_failures: the number of calls that raised.
      num_dropped: the number of rows that found the queue full.
      is_done: whether the thread has ended the tracker's run, or given it up.
    """

    def __init__(
        self,
        name: str,
        tracker: Tracker,
        workdir: epath.PathLike,
        config: Mapping[str, Any],
        log_message: Callable[[str], None],
        max_rows: int = MAX_ROWS,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        """Start the tracker's run, or continue the workdir's, in the thread.

        Args:
          config: {dotted name: value} of the run's fields.
        """
        self.name, self.tracker, self.config = name, tracker, config
        self.workdir, self.log_message = epath.Path(workdir), log_message
        self.max_seconds = max_seconds
        self.rows: queue.Queue[Mapping[str, Any]] = queue.Queue(max_rows)
        self.end_state: str | None = None
        self.closing = threading.Event()
        self.num_failures = self.num_dropped = 0
        self.is_done = False
        self.thread = threading.Thread(target=self._run_tracker, name=name, daemon=True)
        self.thread.start()

    def write_row(self, row: Mapping[str, Any]) -> None:
        """Queue the numbers of a row."""
        try:
            self.rows.put_nowait(row)
        except queue.Full:
            self.num_dropped += 1
            if self.num_dropped == 1 and not self.is_done:
                self.log_message(
                    f"{self.name} does not keep up: rows are missing there from step "
                    f"{row['step']:,} on; metrics.jsonl has all of them"
                )

    def close(self, state: str) -> None:
        """End the tracker's run, or leave the thread after `max_seconds`."""
        self.end_state = state
        self.closing.set()
        self.thread.join(self.max_seconds)
        if self.thread.is_alive():
            self.log_message(
                f"{self.name} has not answered for {self.max_seconds:g} s and is abandoned; rows "
                "may be missing there, metrics.jsonl has all of them"
            )
        elif self.num_failures > 1 or self.num_dropped:
            self.log_message(
                f"{self.name}: {self.num_failures} calls failed, {self.num_dropped} rows were "
                "dropped; metrics.jsonl has all of them"
            )

    def _run_tracker(self) -> None:
        """Start the tracker's run, send the rows and finish, in the thread."""
        if not self._call(self._start_run):
            self.is_done = True
            return
        while not (self.closing.is_set() and self.rows.empty()):
            if rows := self._take_rows():
                self._call(self.tracker.log_rows, rows)
        self._call(self.tracker.finish, self.end_state)
        self.is_done = True

    def _take_rows(self) -> list[tuple[int, dict[str, float]]]:
        """Wait a little for a row, and return all rows of the queue."""
        rows = []
        with contextlib.suppress(queue.Empty):
            row = self.rows.get(timeout=0.1)
            while True:
                values = {
                    key: float(value)
                    for key, value in row.items()
                    if key != "step" and isinstance(value, (int, float))
                }
                rows.append((int(row["step"]), values))
                row = self.rows.get_nowait()
        return rows

    def _start_run(self) -> None:
        known = read_tracker_ids(self.workdir)
        run_id = known.get(self.name)
        is_new = run_id is None
        if is_new and (run_id := self.tracker.choose_id()):
            self._write_ids(known | {self.name: run_id})
        started = self.tracker.start(run_id, is_new, self.workdir.name, self.config)
        if started != run_id:
            self._write_ids(known | {self.name: started})

    def _write_ids(self, ids: Mapping[str, str]) -> None:
        write_atomically(self.workdir / ID_FILE, json.dumps(dict(ids), indent=1) + "\n")

    def _call(self, function: Callable[..., Any], *args: Any) -> bool:
        """Return whether a call succeeds; report the first that does not."""
        try:
            function(*args)
        except (Exception, SystemExit) as error:  # A tracker may raise anything.
            self.num_failures += 1
            if self.num_failures == 1:
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                self.log_message(f"{self.name} failed, the run continues: {reason}")
            return False
        return True


def read_tracker_ids(workdir: epath.Path) -> dict[str, str]:
    """Return {tracker: id of its run} of a workdir, {} without the file."""
    path = workdir / ID_FILE
    if not path.exists():
        return {}
    try:
        ids = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged; delete it to begin a new run there") from error
    if not isinstance(ids, dict) or not all(
        isinstance(value, str) and re.fullmatch(r"[\w-]{1,128}", value) for value in ids.values()
    ):
        raise ValueError(f"{path} is damaged; delete it to begin a new run there")
    return ids
