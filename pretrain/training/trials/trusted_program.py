"""The program of a run with the hand-made operations that its devices compute right.

On an accelerator each operation that the run would use is first compared with its plain equation,
and left out where it does not agree, does not run or has ended an earlier process. The processes of
a run reach one choice, because their programs must be equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
from etils import epath
from jax.sharding import Mesh

from pretrain.config import Run
from pretrain.kernels.trials.attention_calls import name_call
from pretrain.kernels.trials.comparison import Verdict, compare_attention, describe_error
from pretrain.kernels.trials.kernel_trust import RememberedTrust, find_own_device
from pretrain.kernels.trials.trial_memory import TrialMemory
from pretrain.processes.exchange import COPY_TIMEOUT, exchange_values
from pretrain.processes.hang_notice import make_peers
from pretrain.processes.watchdog import Watchdog
from pretrain.training.memory.memory_check import check_memory
from pretrain.training.program import Program
from pretrain.training.trials import Trust
from pretrain.training.trials.operation_trials import OperationTrial, list_trials


def make_trusted_program(
    run: Run,
    mesh: Mesh,
    workdir: epath.Path,
    make: Callable[..., Program],
    memory: TrialMemory | None = None,
) -> Program:
    """Return the program of a run, without the operations that are not trusted.

    Args:
      memory: what earlier comparisons have found; the user's by default.

    Raises:
      ConfigError: what takes the place of an operation needs more memory than there is.
    """
    device = find_own_device(mesh)
    trust = RememberedTrust(memory or TrialMemory(), device)
    is_auto = run.train.attention == "auto"
    find_doubt = trust.find_doubt if is_auto else lambda *_: None
    program = make(run, mesh, trust=Trust(find_doubt))
    trace_attention(program, mesh)
    trials = {
        trial.name: (trial, trust.make_key(trial.name, trial.shapes))
        for trial in list_trials(run, mesh, program, device)
    }
    with Watchdog(run.watchdog, workdir / f"hung-{jax.process_index()}.txt", make_peers()) as dog:
        try_attention(trust, device, dog)
        for trial, key in trials.values():
            try_operation(trust, trial, key, dog)
        before = dict(trust.verdicts)
        dog.enter_phase("start")  # The other processes may compare more.
        is_known = agree(trust) == before and not trust.unknown
    found = {name: trust.find_verdict(key) for name, (_, key) in trials.items()}
    refused = {
        name: verdict.reason for name, verdict in found.items() if verdict and verdict.reason
    }
    if not is_known or refused:
        program = make(run, mesh, trust=Trust(find_doubt, refused))
        trace_attention(program, mesh)
    reasons = [f"{name} {reason}" for name, reason in refused.items()]
    program = program._replace(refusals=[*trust.refusals, *reasons])
    if program.refusals:  # What takes their place may need more memory.
        check_memory(run, mesh, program)
    return program


def trace_attention(program: Program, mesh: Mesh) -> None:
    """Trace the training step and the evaluation, so that each call of attention is chosen."""
    state = program.describe_state()
    with jax.set_mesh(mesh):
        program.train_step.trace(state, program.batch)
        program.evaluation_step.trace(state.params, program.batch, state.variables)


def try_attention(trust: RememberedTrust, device: Any, dog: Watchdog) -> None:
    """Compare the kernels of each call in their order, until one is right."""
    for candidates in trust.unknown.values():
        for kernel, call, key in candidates:
            verdict = trust.find_verdict(key) or run_trial(
                trust,
                f"{kernel.name} ({name_call(call)})",
                key,
                dog,
                lambda kernel=kernel, call=call: compare_attention(kernel, call, device),
            )
            if not verdict.reason:
                break


def try_operation(
    trust: RememberedTrust, trial: OperationTrial, key: dict[str, Any], dog: Watchdog
) -> None:
    """Compare an operation, unless it is remembered: by all processes, if they compare together."""
    verdict = trust.find_verdict(key)
    if trial.is_joint and jax.process_count() > 1:
        is_known = verdict is not None
        dog.enter_phase("start")
        if not all(exchange_values(f"know {trial.name}", is_known, COPY_TIMEOUT)):
            verdict = None
    if verdict is None:
        run_trial(trust, trial.name, key, dog, trial.compare)


def run_trial(
    trust: RememberedTrust,
    name: str,
    key: dict[str, Any],
    dog: Watchdog,
    compare: Callable[[], Verdict],
) -> Verdict:
    """Return what a comparison finds, print it and remember it.

    Beyond `watchdog.kernels` the watchdog ends the process, because nothing else can end a kernel
    that holds the device. The mark in the memory stays, and the next start
    leaves the operation out.
    """
    dog.enter_phase("kernels")
    start = time.perf_counter()
    with trust.memory.mark_trial(key):
        try:
            verdict = compare()
        except Exception as error:  # of the comparison itself, such as memory that is exhausted
            verdict = Verdict(f"could not be compared: {describe_error(error)}")
    trust.note_verdict(key, verdict)
    if jax.process_index() == 0:
        seconds = time.perf_counter() - start
        print(f"tested in {seconds:.1f} s: {name} {verdict.reason or 'is right'}", flush=True)
    return verdict


def agree(trust: RememberedTrust) -> dict[str, Verdict]:
    """Return the verdicts of all processes, which all of them use from now on.

    What one process refuses, all refuse. What only some had to test counts by their verdict.
    """
    if jax.process_count() > 1:
        merged: dict[str, Verdict] = {}
        for verdicts in exchange_values("kernels", trust.verdicts, COPY_TIMEOUT):
            for name, found in verdicts.items():
                if name not in merged or not merged[name].reason:
                    merged[name] = Verdict(*found)
        trust.verdicts = merged
    trust.is_decided = True
    return trust.verdicts
