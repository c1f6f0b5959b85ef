"""Batches through a few threads, without TensorFlow."""

import atexit
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator

from data.read_ahead import BUILT_TOKENS, BuildPlan
from data.rows.tables import Batch

EXIT_SECONDS = 10.0  # for which the end of the program waits for a call, which may hang on a disk

# The result of a call, or what it raised, in a queue of one.
Answer = queue.SimpleQueue


class BatchBuilders:
    """Threads that build batches in the order in which they are asked for.

    They are daemons, so that a reader that is never closed does not keep the program from ending.
    At exit they are stopped while Python still works: NumPy cannot run while the interpreter
    is taken down.
    """

    def __init__(self, build: Callable[[int, int], Batch], count: int) -> None:
        """Make `count` threads, which wait for `start`."""
        self.build, self.is_stopped = build, False
        self.calls: queue.SimpleQueue = queue.SimpleQueue()
        self.threads = [
            threading.Thread(target=self.answer_calls, name=f"batches {i}", daemon=True)
            for i in range(count)
        ]

    def start(self) -> None:
        """Start the threads."""
        atexit.register(self.stop, EXIT_SECONDS)
        for thread in self.threads:
            thread.start()

    def submit(self, first: int, number: int) -> Answer:
        """Ask for `number` batches from `first` on; return the queue of (batches, exception)."""
        answer: Answer = queue.SimpleQueue()
        self.calls.put((first, number, answer))
        return answer

    def answer_calls(self) -> None:
        """Build what is asked for until None is; a thread runs this."""
        while (call := self.calls.get()) is not None:
            if not self.is_stopped:
                first, number, answer = call
                answer.put(self.try_building(first, number))

    def try_building(self, first: int, number: int) -> tuple[Batch, BaseException | None]:
        """Return (batches, None), or ({}, what building them raised)."""
        try:
            return self.build(first, number), None
        except BaseException as error:  # the reader, who would wait for ever, raises it
            return {}, error

    def stop(self, seconds: float | None = None) -> None:
        """Drop the calls that have not begun, and wait for the others, `seconds` at most."""
        self.is_stopped = True
        for _ in self.threads:
            self.calls.put(None)
        for thread in self.threads:
            # Garbage is collected in any thread: one of these may close the reader.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(seconds)
        atexit.unregister(self.stop)


def read_ahead(plan: BuildPlan) -> Iterator[Batch]:
    """Iterate over the batches of a plan, {key: read-only array [B, ...]} each."""
    size = plan.count_batches(BUILT_TOKENS)
    firsts = iter(range(plan.start, plan.stop, size))
    ahead: deque[tuple[int, int, Answer]] = deque()
    builders = BatchBuilders(plan.build, plan.threads)

    def submit_next() -> None:
        for first in itertools.islice(firsts, 1):
            number = min(size, plan.stop - first)
            ahead.append((first, number, builders.submit(first, number)))

    try:
        builders.start()
        for _ in range(plan.threads - (-plan.prefetch // size)):
            submit_next()
        while ahead:
            first, number, answer = ahead.popleft()
            batches, error = answer.get()
            submit_next()
            if error is None:
                yield from split_batches(batches, number, plan.rows)
            elif number == 1:
                raise error
            else:  # one of several batches fails: those before it come first
                for step in range(first, first + number):
                    yield from split_batches(plan.build(step, 1), 1, plan.rows)
    finally:
        builders.stop()


def split_batches(batches: Batch, number: int, batch_size: int) -> Iterator[Batch]:
    """Iterate over `number` batches that are concatenated in one."""
    for begin in range(0, number * batch_size, batch_size):
        batch = {key: array[begin : begin + batch_size] for key, array in batches.items()}
        for array in batch.values():
            array.flags.writeable = False  # as tf.data's: batches share memory
        yield batch
