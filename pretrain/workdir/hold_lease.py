"""The lease of a workdir, held for all processes of a run."""

import contextlib
import os
import sys

from pretrain.overrides import ConfigError
from pretrain.workdir.lease import STALE, TIMEOUT, Lease


@contextlib.contextmanager
def hold(workdir, command: str):
    """Hold the lease of a workdir for all processes of this run: process 0 takes it. A refusal is the same ConfigError in all of them.

    Losing the lease ends the process at once: what unwinds would wait until a checkpoint that is being saved is committed.
    """
    import jax

    from pretrain.distributed.preflight import WAIT, exchange

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
        problem = exchange("lease", {"problem": problem}, STALE + 2 * TIMEOUT + WAIT)[0]["problem"]
        if problem:
            raise ConfigError(problem)
        yield lease


def end_process(message: str) -> None:
    """End this process with status 2 and one error, without cleaning up."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(2)
