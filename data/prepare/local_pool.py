"""A pool of local processes that run jobs in parallel and return their results in order.

At most two jobs per process are in flight, so memory use does not grow with the number of jobs.

Each process has its own pipe, which closes when the process dies for any reason. So the death of a
process is noticed at once, even during startup. `concurrent.futures.ProcessPoolExecutor` of Python
3.11 can wait forever, since it watches only the processes that existed when it last woke up.
"""

import contextlib
import dataclasses
import datetime
import functools
import math
import multiprocessing
import os
import pathlib
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
from rich import progress
from rich.console import Console

from data.members import import_member
from data.prepare.job_report import JobReport
from data.prepare.jobs import Job, Jobs, encode_job, sample_job
from data.prepare.worker_process import init_worker

SAFE_PATH = "PYTHONSAFEPATH"  # with it, Python does not search the current folder
PROGRESS_SECONDS = 0.1  # seconds between two updates of the progress bar
LINE_SECONDS = 15.0  # between two lines of progress where there is no terminal


def count_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalPool(contextlib.AbstractContextManager):
    """Runs jobs in worker processes.

    Attributes:
      scratch: folder with the built-in corpus and the vocabulary, which the workers read.
      window: maximum number of jobs in flight.
    """

    def __init__(self, workers: int, folder: pathlib.Path, console: Console | None = None) -> None:
        """Start the workers.

        Args:
          workers: number of processes, which inherit nothing from this one (spawn); 0 runs all jobs
            in this process.
        """
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

    def sample_jobs(
        self,
        jobs: Jobs,
        total: int,
        thresholds: Sequence[int],
        cleaning: pathlib.Path | None = None,
    ) -> Iterator[tuple[Job, tuple[list[tuple[int, str]], JobReport]]]:
        """Yield (job, result of `sample_job`) in order.

        Args:
          jobs: (number of the source, chunks) of each job.
          total: bytes of all jobs.
          thresholds: for each source, the hash below which a unit of text is sampled.
          cleaning: folder that says which documents are dropped; None: none are.
        """
        function = functools.partial(sample_job, thresholds=thresholds, cleaning=cleaning)
        return self.run_jobs(function, jobs, "reading", total)

    def scan_jobs(
        self, jobs: Jobs, total: int, cleaning: pathlib.Path
    ) -> Iterator[tuple[Job, Any]]:
        """Yield (job, `data.prepare.cleaning.ScannedJob`) in order.

        Args:
          jobs: (number of the source, chunks) of each job.
          total: bytes of all jobs.
          cleaning: folder with the settings.
        """
        scan_job = import_member("data.prepare.cleaning:scan_job")
        return self.run_jobs(
            functools.partial(scan_job, cleaning=cleaning), jobs, "comparing", total
        )

    def encode_jobs(
        self,
        jobs: Jobs,
        total: int,
        vocabulary: pathlib.Path,
        thresholds: Sequence[int],
        parts: pathlib.Path,
        cleaning: pathlib.Path | None = None,
        families: pathlib.Path | None = None,
    ) -> Iterator[tuple[Job, JobReport]]:
        """Yield (job, result of `encode_job`) in order, after the job's files are written.

        Args:
          jobs: (number of the source, chunks) of each job.
          total: bytes of all jobs.
          thresholds: for each source, the hash below which a document is held out.
          cleaning: folder that says which documents are dropped; None: none are.
          families: folder that says which are held out together; None: copies of a text are.
        """
        function = functools.partial(
            encode_job,
            vocabulary=vocabulary,
            thresholds=thresholds,
            folder=parts,
            cleaning=cleaning,
            families=families,
        )
        return self.run_jobs(function, jobs, "encoding", total)

    def run_jobs(
        self, function: Callable[[Job], Any], jobs: Jobs, title: str, total: int
    ) -> Iterator[tuple[Job, Any]]:
        """Yield (job, function(job)) in order.

        Args:
          jobs: (number of the source, chunks) of each job.
          total: bytes of all jobs.
        """
        numbered = (
            Job(i, source, chunks, self._path, i % self.window)
            for i, (source, chunks) in enumerate(jobs)
        )
        with self._make_progress_bar() as bar:
            console = self.console if bar.disable else None
            task_id = bar.add_task(title, total=total, rate="")
            task = _ProgressTask(bar, task_id, self._progress, title, total, console)
            for job, outcome in self._run_in_order(function, numbered, task):
                self._progress[job.slot] = 0
                task.done += job.size
                task()
                yield job, outcome.get_result()

    def _run_in_order(
        self, function: Callable[[Job], Any], jobs: Iterator[Job], task: "_ProgressTask"
    ) -> Iterator[tuple[Job, "_Outcome"]]:
        """Yield (job, outcome) of each job in order."""
        if not self._workers:
            yield from ((job, _try_job(function, job)) for job in jobs)
            return
        idle, outcomes, next_index = list(self._workers), {}, 0
        job = next(jobs, None)
        while True:
            while idle and job is not None and job.index < next_index + self.window:
                idle.pop().start_job(function, job)
                job = next(jobs, None)
            if next_index in outcomes:
                yield outcomes.pop(next_index)
                next_index += 1
            elif working := {worker.connection: worker for worker in self._workers if worker.job}:
                for connection in wait(list(working), PROGRESS_SECONDS):
                    ended, outcome = working[connection].finish_job()
                    outcomes[ended.index] = ended, outcome
                    idle.append(working[connection])
                task()
            else:
                return

    def _make_progress_bar(self) -> progress.Progress:
        """Return a progress bar, which is disabled if there is no terminal: lines are printed."""
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

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()


