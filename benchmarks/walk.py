"""List the source files that one batch, or one parameter, passes through.

    python -m benchmarks.walk batch
    python -m benchmarks.walk parameter

These are the files with a function that receives or returns it. A batch is followed from the rows
of a token store to two training steps; the token embedding table from its initialisation through a
step, a checkpoint, a restart, an export to Hugging Face's format and an import. Both are
recognised by their shapes, which are unique in the run. docs/architecture.md has the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT
from pretrain.__main__ import main as run_verb
from pretrain.config import load

if TYPE_CHECKING:
    from pretrain.config import Run

ROOMS = tuple(f"{ROOT / room}/" for room in ("data", "models", "pretrain"))
DEPTH, ITEMS = 8, 64  # limits of the search in containers
UNIQUE_SHAPES = ("data.batch_size=40",)  # bert_tiny's 128 is also its width and its positions


def list_arrays(value: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Yield the arrays in a value and in the dicts, tuples, lists and states inside it."""
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
def record_files(has_shape: Callable[[tuple[int, ...]], bool]) -> Iterator[dict[str, str]]:
    """Record the functions that are called while the context is open.

    Yields:
      {file: its first function that receives or returns an array with a matching shape}, in the
      order of the calls.
    """
    functions: dict[str, str] = {}

    def record_call(frame: FrameType, event: str, returned: Any) -> None:
        path = frame.f_code.co_filename
        if event not in ("call", "return") or not path.startswith(ROOMS):
            return
        name = str(pathlib.Path(path).relative_to(ROOT))
        if name in functions:
            return
        values = [*frame.f_locals.values(), returned if event == "return" else None]
        if any(has_shape(array.shape) for value in values for array in list_arrays(value)):
            functions[name] = frame.f_code.co_name

    sys.setprofile(record_call)
    try:
        yield functions
    finally:
        sys.setprofile(None)


def walk_batch(folder: pathlib.Path, store: str, run: Run) -> dict[str, str]:
    """Return the files that a batch passes through."""
    from data.pipeline import Stream
    from data.store.reader import Store

    objective: Any = run.data.objective
    rows = run.data.batch_size, objective.axis_sizes()["L"]
    stream = Stream(Store.open(store), run.data)
    with record_files(
        lambda shape: shape[:2] == rows or (shape[:1], len(shape)) == (rows[:1], 2)
    ) as functions:
        stream.build_batch(0)  # in training TensorFlow's threads make it, which are not profiled
        train_tiny(folder / "run", store, 2)
    return functions


def walk_parameter(folder: pathlib.Path, store: str, run: Run) -> dict[str, str]:
    """Return the files that the token embedding table passes through."""
    model: Any = run.model
    table = model.vocab, model.width
    with record_files(lambda shape: shape == table) as functions:
        train_tiny(folder / "run", store, 1)
        train_tiny(folder / "run", store, 2)
        run_verb(["export", "--workdir", f"{folder}/run", "--output", f"{folder}/exported"])
        run_verb(["import", f"{folder}/exported", "--workdir", f"{folder}/imported"])
    return functions


def train_tiny(workdir: pathlib.Path, store: str, steps: int) -> None:
    """Train bert_tiny up to a step."""
    overrides = [f"data.store={store}", f"train.steps={steps}", "evaluate.every=0", *UNIQUE_SHAPES]
    assert run_verb(["train", "bert_tiny", "--workdir", str(workdir), *overrides]) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("batch", "parameter"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        assert run_verb(["prepare", "builtin", "--output", store, "--vocab-size", "4096"]) == 0
        run = load("bert_tiny", [f"data.store={store}", *UNIQUE_SHAPES])
        walk = walk_batch if args.what == "batch" else walk_parameter
        functions = walk(pathlib.Path(folder), store, run)
    for path, function in functions.items():
        print(f"{path:<50} {function}")
    print(f"{len(functions)} files")


if __name__ == "__main__":
    main()
