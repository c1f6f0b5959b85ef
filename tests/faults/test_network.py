"""The processes of `local` listen on the loopback address and on nothing else."""

import contextlib
import ipaddress
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from pretrain.workdir import metrics_file
from tests import forks
from tests.command import split_words

ROOT = pathlib.Path(__file__).parents[2]
LISTEN = "0A"  # the state of /proc/net/tcp


def decode_address(text):
    """Return the IP address in a row of /proc/net/tcp: hexadecimal 32-bit words in the machine's
    byte order.
    """
    raw = bytes.fromhex(text)
    words = [raw[i : i + 4] for i in range(0, len(raw), 4)]
    address = ipaddress.ip_address(
        b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    )
    return getattr(address, "ipv4_mapped", None) or address  # ::ffff:127.0.0.1 is 127.0.0.1


def find_descendants(pid):
    found = [pid]
    for parent in found:
        for children in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                found += map(int, children.read_text().split())
    return found


def find_listeners(pid):
    """Return {(address, port)} of the TCP sockets on which a process or a descendant listens."""
    inodes = set()
    for one in find_descendants(pid):
        for file in pathlib.Path(f"/proc/{one}/fd").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                inodes.add(str(file.readlink()))
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        for row in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    ours = [
        row[1].split(":") for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in inodes
    ]
    return {(decode_address(address), int(port, 16)) for address, port in ours}


def network_address():
    """Return an address of this machine that others can reach, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if ipaddress.ip_address(address).is_loopback else address


# Gives the machine another name for this process and those that it starts, then runs the program.
RENAME = """
import ctypes, os, pathlib, socket, sys
NEWUTS, NEWUSER, SET_DUMPABLE = 0x04000000, 0x10000000, 4
libc, ids = ctypes.CDLL(None, use_errno=True), (os.getuid(), os.getgid())
if libc.unshare(NEWUTS | NEWUSER):
    raise OSError(ctypes.get_errno(), "unshare")
libc.prctl(SET_DUMPABLE, 1, 0, 0, 0)  # else /proc hides its files from this user
pathlib.Path("/proc/self/setgroups").write_text("deny")
for name, number in zip(("uid_map", "gid_map"), ids):
    pathlib.Path("/proc/self", name).write_text(f"0 {number} 1")
socket.sethostname("ADDRESS")
"""
RUN = """
from pretrain.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def rename_machine():
    """Return a program that makes the machine's own name resolve to a network interface, or "" if
    that is not permitted.
    """
    address = network_address()
    if address is None:
        return ""
    rename = RENAME.replace("ADDRESS", address)
    command = [sys.executable, "-c", rename + "print(socket.gethostname())"]
    done = forks.run(command, capture_output=True, text=True)
    return rename if done.stdout == f"{address}\n" else ""


@pytest.mark.held_by(1)
@pytest.mark.skipif(
    not pathlib.Path("/proc/net/tcp").exists(), reason="sockets are read from Linux's /proc"
)
@pytest.mark.parametrize("renamed", [False, True])
def test_a_local_run_listens_on_loopback_only(
    renamed, configured, often, tmp_path, record_property
):
    rename = rename_machine()
    if not renamed and rename and often(True, False):
        pytest.skip("the renamed machine is the harder case; both are for the whole board")
    if renamed and not rename:
        pytest.skip("the machine's name cannot be changed for one process here")
    workdir = tmp_path / "run"
    words = split_words(
        f"train {configured('bert')[0]} --workdir {workdir} mesh.data=2 train.steps=100000",
        "evaluate.every=0",
    )
    program = ["-c", rename + RUN] if renamed else ["-m", "pretrain"]
    run = forks.Popen(
        [sys.executable, *program, "local", "2", *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seen, end = set(), time.monotonic() + 180
    try:
        while (
            len(metrics_file.read_metrics(workdir / "metrics.jsonl")) < 3
            and run.poll() is None
            and time.monotonic() < end
        ):
            seen |= find_listeners(run.pid)
            time.sleep(0.1)
        seen |= find_listeners(run.pid)
        run.send_signal(signal.SIGTERM)
        output = run.communicate(timeout=100)[0]
    finally:
        run.kill()
    assert run.returncode == 128 + signal.SIGTERM, output
    assert len(seen) >= 3, f"the coordinator and two processes' collectives listen: {seen}"
    outside = {f"{address}:{port}" for address, port in seen if not address.is_loopback}
    record_property("listening sockets", len(seen))
    record_property("open to the network", len(outside))
    assert not outside