@dataclasses.dataclass
class _ProgressTask:
    """A task of the progress bar; calling it refreshes the bar, or prints a line now and then.

    Attributes:
      slots: bytes read by each job in flight, which the workers update.
      total: bytes of all jobs.
      console: where lines are printed, every LINE_SECONDS; None: nowhere.
      done: bytes of the finished jobs.
    """

    bar: progress.Progress
    task: progress.TaskID
    slots: np.ndarray
    title: str
    total: int
    console: Console | None
    done: int = 0
    began: float = dataclasses.field(default_factory=time.monotonic)
    last_line: float = dataclasses.field(default_factory=time.monotonic)

    def __call__(self) -> None:
        done, seconds = self.done + int(self.slots.sum()), max(time.monotonic() - self.began, 1e-9)
        rate = f"{done / seconds / 1e6:.1f} MB/s"
        self.bar.update(self.task, completed=done, rate=rate)
        if self.console and done and time.monotonic() - self.last_line >= LINE_SECONDS:
            self.last_line = time.monotonic()
            left = datetime.timedelta(seconds=math.ceil((self.total - done) * seconds / done))
            share = f"{done / max(self.total, 1):.0%}"
            self.console.print(f"{self.title} {share}  {rate}  {left} left", highlight=False)


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """The result of a job, or the error that it raised."""

    result: object = None
    error: Exception | None = None

    def get_result(self) -> Any:
        """Return the result or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def _try_job(function: Callable[[Job], Any], job: Job) -> _Outcome:
    """Run a job and return its outcome."""
    try:
        return _Outcome(function(job))
    except Exception as error:  # raised again in the main process
        return _Outcome(error=error)


@contextlib.contextmanager
def without_current_folder() -> Iterator[None]:
    """Start Pythons that execute no file of the current folder, such as a socket.py there.

    `multiprocessing` starts them by `python -c`, which searches that folder first.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[SAFE_PATH]
        if before is not None:
            os.environ[SAFE_PATH] = before


class _Worker:
    """A process that runs one job at a time."""

    def __init__(self, context: SpawnContext) -> None:
        self.job: Job | None = None
        self.connection, worker_end = context.Pipe()
        self._process = context.Process(target=_serve_jobs, args=(worker_end,), daemon=True)
        with without_current_folder():
            self._process.start()
        worker_end.close()

    def start_job(self, function: Callable[[Job], Any], job: Job) -> None:
        """Start a job."""
        with _explain_worker_death():
            self.connection.send((function, job))
        self.job = job

    def finish_job(self) -> tuple[Job, _Outcome]:
        """Wait for the job in flight and return it with its outcome."""
        with _explain_worker_death():
            outcome = self.connection.recv()
        job, self.job = self.job, None
        assert job is not None, "the worker has no job in flight"
        return job, outcome

    def stop(self) -> None:
        """Terminate the process."""
        self.connection.close()
        self._process.terminate()
        self._process.join()


def _serve_jobs(connection: Connection) -> None:
    """Run the jobs that arrive in a worker process until the main process closes the pipe."""
    init_worker()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            outcome = _try_job(*connection.recv())
            if outcome.error is not None:  # a traceback cannot be pickled, its text can
                outcome.error.add_note(
                    "in a worker process:\n" + "".join(traceback.format_exception(outcome.error))
                )
            connection.send(outcome)


@contextlib.contextmanager
def _explain_worker_death() -> Iterator[None]:
    """Turn the error of a closed pipe into one that names the cause and the remedy."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise ChildProcessError(
            "a worker process was killed, perhaps because memory ran out; try fewer --workers"
        ) from error
