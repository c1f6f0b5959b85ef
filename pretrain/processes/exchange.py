"""Exchange small values between the processes of a run.

They travel through the coordinator's key-value store, which needs neither collectives nor equal
numbers of devices. If a process publishes nothing in time, all the others raise the same error.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import jax

from pretrain.processes import processes
from pretrain.settings.overrides import ConfigError

TIMEOUT = 25  # seconds for the slowest process to publish; all processes have just joined
# Seconds if each host first copies the token store from a bucket, or reads all of it. JAX notices a
# process that dies meanwhile.
COPY_TIMEOUT = 3600

_round = 0  # of exchanges: a program may train several times


def begin_round() -> None:
    """Begin the exchanges of another run, or of another program, in processes that have joined.

    The coordinator keeps what was published, so that names must differ between them. All processes
    call this equally often.
    """
    global _round
    if processes.get_client() is not None:
        _round += 1


def _make_key(name: str, process: int) -> str:
    """Return the coordinator's key of a value that a process publishes."""
    return f"cloze/preflight/{name}{f'.{_round}' if _round > 1 else ''}/{process}"


def exchange_values(name: str, value: Any, timeout: float) -> list[Any]:
    """Publish a JSON-like value under a name and return the values of all processes, in order.

    Raises:
      ConfigError: processes published nothing for `timeout` seconds; the error names them.
    """
    publish_value(name, value, timeout)
    return collect_values(name, timeout)


def publish_value(name: str, value: Any, timeout: float) -> None:
    """Publish a JSON-like value under a name.

    Raises:
      ConfigError: the coordinator does not answer.
    """
    try:
        processes.call_with_timeout(
            TIMEOUT,
            processes.get_client().key_value_set,
            _make_key(name, jax.process_index()),
            json.dumps(value),
        )
    except TimeoutError as error:
        raise ConfigError(f"process 0, the coordinator, {_describe_timeout(timeout)}") from error


def collect_values(name: str, timeout: float) -> list[Any]:
    """Return the values that all processes published under a name, in their order.

    Raises:
      ConfigError: processes published nothing for `timeout` seconds; the error names them.
    """
    client, end, values, silent = processes.get_client(), time.monotonic() + timeout, [], {}
    for index in range(jax.process_count()):
        remaining_ms = max(int((end - time.monotonic()) * 1000), 100)
        key = _make_key(name, index)
        try:
            values.append(json.loads(client.blocking_key_value_get(key, remaining_ms)))
        except jax.errors.JaxRuntimeError:
            silent[index] = f"{index} ({processes.get_host_name(index) or 'host unknown'})"
    # This process has published, so the coordinator has stopped answering.
    if jax.process_index() in silent:
        raise ConfigError(f"process 0, the coordinator, {_describe_timeout(timeout)}")
    if silent:
        raise ConfigError(f"process {', '.join(silent.values())} {_describe_timeout(timeout)}")
    return values


def _describe_timeout(timeout: float) -> str:
    return (
        f"of {jax.process_count()} has not come as far as the others within {timeout} s; see its "
        "log"
    )


def describe_host() -> str:
    """Return this process's host name and index, for messages."""
    return f"{socket.gethostname()} (process {jax.process_index()})"
