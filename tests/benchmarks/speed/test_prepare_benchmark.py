"""The memory of `prepare` counts its own processes, not the benchmark which starts it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.speed import prepare

pytestmark = pytest.mark.fast
STUB = """
import subprocess, sys
def main(words):
    code = "import time; held = bytearray(60 << 20); time.sleep(0.5)"
    return subprocess.run([sys.executable, "-c", code]).returncode
"""


def test_the_peak_of_a_process_is_not_that_of_its_parent(tmp_path):
    (tmp_path / "pretrain").mkdir()
    (tmp_path / "pretrain" / "__init__.py").touch()
    (tmp_path / "pretrain" / "__main__.py").write_text(STUB)
    (tmp_path / "run.py").write_text(prepare.COMMAND)
    held = np.ones(300 << 20, np.uint8)  # this process's
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py"], stdout=subprocess.PIPE, text=True, check=True
    )
    main, worker = (peak / 1024 for peak in json.loads(done.stdout)["peaks"])
    assert held.nbytes / 2**20 > 200 > main and 60 < worker < 200
