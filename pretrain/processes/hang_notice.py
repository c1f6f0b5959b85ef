"""Announce to the other processes of a run that this one hangs, through the coordinator's store.

A process that waits for one that hangs would otherwise end by an error of the connection, once the
other has exited.
"""

from __future__ import annotations

from pretrain.host.terminal import print_error
from pretrain.processes import processes
from pretrain.processes.watchdog import HUNG, Peers

PREFIX = "cloze/hung/"


def make_peers() -> Peers | None:
    """Return how this process's watchdog reaches the other watchdogs; None if it is alone."""
    if processes.get_client() is None:
        return None
    return Peers(announce_hang, find_hung_peer, processes.wait_at_exit_barrier)


def announce_hang(cause: str) -> None:
    """Publish `cause`, what exceeds its limit in this process."""
    own = processes.get_jax_state().process_id
    processes.get_client().key_value_set(f"{PREFIX}{own}", cause)


def find_hung_peer() -> str:
    """Return what another process has announced and which process it is; "" if none has.

    It is "" as well if the coordinator does not answer, as JAX ends the process then, and after the
    end of the run, when there is no client.
    """
    import jax

    client = processes.get_client()
    if client is None:
        return ""
    try:
        announced = client.key_value_dir_get(PREFIX)
    except jax.errors.JaxRuntimeError:
        return ""
    own = processes.get_jax_state().process_id
    causes = {int(key.removeprefix(PREFIX)): cause for key, cause in announced}
    peer = min(causes.keys() - {own}, default=None)
    if peer is None:
        return ""
    return f"{causes[peer]}, in process {peer} on host {processes.get_host_name(peer)}"


def exit_after_error(status: int) -> int:
    """End this process with `status`, or with HUNG if another process hangs and caused the error.

    A single process returns `status` instead.
    """
    if processes.get_client() is None:
        return status
    try:
        cause = processes.call_with_timeout(processes.EXIT_TIMEOUT, find_hung_peer)
    except TimeoutError:
        cause = ""
    if cause:
        status = HUNG
        print_error(f"hung: {cause}. This process ends with status {HUNG}")
    return processes.exit_process(status)
