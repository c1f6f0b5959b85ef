"""The phases of a run on the devices: their programs, their rows, and the learning rate over all.

The state passes from phase to phase. Phases that compute the same share a program, so that each
distinct shape is compiled once.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from data.members import call_later
from data.mixed import count_positions
from data.mixed_stream import MixedStream, continue_rows
from data.pipeline import Stream
from pretrain.config import Run
from pretrain.mesh.device_feed import prefetch_to_devices
from pretrain.phases import PhaseRun, find_phase, name_place, resolve_phases
from pretrain.processes.exchange import begin_round
from pretrain.settings import Optimizer
from pretrain.settings.overrides import ConfigError
from pretrain.training.continuation import resume_rows
from pretrain.training.evaluation import make_evaluator
from pretrain.training.fits.model_fit import check_row_length
from pretrain.training.memory.memory_check import check_memory
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.preemption import Preemption
from pretrain.training.program import Program, check_batch, choose_program, make_program
from pretrain.training.schedules import Count, Schedule, make_learning_rate
from pretrain.training.state import TrainState, init_run_state
from pretrain.workdir.workdir import Workdir

# Imported when a run needs them: a dataset of the caller, what phases share, samples.
ComposedBatches = call_later("data.composed:ComposedBatches")
find_shapes = call_later("pretrain.training.fits.phase_shapes:find_shapes")
make_sampler = call_later("pretrain.training.gap_samples:make_sampler")

# (step, batch on the mesh) for consecutive steps.
Batches = Generator[tuple[int, Any], None, None]


class PhaseRows(NamedTuple):
    """The rows of a phase. heldout: the held-out rows, or None if the run evaluates nothing."""

    phase: PhaseRun
    stream: Stream | MixedStream
    heldout: Stream | MixedStream | None


@dataclasses.dataclass
class OpenPhase:
    """What a phase trains with.

    Attributes:
      start, stop: it trains the steps start + 1 to stop.
      batches: the rows that are read, of `stream` or of a user's dataset.
      evaluator: (params, stream, begin=...) -> {name: score}.
      sampler: (params, step) -> None, which writes samples of the held-out rows, or None.
      is_compiled: whether its training step has been compiled.
    """

    name: str
    start: int
    stop: int
    run: Run
    program: Program
    stream: Stream | MixedStream
    batches: Any
    heldout: Stream | MixedStream | None
    evaluator: Callable[..., dict[str, Any]]
    sampler: Callable[[Any, int], None] | None
    is_compiled: bool = False


def describe_phase(phase: OpenPhase) -> str:
    """Return a line on a phase that begins."""
    tokens = count_positions(phase.run.data.objective, phase.run.data.batch_size)
    return (
        f"{phase.name and f'phase {phase.name}: '}steps {phase.start + 1:,} to {phase.stop:,}, "
        f"{phase.run.data.batch_size:,} rows and {tokens:,} {phase.run.data.objective.unit} a step"
    )


# ---- programs ----------------------------------------------------------------


def join_rates(phases: Sequence[PhaseRun]) -> Schedule:
    """Return the learning rate of a run as a function of n, the number of finished updates.

    In each phase it follows the schedule of the phase, counted from the first step of the phase,
    through all its stairs.
    """
    parts = [
        (phase.begin, phase.begin + phase.run.train.steps, phase.run.optimizer) for phase in phases
    ]
    return join_schedules(tuple(dict.fromkeys(parts)))


@functools.cache
def join_schedules(parts: tuple[tuple[int, int, Optimizer], ...]) -> Schedule:
    """Return the learning rate of (first update, end, optimizer) of parts; equal ones are one."""
    rates = [make_learning_rate(optimizer, stop - start) for start, stop, optimizer in parts]
    if len(rates) == 1:
        return rates[0]

    def compute_rate(n: Count) -> jax.Array:
        n = jnp.asarray(n)
        values = [rate(jnp.maximum(n - start, 0)) for rate, (start, *_) in zip(rates, parts)]
        return jnp.select([n < stop for _, stop, _ in parts[:-1]], values[:-1], values[-1])

    return compute_rate


def make_programs(
    phases: Sequence[PhaseRun], make: Callable[..., Program]
) -> list[tuple[PhaseRun, Program]]:
    """Return the phases with their programs; phases of equal shapes have the same one.

    Args:
      make: (run, rate=...) -> Program, where `rate` is the learning rate of all phases; left out
        for a single phase.
    """
    programs: dict[Run, Program] = {}
    options = {"rate": join_rates(phases)} if len(phases) > 1 else {}
    for phase in phases:
        shapes = find_shapes(phase.run)
        if shapes not in programs:
            with name_place(phase.place):
                programs[shapes] = make(phase.run, **options)
    return [(phase, programs[find_shapes(phase.run)]) for phase in phases]


def check_batches(run: Run, mesh: jax.sharding.Mesh) -> None:
    """Raise ConfigError unless the batches of all phases divide among devices."""
    for phase in resolve_phases(run):
        with name_place(phase.place):
            check_batch(phase.run, mesh)


def check_programs(phases: Sequence[PhaseRun], mesh: jax.sharding.Mesh) -> None:
    """Check the rows and the memory of all phases, and that one state fits them.

    Raises:
      ConfigError: a phase does not fit the model, the memory or the phases before it.
    """
    checked: list[int] = []
    for phase, program in make_fitting_programs(phases, mesh):
        if id(program) in checked:
            continue
        checked.append(id(program))
        begin_round()  # Hosts compare their memory.
        with name_place(phase.place):
            check_memory(phase.run, mesh, program)


def make_fitting_programs(
    phases: Sequence[PhaseRun], mesh: jax.sharding.Mesh
) -> list[tuple[PhaseRun, Program]]:
    """Return the phases with their programs, through which one state can pass.

    Raises:
      ConfigError: a phase does not fit the model or the phases before it.
    """
    check_states(phases)
    return make_programs(phases, lambda run, **options: make_program(run, mesh, **options))


def check_states(phases: Sequence[PhaseRun]) -> None:
    """Check the rows of all phases, and that one state fits them. Nothing is compiled.

    Raises:
      ConfigError: a phase does not fit the model or the phases before it.
    """
    states: dict[Any, TrainState] = {}
    for phase in phases:
        run, data = phase.run, phase.run.data
        lanes = data.batch_size if run.model.keeps_state else 0
        key = run.model, data.objective, run.optimizer.without_schedule(), lanes
        if key in states:
            continue
        with name_place(phase.place):
            check_row_length(run)  # Longer rows than a model has positions cannot be traced.
            init = functools.partial(init_run_state, run, make_run_optimizer(run))
            states[key] = jax.eval_shape(init)
            check_state(next(iter(states.values())), states[key])


def check_state(first: TrainState, state: TrainState) -> None:
    """Raise ConfigError unless the state of the first phase has the shapes of another phase's."""
    before, after = (
        {
            jax.tree_util.keystr(path, simple=True, separator="/"): (leaf.shape, str(leaf.dtype))
            for path, leaf in jax.tree.leaves_with_path(one)
        }
        for one in (first, state)
    )
    changed = [
        f"{path} has {describe_leaf(before.get(path))} before and {describe_leaf(after.get(path))} "
        "in this phase"
        for path in before | after
        if before.get(path) != after.get(path)
    ]
    if changed:
        more = f", and {len(changed) - 1} more differ" if len(changed) > 1 else ""
        raise ConfigError(
            f"{changed[0]}{more}: parameters and optimizer state pass from phase to phase, so a "
            "phase cannot change their shapes"
        )


