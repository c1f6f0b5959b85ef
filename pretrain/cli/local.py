"""local [--devices D] [--restarts R] N VERB ...: run a verb in N processes on this machine's CPU.

This tries a run of many hosts on one machine, as on the hosts of a pod.

Each process gets the addresses of the others from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and
JAX_PROCESS_ID. The first process's output is printed unchanged, the others' with their number
as a prefix. They listen on 127.0.0.1 only. When one fails, the others are stopped, because the run
needs all of them. With --restarts all are started again after one was killed or hung; see
`supervise_restarts`.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from pretrain.processes.child_process import make_environment, make_words
from pretrain.processes.restarts import Ending, list_heard_stops, supervise_restarts
from pretrain.processes.watchdog import HUNG

GRACE = 20  # seconds that the others have to end by themselves once one has failed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `local` to a parser."""
    parser.add_argument("processes", type=int, metavar="N", help="number of processes")
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        metavar="D",
        help="simulated CPU devices per process (default: %(default)s)",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        default=0,
        metavar="R",
        help="start all processes again when one is killed or hangs, at most R times without a "
        "new checkpoint (default: %(default)s)",
    )
    parser.add_argument(
        "argv",
        nargs="...",
        metavar="VERB ...",
        help="verb and its arguments, e.g. train CONFIG --workdir runs/many",
    )


def run(args: argparse.Namespace) -> int:
    """Run the processes until all have ended; return the exit status of the first that failed."""
    if args.processes < 1 or args.devices < 1:
        raise ValueError(
            f"local --devices {args.devices} {args.processes}: both must be at least 1"
        )
    if args.restarts < 0:
        raise ValueError(f"local --restarts {args.restarts}: must be at least 0")
    if not args.argv:
        raise ValueError(
            "local N needs a verb to run in each process, e.g. local 4 train CONFIG "
            "--workdir runs/many"
        )
    return supervise_restarts(
        lambda: run_processes(args.processes, args.devices, args.argv), args.restarts, args.argv
    ).exit_code


def run_processes(count: int, devices: int, argv: Sequence[str]) -> Ending:
    """Run `count` processes until all have ended; return how the first one to fail ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(**build_command(i, count, devices, port, argv)) for i in range(count)
    ]
    readers = [
        threading.Thread(target=forward_output, args=(process, i), daemon=True)
        for i, process in enumerate(processes)
    ]
    for reader in readers:
        reader.start()
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: send_signal(processes, number, received))
        for number in list_heard_stops()
    }
    try:
        first = wait_for_processes(processes)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        send_signal(processes, signal.SIGKILL)
    for reader, process in zip(readers, processes):
        reader.join()
        assert process.stdout is not None  # `build_command` requests a pipe
        process.stdout.close()
    return Ending(processes[first].returncode, first, bool(received))


def build_command(
    index: int, count: int, devices: int, port: int, argv: Sequence[str]
) -> dict[str, Any]:
    """Return the keyword arguments of `subprocess.Popen` for process `index`."""
    environment = make_environment() | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "CLOZE_CLUSTER": "jax",
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(index),
    }
    # All processes are on this machine: loopback is enough.
    environment.pop("JAX_COORDINATOR_BIND_ADDRESS", None)
    return {
        "args": make_words(argv),
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "errors": "replace",
        "start_new_session": True,  # Ctrl-C reaches this process only, which forwards it once
    }


def forward_output(process: subprocess.Popen[str], index: int) -> None:
    """Print the output of a process line by line, without the banner of gloo."""
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith("[Gloo]"):
            sys.stdout.write(line if index == 0 else f"[{index}] {line}")
            sys.stdout.flush()


def wait_for_processes(processes: Sequence[subprocess.Popen[str]]) -> int:
    """Wait until all processes have ended; return the index of the first that failed, or 0.

    GRACE seconds after one has failed, those that still run are killed.
    """
    first, deadline = None, 0.0
    while any(process.poll() is None for process in processes):
        if first is None and (first := find_failed_process(processes)) is not None:
            deadline = time.monotonic() + GRACE
        if first is not None and time.monotonic() > deadline:
            send_signal(processes, signal.SIGKILL)
        time.sleep(0.05)
    return next(
        (index for index in (first, find_failed_process(processes)) if index is not None), 0
    )


def find_failed_process(processes: Sequence[subprocess.Popen[str]]) -> int | None:
    """Return the index of the process that failed, or None.

    A process that was killed by a signal or hung precedes those that noticed it and ended with an
    error.
    """
    ends = [
        (process.returncode > 0, process.returncode != HUNG, i)
        for i, process in enumerate(processes)
        if process.poll()
    ]
    return min(ends)[-1] if ends else None


def send_signal(
    processes: Sequence[subprocess.Popen[str]], number: int, received: list[int] | None = None
) -> None:
    """Send a signal to the processes that still run, and append its number to `received`."""
    if received is not None:
        received.append(number)
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)
