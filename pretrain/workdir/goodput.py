"""Where a run's time went: seconds of the wall clock by part, over all of its starts, in `goodput.json`.

At any moment a run does one thing, as its first process sees it, and the clock runs for that part; so the parts add up to the wall
clock. What is written beside a running step, such as a checkpoint, costs only what the loop waits for it.

    start     from the command to the first step: imports, the mesh, the store, fresh or restored parameters
    compile   the first step of each start, traced and compiled
    data      the loop waits for its next batch
    step      the loop computes
    save      a checkpoint is begun, or waited for at the end
    evaluate  the held-out part, the compilation of its first time included
    lost      of data, step, save and evaluate: what was done behind the checkpoint that a start goes on from, or the guard goes back to
    down      from the last sign of life of a process that was killed (a second before its end at most) to the next start

Between a run that ended by itself, done or asked to stop, and the next start nothing is counted.
"""

import contextlib
import json
import threading
import time

from etils import epath

from data.store.atomic import write_atomically

PARTS = ("start", "compile", "data", "step", "save", "evaluate", "lost", "down")
WORK = (
    "data",
    "step",
    "save",
    "evaluate",
)  # what has to be done again where it is not in a checkpoint
NAME = "goodput.json"


class Ledger:
    """The ledger of a run, continued. A context manager: the clock runs until it is left.

    workdir: None keeps it in memory. began: `time.time()` when this start began. step: the checkpoint that it goes on from, 0 for none.
    told: called with each part as it begins, such as by a `watchdog.Watchdog`. may_write: asked before each writing of the file.
    """

    def __init__(self, workdir, began, step, told=lambda part: None, may_write=lambda: True):
        self.path = None if workdir is None else epath.Path(workdir) / NAME
        self.every = (
            30.0 if "://" in str(workdir) else 1.0
        )  # object stores take one writing of a file a second
        self.error, self.told, self.may_write = None, told, may_write
        self.lock, self.over = threading.Lock(), threading.Event()
        known = read(self.path) if self.path else None
        self.starts, self.marks = 1, {}
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.part, self.clock = "start", time.monotonic() - max(time.time() - began, 0.0)
        if known:
            self.starts, self.seconds = known["starts"] + 1, known["seconds"]
            self.marks = {int(step): mark for step, mark in known["marks"].items()}
            if not known["ended"]:
                self.seconds["down"] += max(began - known["until"], 0.0)
            self.back(step)

    def __enter__(self):
        self._write()
        self.thread = threading.Thread(target=self._beat, name="goodput", daemon=True)
        if self.path:
            self.thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.over.set()
        if self.path:
            self.thread.join()
        self._write(ended=kind is None)

    def to(self, part):
        """What follows is `part`. Returns the part until now."""
        with self.lock:
            before = self.part
            self._settle()
            self.part = part
        self.told(part)
        return before

    @contextlib.contextmanager
    def during(self, part):
        """What happens within is `part`."""
        before = self.to(part)
        try:
            yield
        finally:
            self.to(before)

    def during_each(self, part, items):
        """Pass on the items of an iterable; the time until each of them is there is `part`."""
        items = iter(items)
        while True:
            with self.during(part):
                item = next(items, None)
            if item is None:
                return
            yield item

    def mark(self, step, steps):
        """What was done until now is in the checkpoint of `step`. Raises the error by which the ledger could not be written since.

        steps: of the checkpoints that are left. What had been spent up to each of them is remembered, to call lost what came behind it.
        """
        if self.error:
            raise self.error
        with self.lock:
            self._settle()
            self.marks[step] = {part: self.seconds[part] for part in WORK}
            self.marks = {
                at: mark for at, mark in sorted(self.marks.items()) if at in {step, *steps}
            }

    def back(self, step):
        """The run goes on from the checkpoint of `step`: what was done behind it is lost."""
        with self.lock:
            self._settle()
            mark = next(
                (mark for at, mark in sorted(self.marks.items(), reverse=True) if at <= step),
                dict.fromkeys(WORK, 0.0),
            )
            self.marks = {at: mark for at, mark in self.marks.items() if at <= step}
            for part in WORK:
                self.seconds["lost"] += self.seconds[part] - mark[part]
                self.seconds[part] = mark[part]

    def line(self):
        """The ledger in words."""
        with self.lock:
            self._settle()
            return line(self.seconds, self.starts)

    def _settle(self):
        now = time.monotonic()
        self.seconds[self.part] += now - self.clock
        self.clock = now

    def _beat(self):
        while not self.over.wait(self.every):
            try:
                self._write()
            except OSError as error:  # such as a full disk: `mark` tells it to whoever saves next
                self.error = error
                return

    def _write(self, ended=False):
        if self.path is None or not self.may_write():
            return
        with self.lock:
            self._settle()
            told = {
                "starts": self.starts,
                "until": time.time(),
                "ended": ended,
                "seconds": dict(self.seconds),
                "marks": dict(self.marks),
            }
        write_atomically(self.path, json.dumps(told) + "\n")


def read(path):
    """The ledger at `path` as it was written, or None where there is none that can be read: it is no reason for a run not to go on."""
    path = epath.Path(path)
    if not path.exists():
        return None
    try:
        told = json.loads(path.read_text())
        if (
            told["seconds"].keys() == set(PARTS)
            and {"starts", "until", "ended", "marks"} <= told.keys()
        ):
            return told
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    print(f"{path} cannot be read; the ledger begins anew")
    return None


def line(seconds, starts):
    """One line: the share of computing in the time that the run was up, and the parts, in seconds."""
    up = sum(seconds.values()) - seconds["down"]
    parts = ", ".join(f"{part} {seconds[part]:,.1f}" for part in PARTS if seconds[part] >= 0.05)
    return f"goodput {seconds['step'] / max(up, 1e-9):.1%} of {up:,.1f} s in {starts} start{'s' * (starts > 1)}: {parts}"
