"""The lease of a workdir, held by process 0 for all processes of a run."""

import contextlib
import os
from collections.abc import Iterator
from typing import NoReturn

from etils import epath

from pretrain.host.terminal import print_error
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.leases.lease import STALE, Lease


@contextlib.contextmanager
def hold_lease(workdir: epath.PathLike, command: str) -> Iterator[Lease]:
    """Hold the lease of a workdir for all processes of this run, and yield it.

    Process 0 acquires the lease. If it is refused, all processes raise the same ConfigError. If the
    lease is lost later, the process ends at once: unwinding the stack would wait until a checkpoint
    that is being saved is committed.
    """
    import jax

    from pretrain.processes.exchange import TIMEOUT, exchange_values

    if jax.process_count() == 1:
        with Lease(workdir, command, end_process) as lease:
            yield lease
        return
    with contextlib.ExitStack() as stack:
        lease, problem = Lease(workdir, command, end_process), None
        if jax.process_index() == 0:
            try:
                stack.enter_context(lease)
            except (ValueError, OSError) as error:
                problem = str(error)
        problem = exchange_values("lease", {"problem": problem}, STALE + 2 * TIMEOUT + TIMEOUT)[0][
            "problem"
        ]
        if problem:
            raise ConfigError(problem)
        yield lease


def end_process(message: str) -> NoReturn:
    """End this process with status 2 and one error message, without cleaning up."""
    print_error(message)
    os._exit(2)
