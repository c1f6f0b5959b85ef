"""Which files one batch, and one parameter, pass through: those of which a function is handed it, or returns it.

    python -m benchmarks.walk batch
    python -m benchmarks.walk parameter

A batch is followed from the rows of a token store to two training steps; the table of token embeddings from its first values through a
step, a checkpoint, a restart and an export to Hugging Face's names, and back in. Both are known by their shapes, which nothing else in the
run has. docs/architecture.md shows the figures.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile

from pretrain.__main__ import main as run_verb
from pretrain.config import load

ROOT = pathlib.Path(__file__).parent.parent
ROOMS = tuple(f"{ROOT / room}/" for room in ("data", "models", "pretrain"))
DEPTH, ITEMS = 8, 64  # of containers that are looked into


def list_arrays(value, depth=DEPTH):
    """Yield the arrays in a value, and in the dicts, tuples, lists and states that it holds."""
    if isinstance(getattr(value, "shape", None), tuple):
        yield value
    elif depth and isinstance(value, dict):
        for item in list(value.values())[:ITEMS]:
            yield from list_arrays(item, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for item in value[:ITEMS]:
            yield from list_arrays(item, depth - 1)
    elif depth and hasattr(value, "params"):
        yield from list_arrays(value.params, depth - 1)


@contextlib.contextmanager
def record_files(has_shape):
    """Yield {file: its first function that is handed, or returns, an array whose shape fits}, in order; filled while the block runs."""
    seen = {}

    def profile(frame, event, returned):
        path = frame.f_code.co_filename
        if event not in ("call", "return") or not path.startswith(ROOMS):
            return
        name = str(pathlib.Path(path).relative_to(ROOT))
        if name in seen:
            return
        values = [*frame.f_locals.values(), returned if event == "return" else None]
        if any(has_shape(array.shape) for value in values for array in list_arrays(value)):
            seen[name] = frame.f_code.co_name

    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def walk_batch(folder, store, run):
    """Return the files that a batch passes."""
    from data.pipeline import Stream
    from data.store.reader import Store

    rows = run.data.batch_size, run.data.objective.dims()["L"]
    stream = Stream(Store.open(store), run.data)
    with record_files(
        lambda shape: shape[:2] == rows or (shape[:1], len(shape)) == (rows[:1], 2)
    ) as seen:
        stream.batch(0)  # TensorFlow's threads, in which it is otherwise made, are not seen
        train(folder / "run", store, 2)
    return seen


def walk_parameter(folder, store, run):
    """Return the files that the table of token embeddings passes."""
    table = run.model.vocab, run.model.width
    with record_files(lambda shape: shape == table) as seen:
        train(folder / "run", store, 1)
        train(folder / "run", store, 2)
        run_verb(["export", "--workdir", f"{folder}/run", "--output", f"{folder}/exported"])
        run_verb(["import", f"{folder}/exported", "--workdir", f"{folder}/imported"])
    return seen


def train(workdir, store, steps):
    words = [f"data.store={store}", f"train.steps={steps}", "evaluate.every=0"]
    assert run_verb(["train", "bert_tiny", "--workdir", str(workdir), *words]) == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("batch", "parameter"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        assert run_verb(["prepare", "builtin", "--output", store, "--vocab-size", "4096"]) == 0
        run = load("bert_tiny", [f"data.store={store}"])
        walk = walk_batch if args.what == "batch" else walk_parameter
        seen = walk(pathlib.Path(folder), store, run)
    for path, function in seen.items():
        print(f"{path:<50} {function}")
    print(f"{len(seen)} files")


if __name__ == "__main__":
    main()
