"""The processes of `local` listen on the loopback address and on nothing else."""

import contextlib
import ipaddress
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from pretrain.workdir import metrics_file

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


def rename_machine():
    """Return a command prefix that makes the machine's own name resolve to a network interface; []
    if that is not permitted.
    """
    address = network_address()
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--uts",
        "sh",
        "-c",
        f'hostname {address} && exec "$@"',
        "sh",
    ]
    if (
        address is None
        or not shutil.which("unshare")
        or subprocess.run([*words, "true"], capture_output=True).returncode
    ):
        return []
    return words


@pytest.mark.skipif(
    not pathlib.Path("/proc/net/tcp").exists(), reason="sockets are read from Linux's /proc"
)
@pytest.mark.parametrize("renamed", [False, True])
def test_a_local_run_listens_on_loopback_only(
    renamed, configured, often, tmp_path, record_property
):
    prefix = rename_machine()
    if not renamed:
        if prefix and often(True, False):
            pytest.skip("the renamed machine is the harder case; both are for the whole board")
        prefix = []
    if renamed and not prefix:
        pytest.skip("the machine's name cannot be changed for one process here")
    workdir = tmp_path / "run"
    words = [
        "train",
        configured("bert")[0],
        "--workdir",
        workdir,
        "mesh.data=2",
        "train.steps=100000",
        "evaluate.every=0",
    ]
    run = subprocess.Popen(
        [*prefix, sys.executable, "-m", "pretrain", "local", "2", *map(str, words)],
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
