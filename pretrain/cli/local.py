"""local [--devices D] [--restarts R] N VERB ...: N processes of one run on this machine's CPU, as a pod's hosts would be, to try a run of
many hosts without them.

Each process is told of the others by JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID. The first one's output is passed on as
it is, the others' with their number in front. They listen on 127.0.0.1 only. When one ends badly the others are stopped: the run needs all of them. With --restarts all are
started again when one was killed or hung, see `supervise`.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

from pretrain.distributed.process_identity import PARENT
from pretrain.distributed.restarts import Ending, supervise
from pretrain.distributed.watchdog import HUNG

GRACE = 20  # seconds that the others have to end by themselves once one has failed


def add_arguments(parser):
    parser.add_argument("processes", type=int, metavar="N")
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        metavar="D",
        help="fake devices of each process (default 1)",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        default=0,
        metavar="R",
        help="start all again when one died, so often without a new checkpoint (default 0)",
    )
    parser.add_argument(
        "words",
        nargs="...",
        metavar="VERB ...",
        help="a verb and its words, for example: train CONFIG --workdir runs/many",
    )


def run(args):
    if args.processes < 1 or args.devices < 1:
        raise ValueError(f"local --devices {args.devices} {args.processes}: at least one each")
    if args.restarts < 0:
        raise ValueError(f"local --restarts {args.restarts}: 0 or more")
    if not args.words:
        raise ValueError(
            "local N needs a verb to run in each process, for example: local 4 train CONFIG --workdir runs/many"
        )
    return supervise(
        lambda: run_all(args.processes, args.devices, args.words), args.restarts, args.words
    ).code


def run_all(count, devices, words):
    """Run them to their end; returns its `supervise.Ending`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [subprocess.Popen(**command(i, count, devices, port, words)) for i in range(count)]
    readers = [
        threading.Thread(target=pass_on, args=(process, i), daemon=True)
        for i, process in enumerate(processes)
    ]
    for reader in readers:
        reader.start()
    asked = []
    old = {
        number: signal.signal(number, lambda number, _: tell(processes, number, asked))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        first = wait(processes)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        tell(processes, signal.SIGKILL)
    for reader, process in zip(readers, processes):
        reader.join()
        assert process.stdout is not None  # `command` asks for a pipe
        process.stdout.close()
    return Ending(processes[first].returncode, first, bool(asked))


def command(index, count, devices, port, words):
    """What to start as process `index`."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "CLOZE_CLUSTER": "jax",
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(index),
        "PYTHONUNBUFFERED": "1",
        PARENT: str(os.getpid()),
    }
    environment.pop(
        "JAX_COORDINATOR_BIND_ADDRESS", None
    )  # all processes are on this machine: loopback is enough
    return {
        "args": [sys.executable, "-m", "pretrain", *words],
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "errors": "replace",
        "start_new_session": True,  # Ctrl-C reaches this process, which passes it on once
    }


def pass_on(process, index):
    """What a process prints, line by line, but for gloo's greeting."""
    for line in process.stdout:
        if not line.startswith("[Gloo]"):
            sys.stdout.write(line if index == 0 else f"[{index}] {line}")
            sys.stdout.flush()


def wait(processes):
    """Until all have ended, or one has failed and the others did not follow within GRACE seconds; the first that failed, or else 0."""
    first = None
    while any(process.poll() is None for process in processes):
        if first is None and (first := failed(processes)) is not None:
            end = time.monotonic() + GRACE
        if first is not None and time.monotonic() > end:
            tell(processes, signal.SIGKILL)
        time.sleep(0.05)
    return next((one for one in (first, failed(processes)) if one is not None), 0)


def failed(processes):
    """The process that failed, or None. One that died of a signal, or hung, goes before those that noticed: they end with an error."""
    ends = [
        (process.returncode > 0, process.returncode != HUNG, i)
        for i, process in enumerate(processes)
        if process.poll()
    ]
    return min(ends)[-1] if ends else None


def tell(processes, number, noted=None):
    """Send a signal to those that run, and note it."""
    if noted is not None:
        noted.append(number)
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)