def describe_leaf(leaf: tuple[tuple[int, ...], str] | None) -> str:
    """Return the shape of an array of a state; None if there is none."""
    return f"{leaf[1]} {list(leaf[0])}" if leaf else "no values"


# ---- opening -----------------------------------------------------------------


def open_phases(
    run: Run,
    rows: Sequence[PhaseRows],
    mesh: jax.sharding.Mesh,
    workdir: Workdir,
    dataset: Callable[..., Any] | None,
    check_held: Callable[[], None],
) -> list[OpenPhase]:
    """Return the phases of a run with their programs and evaluators.

    Args:
      dataset: as in `loop.train`.
      check_held: raises an error if the workdir may not be written.
    """

    def make(own: Run, **options: Schedule) -> Program:
        begin_round()  # Hosts compare the kernels that they trust.
        make_own = functools.partial(make_program, **options)
        return choose_program(own, mesh, workdir.path, make_own)

    evaluators, samplers, phases = {}, {}, []
    for one, (phase, program) in zip(rows, make_programs([one.phase for one in rows], make)):
        if id(program) not in evaluators:
            evaluators[id(program)] = make_run_evaluator(phase.run, program, mesh)
        key = id(program), phase.run.data.objective  # Of other masks, the samples are others.
        if key not in samplers:
            can_sample = one.heldout and run.evaluate.samples
            samplers[key] = can_sample and make_sampler(
                phase.run, program, mesh, one.heldout, workdir, check_held
            )
        evaluator, sampler = evaluators[id(program)], samplers[key] or None
        batches = ComposedBatches(one.stream, dataset) if dataset else one.stream
        phases.append(
            OpenPhase(
                *phase[:3], phase.run, program, one.stream, batches, one.heldout, evaluator, sampler
            )
        )
    return phases


def make_run_evaluator(
    run: Run, program: Program, mesh: jax.sharding.Mesh
) -> Callable[..., dict[str, Any]]:
    """Return the function that computes the scores and metrics of a run's held-out rows."""
    return make_evaluator(
        program.model,
        program.loss,
        mesh,
        compute_dtype=run.train.compute_dtype,
        metrics=run.evaluate.metrics,
        objective=run.data.objective,
    )


# ---- rows --------------------------------------------------------------------


def resume_phases(phases: Sequence[OpenPhase], step: int, rows: int | dict[str, int]) -> OpenPhase:
    """Continue the rows after those that a checkpoint of `step` records; return its next phase.

    The phase that made the checkpoint continues after `rows`, and each later one after the phase
    before it.
    """
    last = find_phase(phases, max(step - 1, 0))
    resume_rows(last.stream, step, rows)
    for before, phase in itertools.pairwise(phases):
        if phase.start >= last.stop:
            continue_rows(phase.stream, before.stream, phase.start)
    return find_phase(phases, step)


def make_feed_opener(
    phases: Sequence[OpenPhase], mesh: jax.sharding.Mesh, last_step: int, preemption: Preemption
) -> Callable[[int], Batches]:
    """Return start -> the batches from there to `last_step`; failing rows ask the run to end."""

    def open_feed(start: int) -> Batches:
        for phase in phases:
            first, stop = max(start, phase.start), min(phase.stop, last_step)
            if first < stop:
                yield from prefetch_to_devices(
                    phase.batches, mesh, first, stop, on_failure=preemption.note_failure
                )

    return open_feed
