"""What a command imports: it starts quickly if that is little, on a busy machine too."""

import json
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
