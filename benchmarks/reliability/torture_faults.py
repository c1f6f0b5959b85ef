"""Carry out the faults of a schedule on a run."""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import time

from benchmarks.reliability import torture_damage as damage
from benchmarks.reliability import torture_schedule as plan
from benchmarks.reliability.torture_clock import set_clock
from benchmarks.reliability.torture_run import (
    Failed,
    TorturedRun,
    fill_disk,
    find_newest,
    list_steps,
    wait_at_most,
)
from benchmarks.reliability.torture_schedule import Fault
from pretrain.workdir.step_lines import read_step_lines

# Files of a workdir that a start reads.
READ_FILES = (
    *("config.json", "source.json", "goodput.json", "environment.jsonl"),
    "vocabulary/vocabulary.json",
)


def befall_run(run: TorturedRun, fault: Fault) -> None:
    """Let a fault befall a run and add it to its history.

    Raises Failed where the outcome is not allowed, or a sound checkpoint is lost.
    """
    before, began = find_newest(run.workdir), time.monotonic()
    if fault.kind in plan.INSIDE:
        outcome = cause_inside(run, fault)
    elif fault.kind in plan.DAMAGES:
        outcome = damage_between(run, fault)
    else:
        outcome = METHODS.get(fault.kind, send_signal)(run, fault)
    (run.disk / "ballast").unlink(missing_ok=True)
    after, seconds = find_newest(run.workdir), time.monotonic() - began
    run.history.append(f"{fault}: {outcome}, step {before} -> {after}, {seconds:.1f} s")
    if outcome.startswith("nothing to"):
        return
    run.counts[fault.kind] = run.counts.get(fault.kind, 0) + 1
    if fault.kind == "checkpoint":
        run.is_newest_damaged = True
    elif after < before and not run.is_newest_damaged:
        raise Failed(f"{fault}: the newest checkpoint was {before} and is {after}")
    elif after != before:
        run.is_newest_damaged = False


def cause_inside(run: TorturedRun, fault: Fault) -> str:
    step = fault.locate_step(find_newest(run.workdir))
    word = f"{fault.kind}:{fault.moment}:{step}"
    process = run.start_process(word, fault.devices, fault.batch_size)
    return f"step {step}, status {run.await_end(process, fault.kind)}"


def start_for(run: TorturedRun, fault: Fault) -> subprocess.Popen[str]:
    """Start the process of a fault from outside, and wait for the fault's moment or its end."""
    process = run.start_process("none", fault.devices, fault.batch_size)
    wait_at_most(process, fault.share * run.pace)
    return process


def send_signal(run: TorturedRun, fault: Fault) -> str:
    process = start_for(run, fault)
    process.send_signal(signal.Signals[fault.kind])
    return f"status {run.await_end(process, fault.kind)}"


def stop_and_continue(run: TorturedRun, fault: Fault) -> str:
    process, rng = start_for(run, fault), random.Random(fault.seed)
    process.send_signal(signal.SIGSTOP)
    time.sleep(rng.uniform(0.2, 3))
    process.send_signal(signal.SIGCONT)
    wait_at_most(process, rng.uniform(0, 2))
    process.send_signal(signal.SIGTERM)
    return f"status {run.await_end(process, fault.kind)}"


def fill_while_running(run: TorturedRun, fault: Fault) -> str:
    process = start_for(run, fault)
    fill_disk(run.disk, random.Random(fault.seed).choice((0, 4_000, 50_000, 400_000)))
    return f"status {run.await_end(process, fault.kind)}"


def make_folder_read_only(run: TorturedRun, fault: Fault) -> str:
    process = start_for(run, fault)
    folder = random.Random(fault.seed).choice((run.workdir, run.workdir / "checkpoints"))
    if not folder.is_dir():
        process.kill()
        process.wait()
        return f"nothing to make read-only: {folder.name} is not made yet"
    subprocess.run(["chattr", "+i", str(folder)], check=True)
    try:
        return f"{folder.name}, status {run.await_end(process, fault.kind)}"
    finally:
        process.kill()
        subprocess.run(["chattr", "-i", str(folder)], check=True)


def start_on_read_only_disk(run: TorturedRun, fault: Fault) -> str:
    subprocess.run(["mount", "-o", "remount,ro", str(run.disk)], check=True)
    try:
        process = run.start_process("none", fault.devices, fault.batch_size)
        return f"status {run.await_end(process, fault.kind)}"
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(run.disk)], check=True)


