"""Join the other processes of a run before JAX opens a device, and leave them after a failure.

By itself JAX (0.10) aborts with a C++ stack dump if the coordinator cannot be reached, dies of a
segmentation fault if the coordinator's port is in use, and waits 100 s at the end for a process
that hangs.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pretrain.processes.cluster_detection import Cluster, detect_cluster

# Seconds for all processes to join: hosts that pull images start minutes apart.
JOIN_TIMEOUT = 300
EXIT_TIMEOUT = 3  # seconds that a process which has failed gives the others to fail as well
_joined = False  # JAX has a client before it has joined

Result = TypeVar("Result")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the three flags of a command that runs in several processes."""
    group = parser.add_argument_group(
        "one of several processes",
        "for environments that do not describe the processes; all three flags or none",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0")
    group.add_argument("--processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process", type=int, metavar="I", help="index of this process, from 0")


def detect_own_cluster(args: argparse.Namespace | None = None) -> Cluster:
    """Return the cluster that the parsed flags, or else the environment, describe."""
    flags = (args.coordinator, args.processes, args.process) if args else (None, None, None)
    return detect_cluster(os.environ, flags)


def join_run(args: argparse.Namespace | None = None) -> None:
    """Join the processes that the flags or the environment describe, once; none for a single one.

    Raises:
      ValueError: they have not all joined within JOIN_TIMEOUT seconds; the error names the address.
    """
    cluster = detect_own_cluster(args)
    if cluster.note:
        print(cluster.note, file=sys.stderr)
    if cluster.num_processes != 1 and not _joined:
        join_cluster(cluster, JOIN_TIMEOUT)


def join_cluster(cluster: Cluster, seconds: int) -> None:
    """Join the JAX processes of `cluster` within `seconds`, and publish this host's name."""
    global _joined
    import jax

    # JAX ends the process at its own timeout, so it must be the longer one.
    options: dict[str, Any] = {"initialization_timeout": seconds + 60}
    if cluster.num_processes is not None:
        assert cluster.coordinator is not None  # as Cluster.__post_init__ checks
        if cluster.process_index == 0:
            options["coordinator_bind_address"] = choose_bind_address(cluster.coordinator)
            _check_port(cluster, options["coordinator_bind_address"])
        else:
            _wait_for_coordinator(cluster, cluster.coordinator, seconds)
        options |= {
            "coordinator_address": cluster.coordinator,
            "num_processes": cluster.num_processes,
            "process_id": cluster.process_index,
            "local_device_ids": cluster.devices,
            "cluster_detection_method": "deactivate",
        }
    try:
        call_with_timeout(seconds, jax.distributed.initialize, **options)
        _joined = True
        if cluster.coordinator and (host := find_loopback_host(cluster.coordinator)):
            _bind_gloo_to_host(host)
        call_with_timeout(
            seconds,
            get_client().key_value_set,
            f"cloze/host/{get_jax_state().process_id}",
            socket.gethostname(),
        )
    except TimeoutError as error:
        raise ValueError(
            f"{cluster}: not all processes joined within {seconds} s. Do all of them run, and do "
            "they agree on the coordinator and on the number of processes?"
        ) from error


def get_client() -> Any:
    """Return the coordinator's key-value store, or None for a single process.

    It needs neither collectives nor equal numbers of devices.
    """
    return get_jax_state().client if "jax" in sys.modules else None


def get_jax_state() -> Any:
    """Return JAX's record of the processes, with `client` and `process_id`."""
    # The store has no public name (jax 0.10 to 0.12); Orbax and JAX's own multihost_utils use the
    # same one. jax.process_index() would open the devices, which waits for all processes.
    from jax._src.distributed import global_state

    return global_state


def get_host_name(process: int) -> str:
    """Return the name of another process's host; "" if the coordinator does not know it."""
    import jax

    try:
        return call_with_timeout(
            EXIT_TIMEOUT, get_client().key_value_try_get, f"cloze/host/{process}"
        )
    except (TimeoutError, jax.errors.JaxRuntimeError):
        return ""


def exit_process(status: int) -> int:
    """End this process with `status` after a failure, within a few seconds.

    A single process returns `status` instead. JAX's own shutdown waits for all processes, or 100 s
    for one that hangs, and then aborts.
    """
    if get_client() is None:
        return status
    wait_at_exit_barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def shutdown_cluster() -> None:
    """Wait after success until the other processes have finished as well.

    A process that ends first would abort the others. JAX limits the wait. A single process returns
    at once.
    """
    if not _joined or get_client() is None:
        return
    import jax

    try:
        jax.distributed.shutdown()
    except jax.errors.JaxRuntimeError as error:
        print(
            f"the other processes did not end with this one: {str(error).splitlines()[0]}",
            file=sys.stderr,
        )


def wait_at_exit_barrier() -> None:
    """Give the other processes EXIT_TIMEOUT seconds to report their own failures.

    They would be aborted if the coordinator ended first. A single process returns at once.
    """
    if not _joined:
        return
    import jax

    try:
        call_with_timeout(
            EXIT_TIMEOUT + 1, get_client().wait_at_barrier, "cloze/leave", EXIT_TIMEOUT * 1000
        )
        if get_jax_state().process_id == 0:
            time.sleep(0.5)
    except (TimeoutError, jax.errors.JaxRuntimeError):
        print(
            f"the other processes have not ended within {EXIT_TIMEOUT} s; "
            "this process ends without them",
            file=sys.stderr,
        )


def call_with_timeout(
    seconds: float, call: Callable[..., Result], *args: Any, **options: Any
) -> Result:
    """Return call(*args, **options), or raise its error.

    Raises:
      TimeoutError: the call takes longer than `seconds`; its thread keeps running.
    """
    outcomes: list[tuple[Any, Exception | None]] = []

    def run_call() -> None:
        try:
            outcomes.append((call(*args, **options), None))
        except Exception as error:
            outcomes.append((None, error))

    thread = threading.Thread(target=run_call, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcomes:
        raise TimeoutError(f"no answer within {seconds} s")
    value, error = outcomes[0]
    if error:
        raise error
    return value


def find_loopback_host(address: str) -> str | None:
    """Return the loopback address in `host:port`, such as 127.0.0.1.

    It is None if other machines can reach the host.
    """
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return "127.0.0.1"
    try:
        return host if ipaddress.ip_address(host).is_loopback else None
    except ValueError:  # a name
        return None


def choose_bind_address(coordinator: str) -> str:
    """Return the `host:port` on which process 0 listens.

    It is JAX_COORDINATOR_BIND_ADDRESS if set. Otherwise a coordinator on a loopback address listens
    there only, and one that other machines must reach listens on all interfaces.
    """
    port = coordinator.rpartition(":")[2]
    host = find_loopback_host(coordinator) or "::"
    return os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or (
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    )


def _bind_gloo_to_host(host: str) -> None:
    """Let the collectives between CPU devices (gloo) listen on `host`.

    By default gloo listens on the address that the machine's own name resolves to, often a
    network interface's. JAX (0.10 to 0.12) has no option for it, but its CPU client takes
    collectives as an argument.
    """
    import jax
    from jax._src import xla_bridge
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage] - there is no public one
    from jax.extend.backend import register_backend_factory

    def make_client() -> Any:
        # jax.config gets its attributes at run time.
        implementation = jax.config.jax_cpu_collectives_implementation  # pyright: ignore[reportAttributeAccessIssue]
        if implementation != "gloo":
            return xla_bridge.make_cpu_client()
        collectives = _jax.make_gloo_tcp_collectives(distributed_client=get_client(), hostname=host)
        return xla_bridge.make_cpu_client(collectives=collectives)

    register_backend_factory("cpu", make_client, fail_quietly=False)


def _check_port(cluster: Cluster, address: str) -> None:
    """Raise ValueError if process 0 cannot listen on `address`.

    JAX (0.10) would die of a segmentation fault if the port is in use.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        if host in ("", "::"):
            family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
            bind_to: Any = ("", int(port))
        else:
            addresses = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            family, _, _, _, bind_to = addresses[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(bind_to)
    except OSError as error:
        raise ValueError(
            f"{cluster}: its port cannot be opened here: {error.strerror}. Set "
            "JAX_COORDINATOR_PORT to another port"
        ) from error


def _wait_for_coordinator(cluster: Cluster, coordinator: str, seconds: float) -> None:
    """Wait until the coordinator listens, and until its name resolves: pods get names late."""
    host, _, port = coordinator.rpartition(":")
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ValueError(
                    f"{cluster}: the coordinator does not answer within {seconds} s "
                    f"({error.strerror or error}). Does process 0 run on that host, and is the "
                    "port open?"
                ) from error
        time.sleep(0.2)
