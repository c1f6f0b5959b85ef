"""Row 19: the memory of a long run does not grow."""

import os
import pathlib
import subprocess
import sys

import numpy as np

# The anonymous memory of the process every ten steps, in kB.
MEASURED = """
import sys
from pretrain.training.logger import RunLog
usual, rows = RunLog.log_step, open(sys.argv[1], "w")
def log_step(self, step, metrics):
    if step % 10 == 0:
        (line,) = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
        print(step, line.split()[1], file=rows, flush=True)
    return usual(self, step, metrics)
RunLog.log_step = log_step
from pretrain.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


def test_two_thousand_batches_sixty_saves_and_ten_evaluations(
    whole, configured, tmp_path, record_property
):
    words = ["train.steps=2000", "checkpoint.every=33", "checkpoint.keep=3", "evaluate.every=200"]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            MEASURED,
            tmp_path / "rows",
            "train",
            configured("bert")[0],
            "--workdir",
            tmp_path / "run",
            *words,
        ],
        cwd=pathlib.Path(__file__).parents[2],
        env={
            name: value for name, value in os.environ.items() if name != "XLA_FLAGS"
        },  # one device
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    step, kilobytes = np.loadtxt(tmp_path / "rows").T
    warm = step > 700  # until then caches fill, and memory of the compilation is returned
    slope = np.polyfit(step[warm], kilobytes[warm] / 1024, 1)[0] * 100
    record_property("kB per 100 steps", round(slope * 1024))
    record_property("MB at the end", round(kilobytes[-1] / 1024))
    assert slope < 1, f"{slope:.2f} MB per 100 steps"
