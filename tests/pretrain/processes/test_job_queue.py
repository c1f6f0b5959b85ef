"""A queue of jobs: so many at a time, a failure stops no other, a signal reaches those that run."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from pretrain.processes import job_queue
from pretrain.processes.job_queue import JobQueue, VerbCall


@pytest.fixture
def as_python(monkeypatch):
    """Let the words of a job be a program of Python instead of a verb."""
    monkeypatch.setattr(job_queue, "make_words", lambda argv: [sys.executable, "-S", "-c", *argv])


def make_jobs(folder, **programs):
    return {name: VerbCall([text], str(folder / f"{name}.log")) for name, text in programs.items()}


@pytest.mark.usefixtures("as_python")
@pytest.mark.parametrize("width", [1, 2, 9])
def test_at_most_so_many_run_and_a_failure_stops_no_other(tmp_path, width):
    program = "import time; print('said'); time.sleep(0.2)"
    jobs = make_jobs(tmp_path, a=program, b=f"{program}; raise SystemExit(3)", c=program)
    running, most = set(), 0

    def report(name, status):
        nonlocal most
        (running.add if status is None else running.discard)(name)
        most = max(most, len(running))

    queue = JobQueue(jobs, width, report)
    assert queue.run() == {"a": 0, "b": 3, "c": 0}
    assert most == min(width, 3) and not running
    assert (tmp_path / "c.log").read_text() == "said\n"


WAITS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
open({ready!r}, "w").close()
time.sleep(60)
"""


@pytest.mark.usefixtures("as_python")
def test_a_signal_reaches_those_that_run_and_no_other_starts(tmp_path):
    ready = [tmp_path / "a", tmp_path / "b"]
    jobs = make_jobs(
        tmp_path,
        a=WAITS.format(ready=str(ready[0])),
        b=WAITS.format(ready=str(ready[1])),
        c="open('never', 'w')",
    )

    def stop_when_ready():
        while not all(path.exists() for path in ready):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=stop_when_ready)
    thread.start()
    queue = JobQueue(jobs, 2, lambda name, status: None)
    assert queue.run() == {"a": 143, "b": 143}
    thread.join()
    assert queue.signals == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == before


def test_jobs_end_with_a_queue_that_is_killed(tmp_path, root):
    """By SIGKILL, after which nothing can be forwarded."""
    program = textwrap.dedent("""
        import sys
        from pretrain.processes import job_queue
        from pretrain.processes.job_queue import VerbCall, JobQueue
        job_queue.make_words = lambda argv: [sys.executable, "-c", argv[0]]
        JobQueue({"a": VerbCall([sys.argv[2]], sys.argv[1])}, 1, lambda *_: None).run()
    """)
    child = (
        "import os, time; from pretrain.processes.process_identity import end_with_parent; "
        "end_with_parent(); print(os.getpid(), flush=True); time.sleep(60)"
    )
    log = tmp_path / "a.log"
    environment = os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen([sys.executable, "-c", program, str(log), child], env=environment)
    try:
        while not (log.exists() and log.read_text().endswith("\n")):
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    pid, deadline = int(log.read_text()), time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}/stat"):
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                break
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.05)
