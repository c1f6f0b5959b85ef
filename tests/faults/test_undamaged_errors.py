"""Row 23: an error without proof of damage stops with its own message, moves nothing, and costs
nothing once its cause is gone.
"""

import errno
import os
import shutil
import sys

import jax
import orbax.checkpoint as ocp
import pytest

from pretrain.workdir import checkpoint_record
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.errors import DamagedCheckpoint, NotRestored
from pretrain.workdir.evidence import INVENTORY, find_damage
from pretrain.workdir.read_params import restore_params
from tests import forks
from tests.faults.test_damaged_checkpoint import files_of, read_bits

RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."
UNAVAILABLE = 'UNAVAILABLE: Error reading "params" : failed to connect to all addresses'
ERRORS = {
    "type": TypeError("restore() got an unexpected keyword argument 'mode'"),
    "memory": MemoryError("cannot allocate 8 GiB"),
    "device memory": jax.errors.JaxRuntimeError(RESOURCE_EXHAUSTED),
    "network": ValueError(UNAVAILABLE),
    "credentials": ValueError("UNAUTHENTICATED: the token has expired"),
    "deadline": ValueError("DEADLINE_EXCEEDED: 300 s"),
    "disk": OSError(errno.EIO, "Input/output error"),
    "space": OSError(errno.ENOSPC, "No space left on device"),
    "text of damage": ValueError(
        "DATA_LOSS: Error decoding b-tree node"
    ),  # the files contradict it
    "not found": FileNotFoundError(errno.ENOENT, "No such file or directory"),
    "bare": Exception("Encountered error while reading array index"),
}


def read_contents(workdir):
    """Return {path: bytes and mode} of all files of a workdir's checkpoints."""
    return {
        path.relative_to(workdir): (path.stat().st_mode, path.read_bytes())
        for path in files_of(workdir / "checkpoints")
    }


def assert_untouched(workdir, before):
    assert not (workdir / "damaged").exists() and read_contents(workdir) == before


def fail_in_orbax(error):
    def raise_in_restore(*args, **options):
        raise error

    return raise_in_restore


@pytest.mark.held_by(3)
@pytest.mark.parametrize("name", ERRORS)
def test_an_injected_error_is_reported_as_itself_and_nothing_is_moved(
    copied, restorable, monkeypatch, record_property, name
):
    run, workdir = copied
    shapes, placed = restorable(run)
    before, lines = read_contents(workdir), []
    with monkeypatch.context() as patch:
        patch.setattr(ocp.CheckpointManager, "restore", fail_in_orbax(ERRORS[name]))
        with Checkpoints(workdir) as checkpoints, pytest.raises(NotRestored) as caught:
            checkpoints.restore_state(shapes, placed, report=lines.append)
        with pytest.raises(NotRestored):
            restore_params(workdir, report=lines.append)
    message = str(caught.value)
    assert (
        str(ERRORS[name]).splitlines()[0][:100] in message
        and f"{workdir}/checkpoints/12" in message
    )
    assert "nothing was moved" in message and "\n" not in message and not lines
    assert_untouched(workdir, before)
    with Checkpoints(workdir) as checkpoints:
        assert int(checkpoints.restore_state(shapes, placed, report=lines.append).step) == 12
    record_property("errors that moved nothing", 1)


def test_ctrl_c_while_a_checkpoint_is_read_is_ctrl_c(copied, restorable, monkeypatch):
    run, workdir = copied
    before = read_contents(workdir)
    monkeypatch.setattr(ocp.CheckpointManager, "restore", fail_in_orbax(KeyboardInterrupt()))
    with Checkpoints(workdir) as checkpoints, pytest.raises(KeyboardInterrupt):
        checkpoints.restore_state(*restorable(run))
    assert_untouched(workdir, before)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_record_that_the_system_refuses_to_read_is_not_damage(
    copied, restorable, monkeypatch, code
):
    run, workdir = copied
    before = read_contents(workdir)

    def refuse_record(path, limit):
        assert path.name == "metadata"
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_record, "read_bounded", refuse_record)
        with Checkpoints(workdir) as checkpoints:
            for read in (
                lambda: checkpoints.restore_state(*restorable(run)),
                lambda: checkpoints.load_record(12),
                lambda: checkpoints.load_scores(12),
            ):
                with pytest.raises(NotRestored, match=os.strerror(code)):
                    read()
    assert_untouched(workdir, before)


# ---- the public command, refused by the system --------------------------------


# Even root must obey permissions: bits 1 and 2, CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, are removed
# from its effective and its
# permitted set.
OBEYING = """
import ctypes, os, sys
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        sys.exit("capget failed")
    sets[0] &= ~0b110
    sets[1] &= ~0b110
    if libc.capset(header, sets):
        sys.exit("capset failed")
from pretrain.__main__ import main
sys.exit(main())
"""


