"""The open resources of a run, and the operations of its loop, timed and watched for hangs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data.mixed_stream import MixedStream
from data.pipeline import Stream
from data.source import Source
from pretrain.config import Run
from pretrain.distributed.replica_check import Replicas
from pretrain.distributed.stragglers import StragglerMonitor
from pretrain.training.divergence import Guard
from pretrain.training.early_stopping import EarlyStopping
from pretrain.training.logger import Log
from pretrain.training.program import Program
from pretrain.training.state import State
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.goodput import Ledger
from pretrain.workdir.lease import Lease

# (step, batch on the mesh) for consecutive steps.
Batches = Generator[tuple[int, Any], None, None]


class RestartableFeed:
    """An iterator over the batches of a run in order, which `restart` moves to another step."""

    def __init__(self, open_feed: Callable[[int], Batches], start: int) -> None:
        """Begin at step `start`.

        Args:
          open_feed: takes a step and returns a generator of (step, batch) from that step on.
          start: the first step.
        """
        self.open_feed, self.items = open_feed, open_feed(start)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self

    def __next__(self) -> tuple[int, Any]:
        return next(self.items)

    def restart(self, step: int) -> None:
        """Continue with the batch of `step`."""
        self.items.close()  # Its threads must end before new ones start.
        self.items = self.open_feed(step)

    def close(self) -> None:
        self.items.close()


@dataclasses.dataclass
class TrainContext:
    """What the training loop works with.

    Attributes:
      open_feed: takes a step and returns a generator of (step, batch on the mesh) from there on.
      stream: the training rows that the feed reads.
      evaluator: (params, stream, begin=...) -> {name: score}.
      heldout: the held-out rows, or None if the run evaluates nothing.
      sampler: (params, step) -> None, which writes samples of the held-out rows, or None.
      compiled: whether the training step has been compiled.
    """

    run: Run
    source: Source
    program: Program
    checkpoints: Checkpoints
    lease: Lease
    replicas: Replicas
    guard: Guard
    stopping: EarlyStopping
    ledger: Ledger
    stragglers: StragglerMonitor
    log: Log
    open_feed: Callable[[int], Batches]
    evaluator: Callable[..., dict[str, float]]
    stream: Stream | MixedStream
    heldout: Stream | MixedStream | None
    sampler: Callable[[Any, int], None] | None
    compiled: bool = False

    def read_batches(self, start: int) -> RestartableFeed:
        """Return the batches of the run from step `start` on."""
        self.ledger.to("step")
        return RestartableFeed(self._measured_feed, start)

    def _measured_feed(self, start: int) -> Batches:
        timed = self.ledger.during_each("data", self.open_feed(start))
        yield from self.stragglers.measure_input(timed)

    def update(self, state: State, batch: Any) -> tuple[State, dict[str, jax.Array]]:
        """Run one training step and return (state, metrics).

        An implicit transfer from the host would stall every step, so it raises an error.
        """
        phase = "step" if self.compiled else "compile"
        with (
            self.ledger.during(phase),
            self.stragglers.waiting_for_devices(),
            jax.transfer_guard("disallow"),
        ):
            state, metrics = self.program.update(state, batch)
        if not self.compiled:
            self.log.say(f"attention kernel: {'; '.join(self.program.attention['update'])}")
        self.compiled = True
        return state, metrics

    def evaluate(self, params: Any, step: int) -> dict[str, float]:
        """Return the scores of the held-out rows, and write samples if the run has a sampler."""

        def begin() -> None:
            self.ledger.to("evaluate")

        with self.ledger.during("evaluate"):
            scores = self.evaluator(params, self.heldout, begin=begin)
            if self.sampler:
                begin()
                self.sampler(params, step)
        return scores

    def check_replicas(self, state: State, step: int) -> None:
        """Raise `replica_check.Altered` if devices disagree about replicated values."""
        with self.ledger.during("save"):
            self.replicas.check(state, step)

    def save(self, state: State, step: int, scores: Mapping[str, float] | None) -> None:
        """Check that the devices agree on `state`, then start to save it with its scores."""
        self.check_replicas(state, step)
        with self.ledger.during("save"):
            self.lease.verify()
            self.checkpoints.save(
                state,
                self.run,
                self.source.encoding.fingerprint,
                rows=self.stream.place(step),
                scores=scores,
                counts={"guard": self.guard.record(), "stopping": self.stopping.record()},
            )
        self.ledger.mark(step, self.checkpoints.steps())

    def wait_for_saves(self, step: int) -> None:
        """Wait until the checkpoint of the last step is durable."""
        with self.ledger.during("save"):
            self.checkpoints.wait()
        self.ledger.mark(step, self.checkpoints.steps())

    def restore_last_good(self) -> State:
        """Return the last state before the skipped steps, numbered as the last skipped step.

        See the docstring of `divergence`.
        """
        guard, shardings = self.guard, self.program.placed
        first, last = guard.first_skipped(), guard.step
        with self.ledger.during("start"):
            self.lease.verify()  # `restore` moves damaged checkpoints.
            self.checkpoints.wait()
            state = self.checkpoints.restore(
                self.program.abstract,
                shardings,
                self.source.encoding.fingerprint,
                self.log.say,
                before=first,
            )
            state = self.program.init() if state is None else state
            saved_step = int(state.step)
            self.ledger.back(saved_step)
        self.log.say(
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
