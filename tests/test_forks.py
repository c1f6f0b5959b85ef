"""A fork of an imported process equals the process that `subprocess` would have started."""

import os
import signal
import subprocess
import sys

import pytest

from tests import forks

pytestmark = pytest.mark.slow

REPORT_PROGRAM = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["TOLD"], os.getppid(), os.getsid(0) == os.getpid())
sys.exit("ended")
"""


@pytest.mark.parametrize("has_session", [False, True])
def test_a_fork_does_what_a_process_does(tmp_path, has_session):
    words = [sys.executable, "-c", REPORT_PROGRAM, "one", "two"]
    done = []
    for popen in (forks.Popen, subprocess.Popen):
        with popen(
            words,
            cwd=tmp_path,
            env=os.environ | {"TOLD": "this"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=has_session,
            text=True,
        ) as process:
            done.append((*process.communicate(), process.returncode))
    assert done[0] == done[1] and done[0][1:] == ("ended\n", 1), done
    assert f"{tmp_path} this {os.getpid()} {has_session}" in done[0][0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_a_fork(number):
    program = "import time; print('here', flush=True); time.sleep(100)"
    process = forks.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n" and process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == -number


def test_a_process_that_would_import_otherwise_is_started(monkeypatch):
    program = [sys.executable, "-c", "import sys; print('jax' in sys.modules)"]
    assert forks.run(program, capture_output=True, text=True).stdout == "True\n"
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    assert forks.run(program, capture_output=True, text=True).stdout == "False\n"
