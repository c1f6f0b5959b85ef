"""The open resources of a run, and the operations of its loop, timed and watched for hangs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data.members import call_later
from data.source import Source
from pretrain.config import Run
from pretrain.mesh.replica_check import ReplicaCheck
from pretrain.phases import find_phase
from pretrain.processes.stragglers import StragglerMonitor
from pretrain.training.divergence import DivergenceMonitor
from pretrain.training.early_stopping import EarlyStopping
from pretrain.training.logger import RunLog
from pretrain.training.monitoring.profile import StepProfiler
from pretrain.training.phase_programs import Batches, OpenPhase, describe_phase
from pretrain.training.state import TrainState
from pretrain.training.targets import check_step
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.goodput import Ledger
from pretrain.workdir.leases.lease import Lease

# What only a run that evaluates its moving average needs.
get_ema_params = call_later("pretrain.training.optimizers.ema:get_ema_params")


class RestartableFeed:
    """An iterator over the batches of a run in order, which can restart at another step."""

    def __init__(
        self,
        open_feed: Callable[[int], Batches],
        start: int,
        measure_wait: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Begin at step `start`.

        Args:
          open_feed: takes a step and returns a generator of (step, batch) from that step on.
          measure_wait: () -> a context in which a batch is waited for.
        """
        self.open_feed, self.items = open_feed, open_feed(start)
        self.measure_wait = measure_wait

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self

    def __next__(self) -> tuple[int, Any]:
        with self.measure_wait():
            item = next(self.items, None)
        if item is None:
            raise StopIteration
        return item

    def restart_at(self, step: int) -> None:
        """Continue with the batch of `step`."""
        self.items.close()  # Its threads must end before new ones start.
        self.items = self.open_feed(step)

    def close(self) -> None:
        self.items.close()


