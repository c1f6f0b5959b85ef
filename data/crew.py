"""A crew of processes that does jobs in parallel and hands their results over in order, with a progress bar.

At most twice as many jobs as processes are on their way at any time, so memory does not grow with their number.
"""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import time
from typing import Callable, Iterable, Iterator

import numpy as np
from rich import progress

from data.encoding import STOP, Job, settle

TICK = 0.1  # seconds between two looks at the progress


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew(contextlib.AbstractContextManager):
    """`workers` processes, started afresh (spawn: nothing is inherited, whatever runs in this one); 1 works here."""

    def __init__(self, workers: int, folder: pathlib.Path, console=None):
        self.workers, self.window, self.console = workers, 2 * workers, console
        self._path = folder / "progress"
        self._progress = np.memmap(self._path, np.int64, mode="w+", shape=(self.window + 1,))
        if workers == 1:
            self._executor = concurrent.futures.ThreadPoolExecutor(1)
        else:
            spawn = multiprocessing.get_context("spawn")
            self._executor = concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn, initializer=settle)

    def run(self, function: Callable, jobs: Iterable, title: str, total: int) -> Iterator[tuple[Job, object]]:
        """(job, function(job)) for each (source, pieces) of `jobs`, in order. total: bytes of all, for the bar."""
        jobs, waiting, done = iter(jobs), collections.deque(), 0
        with self._bar() as bar:
            task = bar.add_task(title, total=total, rate="")
            began = time.monotonic()
            for index, (source, pieces) in enumerate(jobs):
                waiting.append(self._submit(function, index, source, pieces))
                if len(waiting) == self.window:
                    yield from self._next(waiting, bar, task, began, done)
                    done += waiting.popleft()[0].size
            while waiting:
                yield from self._next(waiting, bar, task, began, done)
                done += waiting.popleft()[0].size

    def __exit__(self, *_):
        self._progress[STOP] = 1
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, function, index, source, pieces):
        job = Job(index, source, pieces, self._path, index % self.window)
        with _told():
            return job, self._executor.submit(function, job)

    def _next(self, waiting, bar, task, began, done) -> Iterator:
        """The result of the first job that waits."""
        job, future = waiting[0]
        while True:
            try:
                with _told():
                    result = future.result(timeout=TICK)
                break
            except concurrent.futures.TimeoutError:
                self._show(bar, task, began, done + int(self._progress[:STOP].sum()))
        self._progress[job.slot] = 0
        self._show(bar, task, began, done + job.size)
        yield job, result

    def _bar(self) -> progress.Progress:
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
        )
        return progress.Progress(
            *columns, console=self.console, transient=True, disable=not self.console or not self.console.is_terminal
        )

    def _show(self, bar, task, began, done) -> None:
        seconds = max(time.monotonic() - began, 1e-9)
        bar.update(task, completed=done, rate=f"{done / seconds / 1e6:.1f} MB/s")


@contextlib.contextmanager
def _told():
    """A worker's death, which any use of the executor may be the first to notice, in words."""
    try:
        yield
    except concurrent.futures.BrokenExecutor as error:
        raise ChildProcessError("a worker process was killed, perhaps for want of memory: fewer --workers?") from error
