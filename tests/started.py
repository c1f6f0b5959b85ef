"""How quickly a command starts: what it imports, and its time beside a fixed start of Python."""

import json
import resource
import subprocess
import sys

PROGRAM = """
import atexit, json, sys
from pretrain.__main__ import main
path = sys.argv[1]
atexit.register(lambda: open(path, "w").write(json.dumps([*sys.modules])))
sys.exit(main(sys.argv[2:]))
"""
SLOW = {"jax", "flax", "orbax", "optax", "tensorflow", "torch", "transformers", "matplotlib"}


def run_and_list_modules(words, root, folder):
    """Return (finished process, names of the modules that a verb imports), from a process of its own."""
    path = folder / "modules.json"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), *words], cwd=root, capture_output=True, text=True
    )
    modules = {*json.loads(path.read_text())}
    assert not SLOW & modules, SLOW & modules
    return done, modules


def compare_start(words, root):
    """Return the CPU time of a verb, as a multiple of importing three libraries, in turns.

    The shorter of two each, so that neither a slow machine nor a busy one counts.
    """
    verb, fixed = ["-m", "pretrain", *words], ["-c", "import numpy, asyncio, unittest.mock"]
    times = [(measure_start(verb, root), measure_start(fixed, root)) for _ in range(2)]
    ours, theirs = map(min, zip(*times, strict=True))
    return ours / theirs


def measure_start(words, root):
    """Return the CPU seconds of a process of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=root, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
