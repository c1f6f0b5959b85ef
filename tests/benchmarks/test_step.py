"""Both sides of the comparison get the same batch, and one that the treaty allows; workers answer in turns and their end is told."""

import sys

import numpy as np
import pytest

from benchmarks.harness import Worker, forget, interleaved, memory
from benchmarks.step import DEVICES, batch_of
from benchmarks.step_cloze import configured
from data import batches

ECHO = """
from benchmarks.harness import answer

def serve():
    seen = []
    def step(steps):
        seen.append(steps)
        print("a library's chatter")
        if steps > 9:
            raise SystemExit(3)
        return {"seen": seen}
    return {"ready": {"loss": 1.0}, "step": step}

answer(serve)
"""


@pytest.mark.parametrize(("device", "name"), [(device, name) for device, (cases, _) in DEVICES.items() for name in cases])
@pytest.mark.parametrize("length", [128, 512])
def test_the_batch_is_what_the_treaty_says(device, name, length):
    family, words, *rows = DEVICES[device][0][name]
    batch = batch_of(family, length, rows[length == 512])
    case = {"family": family, "model": words, "length": length, "rows": rows[length == 512], "compute": "float32"}
    run = configured(case, {key: value.shape for key, value in batch.items()})
    batches.check(batch, run.data.objective, run.data.batch_size)
    if family == "bert":
        assert (np.diff(batch["positions"]) > 0).all()


def test_workers_take_turns():
    with Worker([sys.executable, "-c", ECHO]) as one, Worker([sys.executable, "-c", ECHO]) as other:
        assert one.hear() == other.hear() == {"loss": 1.0}
        found = interleaved({"one": one, "other": other}, 2, steps=4)
        assert found == {name: [{"seen": [4]}, {"seen": [4, 4]}] for name in ("one", "other")}
        with pytest.raises(RuntimeError, match="ended with status 3"):
            one.ask(steps=10)


def test_what_a_start_held_is_not_the_steps():
    block = np.ones(64 << 20, np.uint8)
    held = memory()
    del block
    assert forget() > held - 1
    assert memory() < held - 32