@dataclasses.dataclass
class TrainContext:
    """What the training loop works with.

    Attributes:
      phases: the phases of the run, in order.
      phase: the one in force.
      open_feed: takes a step and returns a generator of (step, batch on the mesh) from there on.
      reads_stream: whether the feed reads the rows as they are, and not a user's dataset.
      word_steps: {step: numbers of words, of checkpoint.words, that it is the first to have read}.
    """

    run: Run
    source: Source
    phases: Sequence[OpenPhase]
    phase: OpenPhase
    checkpoints: Checkpoints
    lease: Lease
    replica_check: ReplicaCheck
    guard: DivergenceMonitor
    early_stopping: EarlyStopping
    ledger: Ledger
    stragglers: StragglerMonitor
    log: RunLog
    profiler: StepProfiler
    open_feed: Callable[[int], Batches]
    reads_stream: bool
    word_steps: Mapping[int, list[int]]

    def read_batches(self, start: int) -> RestartableFeed:
        """Return the batches of the run from step `start` on."""
        self.ledger.enter_phase("step")
        return RestartableFeed(self.open_feed, start, self._measure_wait)

    @contextlib.contextmanager
    def _measure_wait(self) -> Iterator[None]:
        """Count the time in this context as waiting for a batch."""
        with self.ledger.time_phase("data"), self.stragglers.measure_input():
            yield

    def train_step(
        self, step: int, state: TrainState, batch: Any
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Run the training step number `step` and return (state, metrics).

        An implicit transfer from the host would stall every step, so it raises an error.
        """
        self.enter_phase(step)
        if self.profiler.is_due(step):
            jax.block_until_ready(state)  # The trace begins with this step.
            self.profiler.start_trace()
        program, is_compiled = self.phase.program, self.phase.is_compiled
        with (
            self.ledger.time_phase("step" if is_compiled else "compile"),
            self.stragglers.measure_device_wait(),
            jax.transfer_guard("disallow"),
        ):
            state, metrics = program.train_step(state, batch)
        self.log.leave_out_time(self.profiler.stop_if_due(step, metrics))
        if not is_compiled:
            self.note_operations()
        for phase in self.phases:
            phase.is_compiled |= phase.program is program
        return state, metrics

    def enter_phase(self, step: int) -> None:
        """Let the phase that trains step number `step` be in force."""
        phase = find_phase(self.phases, step - 1)
        if phase is not self.phase:
            self.check_row(self.log.wait_for_step())  # It does not count the next compilation.
            self.phase = phase
            self.log.log_message(describe_phase(phase))

    def note_operations(self) -> None:
        """Print and record the attention kernels in use and what was left out, if anything."""
        program = self.phase.program
        kernels, refusals = program.attention["update"], [*program.refusals]
        if kernels:
            self.log.log_message(f"attention kernel: {'; '.join(kernels)}")
        facts = {"attention": kernels, "left_out": refusals}
        self.log.record_start(**{name: lines for name, lines in facts.items() if lines})

    def check_row(self, row: Mapping[str, Any] | None) -> None:
        """Count the step of a row of metrics; raise ConfigError if it had no target."""
        self.guard.check(row)
        if row is not None and self.reads_stream:
            phase = find_phase(self.phases, row["step"] - 1)
            check_step(phase.stream, phase.program.loss, row)

    def evaluate_heldout(self, state: TrainState, step: int) -> dict[str, float]:
        """Return the scores of the held-out rows, and write samples if the run has a sampler.

        With `evaluate.ema` the scores of the parameters' moving average follow, as `ema/NAME`.
        """

        def enter_evaluation() -> None:
            self.ledger.enter_phase("evaluate")

        with self.ledger.time_phase("evaluate"):
            evaluate = partial(self.phase.evaluator, begin=enter_evaluation)
            params = self.phase.program.merge(state.params)
            scores = evaluate(params, self.phase.heldout)
            if self.run.evaluate.ema:
                of_ema = evaluate(get_ema_params(state.optimizer), self.phase.heldout)
                scores |= {f"ema/{name}": value for name, value in of_ema.items()}
            if self.phase.sampler:
                enter_evaluation()
                self.phase.sampler(params, step)
        return scores

    def check_replicas(self, state: TrainState, step: int) -> None:
        """Raise `ReplicaMismatch` if devices disagree about replicated values."""
        with self.ledger.time_phase("save"):
            self.replica_check.check(state, step)

    def save_checkpoint(
        self, state: TrainState, step: int, scores: Mapping[str, float] | None
    ) -> None:
        """Check that the devices agree on `state`, then start to save it with its scores."""
        self.check_replicas(state, step)
        with self.ledger.time_phase("save"):
            self.lease.verify_held()
            self.checkpoints.save(
                state,
                self.run,
                self.source.encoding.fingerprint,
                rows=self.phase.stream.locate_rows(step),
                scores=scores,
                counts={
                    "guard": self.guard.make_record(),
                    "stopping": self.early_stopping.make_record(),
                    "words": self.word_steps.get(step, []),
                },
            )
        self.ledger.mark_checkpoint(step, self.checkpoints.list_steps())

    def wait_for_saves(self, step: int) -> None:
        """Wait until the checkpoint of the last step is durable."""
        with self.ledger.time_phase("save"):
            self.checkpoints.wait_until_saved()
        self.ledger.mark_checkpoint(step, self.checkpoints.list_steps())

    def restore_last_good(self) -> TrainState:
        """Return the last state before the skipped steps, numbered as the last skipped step.

        See pretrain/training/divergence.py.
        """
        guard, program = self.guard, self.phase.program
        shardings = program.state_shardings
        first, last = guard.find_first_skipped(), guard.step
        with self.ledger.time_phase("start"):
            self.lease.verify_held()  # `restore_state` moves damaged checkpoints.
            self.checkpoints.wait_until_saved()
            state = self.checkpoints.restore_state(
                program.abstract_state,
                shardings,
                self.source.encoding.fingerprint,
                self.log.log_message,
                before_step=first,
            )
            state = program.init() if state is None else state
            saved_step = int(state.step)
            self.ledger.roll_back(saved_step)
        self.log.log_message(
            f"steps {first:,} to {last:,} were skipped. Training continues from the parameters of "
            f"step {saved_step:,} with the data that follow step {last:,}"
        )
        self.log.forget_step(went_back_to=saved_step)
        guard.note_restored()
        return state.replace(
            step=jax.device_put(np.int32(last), shardings.step),
            # The rows after the skipped steps do not continue the rows before the checkpoint.
            variables=jax.tree.map(jnp.zeros_like, state.variables),
        )
