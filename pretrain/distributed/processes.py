"""Joining the other processes of a run before JAX touches a device, and leaving them when something went wrong.

Left to itself, JAX (0.10) aborts with a dump of C++ where the coordinator cannot be reached, dies of a segmentation fault where its port
is taken, and waits 100 s at the end for a process that hangs.
"""

import ipaddress
import os
import socket
import sys
import threading
import time
from typing import Any

from pretrain.distributed.cluster_detection import recognise

WAIT = 300  # seconds for all processes to come together: hosts of a cluster start minutes apart when images are pulled
LEAVE = 3  # seconds that a process which has failed gives the others to fail as well
_joined = False  # JAX has a client before it has joined


def add_arguments(parser):
    """The three flags, for a verb that runs in many processes."""
    group = parser.add_argument_group(
        "one of several processes",
        "where nothing in the environment tells of them; all three or none",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    group.add_argument("--processes", type=int, metavar="N", help="how many there are")
    group.add_argument("--process", type=int, metavar="I", help="which this one is, from 0")


def seen_by(args=None):
    """The Cluster that a verb's parsed words, or else this process's environment, speak of."""
    flags = (args.coordinator, args.processes, args.process) if args else (None, None, None)
    return recognise(os.environ, flags)


def start(args=None):
    """Join the processes that the words or the environment speak of; alone, do nothing.

    Raises ValueError, which names the address, where they do not come together within WAIT seconds.
    """
    cluster = seen_by(args)
    if cluster.note:
        print(cluster.note, file=sys.stderr)
    if cluster.processes != 1:
        join(cluster, WAIT)


def join(cluster, seconds):
    """Make JAX one of `cluster`, and tell the others this host's name."""
    global _joined
    import jax

    rest = {
        "initialization_timeout": seconds + 60
    }  # JAX ends the process at its own; ours comes first
    if cluster.processes is not None:
        if cluster.process == 0:
            rest["coordinator_bind_address"] = bind_address(cluster.coordinator)
            _listen(cluster, rest["coordinator_bind_address"])
        else:
            _reach(cluster, seconds)
        rest |= {
            "coordinator_address": cluster.coordinator,
            "num_processes": cluster.processes,
            "process_id": cluster.process,
            "local_device_ids": cluster.devices,
            "cluster_detection_method": "deactivate",
        }
    try:
        within(seconds, jax.distributed.initialize, **rest)
        _joined = True
        if cluster.coordinator and (host := loopback_host(cluster.coordinator)):
            _bind_cpu_collectives(host)
        within(
            seconds,
            client().key_value_set,
            f"cloze/host/{_state().process_id}",
            socket.gethostname(),
        )
    except TimeoutError as error:
        raise ValueError(
            f"{cluster}: not all processes came together within {seconds} s. Do all of them run, and do they agree on the coordinator and "
            "on how many they are?"
        ) from error


def client() -> Any:
    """The coordinator's key-value store, which needs neither collectives nor equal numbers of devices; None alone."""
    return _state().client if "jax" in sys.modules else None


def _state():
    # The store has no public name (jax 0.10 to 0.12); Orbax and JAX's own multihost_utils reach it the same way. jax.process_index() would
    # open the devices, which waits for all processes.
    from jax._src.distributed import global_state

    return global_state


def host_of(process):
    """The name of another process's host, or nothing where the coordinator does not tell."""
    import jax

    try:
        return within(LEAVE, client().key_value_try_get, f"cloze/host/{process}")
    except (TimeoutError, jax.errors.JaxRuntimeError):
        return ""


def leave(status):
    """After a failure: hand back `status` alone; as one of many, end this process with it, within a few seconds.

    JAX's farewell waits until all processes say it, or 100 s for one that hangs, and then aborts.
    """
    if client() is None:
        return status
    say_farewell()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def part():
    """After a success: as one of many, wait for the others to be done as well, as long as JAX lets them. What goes first aborts them."""
    if not _joined or client() is None:
        return
    import jax

    try:
        jax.distributed.shutdown()
    except jax.errors.JaxRuntimeError as error:
        print(
            f"the other processes did not end with this one: {str(error).splitlines()[0]}",
            file=sys.stderr,
        )


def say_farewell():
    """As one of many: LEAVE seconds for those that fail likewise to say so; they would be aborted when the coordinator goes first."""
    if not _joined:
        return
    import jax

    try:
        within(LEAVE + 1, client().wait_at_barrier, "cloze/leave", LEAVE * 1000)
        if _state().process_id == 0:
            time.sleep(0.5)
    except (TimeoutError, jax.errors.JaxRuntimeError):
        print(
            f"the other processes have not ended within {LEAVE} s; this one leaves without them",
            file=sys.stderr,
        )


def within(seconds, call, *args, **rest):
    """What `call` returns or raises; TimeoutError when it does neither in time, and then its thread is left behind."""
    done = []

    def work():
        try:
            done.append((call(*args, **rest), None))
        except Exception as error:
            done.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        raise TimeoutError(f"no answer within {seconds} s")
    value, error = done[0]
    if error:
        raise error
    return value


def loopback_host(address: str) -> str | None:
    """Return the loopback address that `host:port` names, such as 127.0.0.1, or None where other machines can reach the host."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return "127.0.0.1"
    try:
        return host if ipaddress.ip_address(host).is_loopback else None
    except ValueError:  # a name
        return None


def bind_address(coordinator: str) -> str:
    """Return the `host:port` on which process 0 listens.

    JAX_COORDINATOR_BIND_ADDRESS decides where it is set. Otherwise a coordinator on a loopback address listens there only, and one that
    other machines must reach listens on all interfaces.
    """
    port = coordinator.rpartition(":")[2]
    host = loopback_host(coordinator) or "::"
    return os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or (
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    )


def _bind_cpu_collectives(host):
    """Let the collectives between CPU devices (gloo) listen on `host`.

    By itself gloo listens on the address that the machine's own name resolves to, which is often that of a network interface. JAX (0.10 to
    0.12) has no option for it, but its factory of the CPU client takes finished collectives.
    """
    import jax
    from jax._src import xla_bridge
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage] - there is no public one
    from jax.extend.backend import register_backend_factory

    def make_client():
        # Options are attributes that jax.config gets at run time.
        chosen = jax.config.jax_cpu_collectives_implementation  # pyright: ignore[reportAttributeAccessIssue]
        if chosen != "gloo":
            return xla_bridge.make_cpu_client()
        collectives = _jax.make_gloo_tcp_collectives(distributed_client=client(), hostname=host)
        return xla_bridge.make_cpu_client(collectives=collectives)

    register_backend_factory("cpu", make_client, fail_quietly=False)


def _listen(cluster, address):
    """Raise ValueError where process 0 cannot listen on `address`: JAX dies of a port that is taken (a segmentation fault with 0.10)."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        if host in ("", "::"):
            family, where = (
                socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET,
                ("", int(port)),
            )
        else:
            family, _, _, _, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        raise ValueError(
            f"{cluster}: its port cannot be opened here: {error.strerror}. JAX_COORDINATOR_PORT names another"
        ) from error


def _reach(cluster, seconds):
    """Wait until the coordinator listens. A name that is not known yet is waited for, too: pods get theirs late."""
    host, _, port = cluster.coordinator.rpartition(":")
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ValueError(
                    f"{cluster}: nobody answers there within {seconds} s ({error.strerror or error}). Does process 0 run on that host, "
                    "and is the port open?"
                ) from error
        time.sleep(0.2)
