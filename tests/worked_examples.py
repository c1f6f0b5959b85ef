"""Pages of docs/ that are worked examples: their blocks are files, added to a copy of the program,
in which commands are run.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
WORDS = "the a fox dog river stone runs sees near old".split()
# One process: what is imported and compiled once serves all the commands.
HEAD = """
from pretrain.__main__ import main

def run(*words):
    status = main([str(word) for word in words])
    assert status == 0, (words, status)

run("prepare", "text.txt", "--output", "store", "--vocab-size", 64, "--algorithm", "bpe", "--document", "record",
    "--workers", 1, "--held-out", 0.2)
"""


def read_blocks(page) -> dict[str, str]:
    """Return {file: text} of the page's blocks whose first line names a file."""
    text = (ROOT / page).read_text()
    return dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", text, flags=re.S))


def write_texts(place) -> list[str]:
    """Write text.txt, one text a line, and return the texts."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, int(rng.integers(4, 9)))) + "." for _ in range(200)]
    (place / "text.txt").write_text("\n".join(texts))
    return texts


def run_commands(place, page, script) -> str:
    """Copy the program to a folder, add the page's files, run `script` after HEAD, and return its
    output.
    """
    for folder in ("models", "data", "pretrain", "configs"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in read_blocks(page).items():
        assert not (place / name).exists()
        (place / name).write_text(text)
    own = {
        "PYTHONPATH": str(place),
        "JAX_PLATFORMS": "cpu",
        "COLUMNS": "160",
        # Compile as in the tests, on one device.
        "XLA_FLAGS": re.sub(
            r"--xla_force_host_platform_device_count=\d+", "", os.environ["XLA_FLAGS"]
        ),
    }
    command = [sys.executable, "-c", HEAD + script]
    done = subprocess.run(command, cwd=place, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
