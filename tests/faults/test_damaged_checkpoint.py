"""Row 3: whatever happens to the files of a finished checkpoint, no wrong value is restored, and
the previous step is used.
"""

import collections
import random
import shutil

import jax
import numpy as np
import pytest

from pretrain.workdir.checkpoints import Checkpoints


def files_of(step):
    return sorted(path for path in step.rglob("*") if path.is_file())


def some_file(step, rng):
    """Every second damaged file is one of the largest, so that arrays and their descriptions are
    both hit.
    """
    files = [path for path in files_of(step) if path.stat().st_size]
    return rng.choices(
        files, [path.stat().st_size for path in files] if rng.random() < 0.5 else None
    )[0]


def flip_bit(step, rng):
    path = some_file(step, rng)
    raw = bytearray(path.read_bytes())
    place = rng.randrange(len(raw))
    raw[place] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    return f"{path.relative_to(step)}, byte {place}"


def truncate_file(step, rng):
    path = some_file(step, rng)
    size = rng.randrange(path.stat().st_size)
    path.write_bytes(path.read_bytes()[:size])
    return f"{path.relative_to(step)} cut to {size}"


def zero_block(step, rng):
    path = some_file(step, rng)
    raw = bytearray(path.read_bytes())
    place = rng.randrange(len(raw))
    raw[place : place + 512] = bytes(len(raw[place : place + 512]))
    path.write_bytes(raw)
    return f"{path.relative_to(step)}, zeros from {place}"


def read_bits(state):
    return [
        np.asarray(leaf).tobytes()
        for leaf in jax.tree.leaves(jax.device_get((state.params, state.optimizer)))
    ]


@pytest.fixture(scope="module")
def saved_bits(finished, restorable):
    """Return {step: its bits}."""
    run, workdir = finished
    shapes, placed = restorable(run)
    with Checkpoints(workdir, read_only=True) as checkpoints:
        return {
            step: read_bits(checkpoints.restore_step(step, shapes, placed, None))
            for step in (8, 12)
        }


def classify_outcome(run, workdir, restorable, sound):
    """Classify the outcome: fell back | harmless (the saved bits, though a file is damaged) |
    silent.
    """
    messages = []
    shapes, placed = restorable(run)
    with Checkpoints(workdir) as checkpoints:
        state = checkpoints.restore_state(shapes, placed, report=messages.append)
    step = int(state.step)
    if read_bits(state) != sound[step]:
        return "silent"
    if step == 12:
        return "harmless" if not messages else "said something of a sound checkpoint"
    return (
        "fell back"
        if len(messages) == 1
        and messages[0].startswith("checkpoint 12 is damaged and is set aside")
        else "fell back without a word"
    )


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("damage", "some", "all"),
    [(flip_bit, 8, 60), (truncate_file, 2, 20), (zero_block, 2, 20), (None, 3, 100)],
    ids=["flips", "cuts", "zeros", "deleted"],
)
def test_no_damage_is_silent(
    finished, saved_bits, restorable, often, tmp_path, record_property, damage, some, all
):
    run, workdir = finished
    rng = random.Random(5)
    names = [path.relative_to(workdir) for path in files_of(workdir / "checkpoints" / "12")]
    if damage is None:
        rng.shuffle(names)
    seen = collections.Counter()
    cases = min(often(some, all), len(names)) if damage is None else often(some, all)
    for i in range(cases):
        copy = tmp_path / "run"
        shutil.copytree(workdir / "checkpoints" / "8", copy / "checkpoints" / "8")
        shutil.copytree(workdir / "checkpoints" / "12", copy / "checkpoints" / "12")
        if damage is None:
            (copy / names[i]).unlink()
            what = f"{names[i]} deleted"
        else:
            what = damage(copy / "checkpoints" / "12", rng)
        result = classify_outcome(run, copy, restorable, saved_bits)
        assert result in ("fell back", "harmless"), f"{what}: {result}"
        seen[result] += 1
        shutil.rmtree(copy)
    record_property("damaged", cases)
    record_property("silent", 0)
    for name, count in seen.items():
        record_property(name, count)


def test_a_damaged_checkpoint_costs_one_line_and_the_run_ends_with_the_same_bits(
    finished, copied, configured, command
):
    _, workdir = copied
    max(
        (workdir / "checkpoints" / "12" / "params").rglob("d/*"),
        key=lambda path: path.stat().st_size,
    ).unlink()
    done = command("train", configured("bert")[0], "--workdir", workdir)
    assert done.returncode == 0
    assert (
        done.stdout.count("\n") == 1 and "checkpoint 12 is damaged and is set aside" in done.stdout
    )
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    with (
        Checkpoints(finished[1], read_only=True) as expected,
        Checkpoints(workdir, read_only=True) as seen,
    ):
        for part in ("params", "optimizer"):
            assert seen.load_record(12)[part] == expected.load_record(12)[part]