def overwrite_lease(run: TorturedRun, fault: Fault) -> str:
    process = start_for(run, fault)
    lease, rng = run.workdir / "lease", random.Random(fault.seed)
    if not lease.exists() or process.poll() is not None:
        process.kill()
        process.wait()
        return "nothing to overwrite: no lease"
    lease.write_bytes(rng.randbytes(rng.randint(0, 400)))
    return f"status {run.await_end(process, fault.kind)}"


def shift_clock(run: TorturedRun, fault: Fault) -> str:
    """Set the clock back while the run goes on; the next such fault sets it right again."""
    assert run.clock
    rng = random.Random(fault.seed)
    run.clock_shift = 0 if run.clock_shift else -rng.choice((90, 3_600, 86_400, 30 * 86_400))
    process = start_for(run, fault)
    set_clock(run.clock, run.clock_shift)
    wait_at_most(process, rng.uniform(0, run.pace))
    process.kill()
    return f"by {run.clock_shift:,} s, status {run.await_end(process, fault.kind)}"


def start_two_writers(run: TorturedRun, fault: Fault) -> str:
    rng = random.Random(fault.seed)
    first = run.start_process("none", fault.devices, fault.batch_size)
    wait_at_most(first, rng.choice((0.0, fault.share * run.pace)))
    second = run.start_process("none", fault.devices, fault.batch_size)
    wait_at_most(first, rng.uniform(0, run.pace))
    first.kill()
    wait_at_most(second, rng.uniform(0, run.pace))
    second.kill()
    return f"statuses {[run.await_end(process, fault.kind) for process in (first, second)]}"


def take_over(run: TorturedRun, fault: Fault) -> str:
    rng, first = random.Random(fault.seed), start_for(run, fault)
    first.send_signal(signal.SIGSTOP)
    second = run.start_process("none", fault.devices, fault.batch_size, FAULTY_MACHINE="another")
    wait_at_most(second, 3 + rng.uniform(0, run.pace))
    first.send_signal(signal.SIGCONT)
    wait_at_most(first, run.pace)
    for process in (first, second):
        process.kill()
    statuses = [run.await_end(process, fault.kind) for process in (first, second)]
    return f"statuses {statuses}"


def start_with_damaged_store(run: TorturedRun, fault: Fault) -> str:
    assert run.store
    rng = random.Random(fault.seed)
    path = rng.choice(sorted(path for path in run.store.rglob("*") if path.is_file()))
    return start_with_damage(run, fault, path, rng)


def start_with_damaged_file(run: TorturedRun, fault: Fault) -> str:
    rng = random.Random(fault.seed)
    paths = [run.workdir / name for name in READ_FILES if (run.workdir / name).exists()]
    if not paths:
        return "nothing to damage"
    return start_with_damage(run, fault, rng.choice(paths), rng)


def start_with_damage(
    run: TorturedRun, fault: Fault, path: pathlib.Path, rng: random.Random
) -> str:
    """Start with a damaged file; restore it unless the start has replaced it."""
    whole = path.read_bytes()
    what = damage.damage_file(path, rng)
    damaged = path.read_bytes() if path.exists() else None
    process = start_for(run, fault)
    process.kill()
    status = run.await_end(process, fault.kind)
    if (path.read_bytes() if path.exists() else None) == damaged:
        path.write_bytes(whole)
    return f"{what}, status {status}"


def damage_between(run: TorturedRun, fault: Fault) -> str:
    rng, name = random.Random(fault.seed), fault.kind
    if name == "checkpoint":
        steps = list_steps(run.workdir)
        if len(steps) < 2 or run.is_newest_damaged:
            return "nothing to damage: no two sound checkpoints"
        return damage.damage_checkpoint(run.workdir / "checkpoints" / str(steps[-1]), rng)
    path = run.workdir / name
    if name == "lease" and run.workdir.is_dir():
        path.write_bytes(rng.randbytes(rng.choice((0, 1, 60, 5_000))))
        return f"random bytes, {path.stat().st_size:,}"
    if not path.exists():
        return "nothing to damage: no such file"
    before = {row["step"] for row in read_step_lines(path)[0]}
    what = damage.damage_file(path, rng)
    after = {row["step"] for row in read_step_lines(path)[0]}
    if name == "metrics.jsonl":
        run.lost_steps |= before - after
    return f"{what}, {len(before - after)} lines of {len(before)} lost"


METHODS = {
    "SIGSTOP": stop_and_continue,
    "disk filled": fill_while_running,
    "folder made read-only": make_folder_read_only,
    "disk read-only": start_on_read_only_disk,
    "lease overwritten": overwrite_lease,
    "clock set back": shift_clock,
    "two writers": start_two_writers,
    "taken over": take_over,
    "store damaged": start_with_damaged_store,
    "workdir file damaged": start_with_damaged_file,
}
