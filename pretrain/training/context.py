"""What a run has open while it trains, and what its loop does with it: each act under the clock and the watchdog."""

import dataclasses
from collections.abc import Callable, Iterable
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
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.goodput import Ledger
from pretrain.workdir.lease import Lease


class RestartableFeed:
    """The batches of a run in order. An iterator; after `restart` it goes on with those of another step."""

    def __init__(self, open_feed, start):
        """open_feed: start -> iterator over (step, batch) from there on."""
        self.open_feed, self.items = open_feed, open_feed(start)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.items)

    def restart(self, step):
        self.items.close()  # its threads end before others begin
        self.items = self.open_feed(step)

    def close(self):
        self.items.close()


@dataclasses.dataclass
class TrainContext:
    """What the loop of a run acts on.

    open_feed: start -> iterable of (step, batch on the mesh); stream: of the rows that it reads; evaluator: (params, stream, begin=...)
    -> scores; heldout: None where nothing is evaluated; sampler: (params, step) -> None, writes samples of the held-out part, or None.
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
    open_feed: Callable[[int], Iterable]
    evaluator: Callable[..., dict]
    stream: Stream | MixedStream
    heldout: Stream | MixedStream | None
    sampler: Callable[[Any, int], None] | None
    compiled: bool = False

    def read_batches(self, start):
        """Return the `RestartableFeed` of the run, which begins at a step."""
        self.ledger.to("step")
        return RestartableFeed(self._measured_feed, start)

    def _measured_feed(self, start):
        timed = self.ledger.during_each("data", self.open_feed(start))
        yield from self.stragglers.measure_input(timed)

    def update(self, state, batch):
        """Return (state, metrics) of one step. A value that is copied from the host by accident would stall every step: it is an error."""
        phase = "step" if self.compiled else "compile"
        clocks = self.ledger.during(phase), self.stragglers.waiting_for_devices()
        with clocks[0], clocks[1], jax.transfer_guard("disallow"):
            state, metrics = self.program.update(state, batch)
        if not self.compiled:
            self.log.say(f"attention by {'; '.join(self.program.attention['update'])}")
        self.compiled = True
        return state, metrics

    def evaluate(self, params, step):
        """Return the scores of the held-out part; samples of it are written, where the run has some."""

        def begin():
            self.ledger.to("evaluate")

        with self.ledger.during("evaluate"):
            scores = self.evaluator(params, self.heldout, begin=begin)
            if self.sampler:
                begin()
                self.sampler(params, step)
        return scores

    def check_replicas(self, state, step):
        """Raise `replica_check.Altered` where devices disagree."""
        with self.ledger.during("save"):
            self.replicas.check(state, step)

    def save(self, state, step, scores):
        """Begin to save a state that the devices agree on, with the scores of its evaluation, or None."""
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

    def wait_for_saves(self, step):
        """Wait until the checkpoint of the last step is durable."""
        with self.ledger.during("save"):
            self.checkpoints.wait()
        self.ledger.mark(step, self.checkpoints.steps())

    def restore_last_good(self):
        """Return the state of the last checkpoint before the steps that were skipped, with the number of the last of them: see `divergence`."""
        guard, placed = self.guard, self.program.placed
        first, last = guard.first_skipped(), guard.step
        assert last is not None  # the guard has tripped, so steps were seen
        with self.ledger.during("start"):
            self.lease.verify()  # damaged checkpoints are moved
            self.checkpoints.wait()
            state = self.checkpoints.restore(
                self.program.abstract,
                placed,
                self.source.encoding.fingerprint,
                self.log.say,
                before=first,
            )
            state = self.program.init() if state is None else state
            saved = int(state.step)
            self.ledger.back(saved)
        self.log.say(
            f"steps {first:,} to {last:,} were skipped: on from step {saved:,}, with the data behind step {last:,}"
        )
        self.log.forget_step(went_back_to=saved)
        guard.note_restored()
        return state.replace(
            step=jax.device_put(np.int32(last), placed.step),
            # The rows behind the skipped steps do not follow those that the checkpoint's had read.
            variables=jax.tree.map(jnp.zeros_like, state.variables),
        )
