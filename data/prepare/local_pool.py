"""A crew of processes that does jobs in parallel and hands their results over in order, with a progress bar.

At most twice as many jobs as processes are on their way at any time, so memory does not grow with their number.

Each process has a pipe of its own, whose other end closes with the process however it dies: that is noticed at once,
while it starts or works, where `concurrent.futures.ProcessPoolExecutor` of Python 3.11 can wait for it for ever (it
looks after the processes that it knew of when it last woke up).
"""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from rich import progress

from data.prepare.jobs import Job, JobReport, encode_job, sample_job, settle

TICK = 0.1  # seconds between two looks at the progress


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew(contextlib.AbstractContextManager):
    """`workers` processes, started afresh (spawn: nothing is inherited, whatever runs in this one); with 0, all work is done here.

    scratch: a folder for what they read besides the sources.
    """

    def __init__(self, workers: int, folder: pathlib.Path, console=None):
        self.window, self.console, self.scratch = 2 * max(workers, 1), console, folder / "scratch"
        self.scratch.mkdir()
        self._path = folder / "progress"
        self._progress = np.memmap(self._path, np.int64, mode="w+", shape=(self.window,))
        self._workers = []
        try:
            for _ in range(workers):
                self._workers.append(_Worker(multiprocessing.get_context("spawn")))
        except BaseException:
            self.__exit__()
            raise

    def sample(
        self, jobs: Iterable, total: int, thresholds: Sequence[int]
    ) -> Iterator[tuple[Job, tuple[list, JobReport]]]:
        """(job, what `sample_job` returns) in order; jobs and total: see `run`."""
        return self.run(
            functools.partial(sample_job, thresholds=thresholds), jobs, "reading", total
        )

    def encode(
        self,
        jobs: Iterable,
        total: int,
        vocabulary: pathlib.Path,
        threshold: int,
        parts: pathlib.Path,
    ) -> Iterator[tuple[Job, JobReport]]:
        """(job, what `encode_job` returns) in order, each when its files are in the folder `parts`."""
        job = functools.partial(
            encode_job, vocabulary=vocabulary, threshold=threshold, folder=parts
        )
        return self.run(job, jobs, "encoding", total)

    def run(
        self, function: Callable, jobs: Iterable, title: str, total: int
    ) -> Iterator[tuple[Job, Any]]:
        """(job, function(job)) for each (source, pieces) of `jobs`, in order. total: bytes of all, for the bar.

        Raises what the first job that fails raised, and ChildProcessError if a process dies.
        """
        numbered = (
            Job(i, source, pieces, self._path, i % self.window)
            for i, (source, pieces) in enumerate(jobs)
        )
        with self._bar() as bar:
            show = _Shown(bar, bar.add_task(title, total=total, rate=""), self._progress)
            for job, outcome in self._in_order(function, numbered, show):
                self._progress[job.slot] = 0
                show.done += job.size
                show()
                yield job, outcome.value()

    def _in_order(self, function, jobs, show) -> Iterator:
        """(job, outcome) for each job."""
        if not self._workers:
            yield from ((job, _attempt(function, job)) for job in jobs)
            return
        idle, outcomes, first = list(self._workers), {}, 0
        job = next(jobs, None)
        while True:
            while idle and job is not None and job.index < first + self.window:
                idle.pop().begin(function, job)
                job = next(jobs, None)
            if first in outcomes:
                yield outcomes.pop(first)
                first += 1
            elif working := {worker.connection: worker for worker in self._workers if worker.job}:
                for connection in wait(list(working), TICK):
                    ended, outcome = working[connection].end()
                    outcomes[ended.index] = ended, outcome
                    idle.append(working[connection])
                show()
            else:
                return

    def _bar(self) -> progress.Progress:
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
        )
        return progress.Progress(
            *columns,
            console=self.console,
            transient=True,
            disable=not self.console or not self.console.is_terminal,
        )

    def __exit__(self, *_):
        for worker in self._workers:
            worker.stop()


@dataclasses.dataclass
class _Shown:
    """The progress bar's state: bytes of the jobs that are done, and each call adds those of the jobs on their way."""

    bar: progress.Progress
    task: progress.TaskID
    slots: np.ndarray
    done: int = 0
    began: float = dataclasses.field(default_factory=time.monotonic)

    def __call__(self) -> None:
        done, seconds = self.done + int(self.slots.sum()), max(time.monotonic() - self.began, 1e-9)
        self.bar.update(self.task, completed=done, rate=f"{done / seconds / 1e6:.1f} MB/s")


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What a job returned, or raised."""

    result: object = None
    error: Exception | None = None

    def value(self):
        if self.error is not None:
            raise self.error
        return self.result


def _attempt(function: Callable, job: Job) -> _Outcome:
    try:
        return _Outcome(function(job))
    except Exception as error:  # raised again by whoever asks for the value
        return _Outcome(error=error)


class _Worker:
    """A process that does one job at a time."""

    def __init__(self, context):
        self.job: Job | None = None
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, function: Callable, job: Job) -> None:
        with _told():
            self.connection.send((function, job))
        self.job = job

    def end(self) -> tuple[Job, _Outcome]:
        """The job that was begun, and its outcome."""
        with _told():
            outcome = self.connection.recv()
        job, self.job = self.job, None
        assert job is not None, "`begin` comes before `end`"
        return job, outcome

    def stop(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


def _serve(connection: Connection) -> None:
    """A worker process: jobs come, outcomes go, until the main process closes the pipe."""
    settle()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            outcome = _attempt(*connection.recv())
            if outcome.error is not None:  # a traceback does not travel, its text does
                outcome.error.add_note(
                    "in a worker process:\n" + "".join(traceback.format_exception(outcome.error))
                )
            connection.send(outcome)


@contextlib.contextmanager
def _told():
    """A worker's death, in words."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise ChildProcessError(
            "a worker process was killed, perhaps for want of memory: fewer --workers?"
        ) from error