def run_python(program, root, *arguments):
    """Run `python -c PROGRAM ARGUMENTS` to its end."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    return forks.run(words, cwd=root, capture_output=True, text=True, timeout=240)


def error_line(done, quiet=True):
    """Return the one line of the error. quiet: no traceback besides, not even from a library that
    cleans up.
    """
    assert done.returncode == 2 and not (quiet and "Traceback" in done.stderr), (
        done.stdout + done.stderr
    )
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


PARTS = {
    "array": lambda step: max(step.glob("params/d/*"), key=lambda path: path.stat().st_size),
    "description": lambda step: step / "optimizer" / "_METADATA",
    "folder": lambda step: step / "params",
    "record": lambda step: step / "record" / "metadata",
}


@pytest.mark.held_by(1)
@pytest.mark.parametrize("part", PARTS)
def test_a_file_without_permission_stops_the_run_and_with_it_the_run_goes_on(
    finished, copied, configured, root, often, part, record_property
):
    """Step 12 is removed, so the run restores 8 and trains on to 12."""
    if part != "array" and not often(0, 1):
        pytest.skip("for the whole board: python -m benchmarks.reliability")
    run, workdir = copied
    shutil.rmtree(workdir / "checkpoints" / "12")
    before = read_contents(workdir)
    locked = PARTS[part](workdir / "checkpoints" / "8")
    mode = locked.stat().st_mode
    locked.chmod(0)
    done = run_python(OBEYING, root, "train", configured("bert")[0], "--workdir", workdir)
    locked.chmod(mode)
    line = error_line(done)
    assert (
        "ermission denied" in line
        and f"{workdir}/checkpoints/8" in line
        and "nothing was moved" in line
    )
    assert_untouched(workdir, before)
    again = run_python(OBEYING, root, "train", configured("bert")[0], "--workdir", workdir)
    assert again.returncode == 0 and "continuing after step 8" in again.stdout + again.stderr, (
        again.stdout + again.stderr
    )
    with (
        Checkpoints(finished[1], read_only=True) as expected,
        Checkpoints(workdir, read_only=True) as seen,
    ):
        for item in ("params", "optimizer"):
            assert seen.load_record(12)[item] == expected.load_record(12)[item]
    record_property("permissions refused and given back", 1)


# No more files can be opened once the checkpoint is read, except as many as the first argument
# allows.
FEW_FILES = """
import os, resource, sys
from pretrain.workdir.checkpoints import Checkpoints
usual, spare = Checkpoints.restore_state, int(sys.argv[1])
def restore(self, *args, **options):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for file in taken[:spare]:
        os.close(file)
    return usual(self, *args, **options)
Checkpoints.restore_state = restore
from pretrain.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.held_by(1)
@pytest.mark.parametrize("spare", [0, 1])
def test_too_many_open_files_stop_the_run(
    copied, configured, root, restorable, spare, often, record_property
):
    if spare == 0 and not often(0, 1):
        pytest.skip("for the whole board: python -m benchmarks.reliability")
    run, workdir = copied
    before = read_contents(workdir)
    done = run_python(
        FEW_FILES,
        root,
        spare,
        "train",
        configured("bert")[0],
        "--workdir",
        workdir,
        "train.steps=14",
    )
    line = error_line(
        done, quiet=False
    )  # asyncio cannot create its event loop, and complains when it is deleted
    assert (
        "oo many open files" in line
        and f"{workdir}/checkpoints/12" in line
        and "nothing was moved" in line
    )
    assert_untouched(workdir, before)
    shapes, placed = restorable(run)
    with Checkpoints(workdir) as checkpoints:
        assert int(checkpoints.restore_state(shapes, placed).step) == 12
    record_property("limits of open files met", 1)


# ---- the proof ---------------------------------------------------------------


def test_the_inventory_is_part_of_the_commit_and_a_sound_checkpoint_has_no_proof_of_damage(
    finished, restorable
):
    run, workdir = finished
    step = workdir / "checkpoints" / "12"
    with Checkpoints(workdir, read_only=True) as checkpoints:
        record = checkpoints.load_record(12)
        folder = checkpoints._locate_step(12)
        state = checkpoints.restore_step(12, *restorable(run), None)
    assert all((step / item / INVENTORY).is_file() for item in ("params", "optimizer"))
    assert find_damage(folder, {item: record[item] for item in ("params", "optimizer")}) is None
    assert read_bits(state)
    changed = {"params": {path: [*row[:2], row[2] ^ 1] for path, row in record["params"].items()}}
    assert "is not what was saved (fingerprint" in find_damage(folder, changed)


def test_real_damage_is_found_whatever_error_it_hides_behind(copied, restorable, monkeypatch):
    run, workdir = copied
    path = workdir / "checkpoints" / "12" / "optimizer" / "_sharding"
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(ocp.CheckpointManager, "restore", fail_in_orbax(ERRORS["bare"]))
    with (
        Checkpoints(workdir, read_only=True) as checkpoints,
        pytest.raises(DamagedCheckpoint, match="_sharding has .* bytes, .* were written"),
    ):
        checkpoints.restore_step(12, *restorable(run), None)


def test_a_step_folder_that_is_gone_is_not_damage(copied, restorable):
    run, workdir = copied
    with Checkpoints(workdir) as checkpoints:
        shutil.rmtree(workdir / "checkpoints" / "12")
        with pytest.raises(NotRestored, match="no such checkpoint"):
            checkpoints.restore_step(12, *restorable(run), None)
