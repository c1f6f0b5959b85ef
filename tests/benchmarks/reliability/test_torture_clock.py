"""A program's clock is shifted while it runs, and what it waits for takes as long as before."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from benchmarks.reliability.torture_clock import make_clock, set_clock

PROGRAM = """
import datetime, json, sys, threading, time
print(time.time(), flush=True)
sys.stdin.readline()
seen = {"time": time.time(), "now": datetime.datetime.now().timestamp()}
began = time.monotonic()
with (condition := threading.Condition()):
    condition.wait(0.2)
seen["condition"] = time.monotonic() - began
(lock := threading.Lock()).acquire()
lock.acquire(timeout=0.2)
seen["lock"] = time.monotonic() - began - seen["condition"]
print(json.dumps(seen))
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="the library is compiled by cc")
@pytest.mark.skipif(sys.platform != "linux", reason="the library is Linux's")
def test_the_clock_of_a_running_program_goes_back_and_its_deadlines_do_not(tmp_path):
    file, environment = make_clock(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert abs(float(process.stdout.readline()) - time.time()) < 5
    set_clock(file, -3600)
    output, _ = process.communicate("\n", timeout=60)
    seen = json.loads(output)
    for name in ("time", "now"):
        assert abs(seen[name] + 3600 - time.time()) < 5
    for name in ("condition", "lock"):
        assert 0.15 < seen[name] < 5
