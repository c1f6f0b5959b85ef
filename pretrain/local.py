"""local [--devices D] N VERB ...: N processes of one run on this machine's CPU, as a pod's hosts would be, to try a run of many hosts without them.

Each process is told of the others by JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID. The first one's output is passed on as
it is, the others' with their number in front. When one ends badly the others are stopped: the run needs all of them.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

GRACE = 20  # seconds that the others have to end by themselves once one has failed


def add_arguments(parser):
    parser.add_argument("processes", type=int, metavar="N")
    parser.add_argument("--devices", type=int, default=1, metavar="D", help="fake devices of each process (default 1)")
    parser.add_argument("words", nargs="...", metavar="VERB ...", help="a verb and its words, for example: train bert_tiny --workdir runs/many")


def run(args):
    if args.processes < 1 or args.devices < 1:
        raise ValueError(f"local --devices {args.devices} {args.processes}: at least one each")
    if not args.words:
        raise ValueError("local N needs a verb to run in each process, for example: local 4 train bert_tiny --workdir runs/many")
    return run_all(args.processes, args.devices, args.words)


def run_all(count, devices, words):
    """The exit status of the first process that failed, or 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [subprocess.Popen(**command(i, count, devices, port, words)) for i in range(count)]
    readers = [threading.Thread(target=pass_on, args=(process, i), daemon=True) for i, process in enumerate(processes)]
    for reader in readers:
        reader.start()
    old = {number: signal.signal(number, lambda number, _: tell(processes, number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        status = wait(processes)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        tell(processes, signal.SIGKILL)
    for reader, process in zip(readers, processes):
        reader.join()
        process.stdout.close()
    return status


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
    }
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
    """Until all have ended, or one has failed and the others did not follow within GRACE seconds."""
    status, failed_at = 0, None
    while any(process.poll() is None for process in processes):
        if failed_at is None and (failed := [process for process in processes if process.poll()]):
            status, failed_at = failed[0].returncode, time.monotonic()
        if failed_at is not None and time.monotonic() > failed_at + GRACE:
            tell(processes, signal.SIGKILL)
        time.sleep(0.05)
    status = status or next((process.returncode for process in processes if process.returncode), 0)
    return 128 - status if status < 0 else status


def tell(processes, number):
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)
