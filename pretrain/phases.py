"""The phases of a run: the steps of each, and the run with its overrides. No JAX.

Everything that depends on phases follows from `resolve_phases`. A run without phases has one, whose
name is "".
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from data.mixed import count_positions
from data.mixed_stream import MixedStream, continue_rows, open_stream
from data.pipeline import Stream
from data.source import Source
from pretrain.run import Run, list_ramps, validate_run
from pretrain.settings import Phase
from pretrain.settings.overrides import (
    ConfigError,
    Override,
    apply_overrides,
    parse_override,
    parse_value,
)
from pretrain.stairs import check_ends, count_all_decays, list_stairs, place_ramps

LENGTHS = ("steps", "tokens")
PHASE_NAME = re.compile(r"[a-z][a-z0-9_]*")
# What a phase can change: these keys, and those below a section whose name ends with a dot. The
# parameters and the optimizer's state pass from phase to phase, so their shapes must stay.
OVERRIDABLE = (
    *("data.batch_size", "data.batch_ramp", "data.batch_ramp.", "data.objective"),
    *("data.objective.", "data.rates", "data.temperature", "data.temperature_ramp"),
    "data.temperature_ramp.",
    *("model.", "optimizer.", "train.label_smoothing", "train.microbatches"),
)
SECTIONS = tuple(dict.fromkeys(key.partition(".")[0] for key in OVERRIDABLE))


class PhaseRun(NamedTuple):
    """A phase, or a stair of one, that trains the steps start + 1 to stop.

    Attributes:
      run: the settings that hold in it; `train.steps` is the length of the whole phase.
      rows_before: [rows] read before it.
      begin: the steps before the phase.
      changes: settings of the stair, as `path=value`.
    """

    name: str
    start: int
    stop: int
    run: Run
    rows_before: int
    begin: int = 0
    changes: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Its length."""
        return self.stop - self.start

    @property
    def rows(self) -> int:
        """The number of rows that it reads."""
        return self.steps * self.run.data.batch_size

    @property
    def tokens_per_step(self) -> int:
        """The positions of a batch, padding included."""
        return count_positions(self.run.data.objective, self.run.data.batch_size)

    @property
    def place(self) -> str:
        """What errors call it; "" for a run without phases and stairs."""
        stair = f"the stair of {' and '.join(self.changes)}" if self.changes else ""
        return ", ".join(filter(None, (self.name and f"phases.{self.name}", stair)))


# ---- the phases of a run -----------------------------------------------------


def resolve_phases(run: Run) -> tuple[PhaseRun, ...]:
    """Return the phases of a run in order, each with its steps and its settings.

    A phase whose batch or temperature is ramped is one for each stair.

    Raises:
      ConfigError: the settings of a phase are invalid, or a phase cannot change them.
    """
    phases = lay_out_phases(run)
    for phase in phases if phases[0].run is not run else ():
        with name_place(phase.place):
            validate_run(phase.run)
    return phases


def lay_out_phases(run: Run) -> tuple[PhaseRun, ...]:
    """Return the phases of a run as `resolve_phases`, without the checks between sections."""
    names = [phase.name for phase in run.phases]
    if repeated := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise ConfigError(f"phases: two are called {repeated}")
    phases: list[PhaseRun] = []
    for phase in run.phases or (Phase("", run.train.steps),):
        with name_place(f"phases.{phase.name}" if phase.name else ""):
            phases += climb_phase(run, phase, phases[-1] if phases else None)
    check_ends(run, list_ramps(run), 0, phases[-1].stop)
    if len(phases) == 1 and not run.phases and not phases[0].changes:
        return (PhaseRun("", 0, run.train.steps, run, 0),)
    runs = count_all_decays([phase.run for phase in phases])
    return tuple(phase._replace(run=own) for phase, own in zip(phases, runs))


def climb_phase(run: Run, phase: Phase, before: PhaseRun | None) -> list[PhaseRun]:
    """Return the stairs of a phase that follows `before`; a phase without ramps is one."""
    start, rows = (before.stop, before.rows_before + before.rows) if before else (0, 0)
    own, keys = apply_phase(run, phase) if phase.name else (run, ())
    own = place_ramps(own, keys, start)
    stairs = list_stairs(own.data, start, phase.steps, phase.tokens)
    steps = sum(stair.steps for stair in stairs)
    check_ends(own, keys, start, start + steps)
    own = dataclasses.replace(
        own, train=dataclasses.replace(own.train, steps=steps, stop_at_step=0)
    )
    found, stop = [], start
    for stair in stairs:
        first, stop = stop, stop + stair.steps
        settings = dataclasses.replace(own, data=stair.data)
        found.append(PhaseRun(phase.name, first, stop, settings, rows, start, stair.changes))
        rows += found[-1].rows
    return found


def check_phase(phase: Phase) -> None:
    """Raise ConfigError unless a phase has a valid name and one length."""
    key = f"phases.{phase.name}"
    if not PHASE_NAME.fullmatch(phase.name):
        raise ConfigError(
            f"{key}: the name of a phase has small letters, digits and _, and begins with a letter"
        )
    for name, length in (("steps", phase.steps), ("tokens", phase.tokens)):
        if length < 0:
            raise ConfigError(f"{key}.{name}={length}: a phase has a step or more")
    if phase.steps and phase.tokens:
        raise ConfigError(
            f"{key} has two lengths, steps={phase.steps:,} and tokens={phase.tokens:,}: set one"
        )
    if not (phase.steps or phase.tokens):
        raise ConfigError(f"{key} has no length: set {key}.steps or {key}.tokens")


def apply_phase(run: Run, phase: Phase) -> tuple[Run, list[str]]:
    """Return the settings of a run that hold in one of its phases, and the keys that it sets."""
    check_phase(phase)
    overrides = [parse_phase_override(phase.name, argument) for argument in phase.overrides]
    own = apply_overrides(dataclasses.replace(run, phases=()), overrides)
    for override in overrides:
        check_overridable(override)
    return own, [".".join(override.names) for override in overrides]


def parse_phase_override(name: str, argument: str) -> Override:
    """Return an override of the phase `name`, which errors call `phases.NAME.path=value`.

    Raises ConfigError unless it is of a section of which a phase can change something.
    """
    override = parse_override(argument)._replace(argument=f"phases.{name}.{argument}")
    section, known = override.names[0], (*LENGTHS, *SECTIONS)
    if section not in (*SECTIONS, *(field.name for field in dataclasses.fields(Run))):
        close = difflib.get_close_matches(section, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? It" if close else "it"
        raise ConfigError(
            f"{override.key}: a phase has no {section!r}; {hint} has {', '.join(known)}"
        )
    return override


def check_overridable(override: Override) -> None:
    """Raise ConfigError unless a phase can change the setting of an override that exists."""
    key = ".".join(override.names)
    is_below = any(end.endswith(".") and key.startswith(end) for end in OVERRIDABLE)
    if key not in OVERRIDABLE and not is_below:
        raise ConfigError(
            f"{override.key}: all phases of a run have one {key}; a phase can change "
            + ", ".join(f"{key}*" if key.endswith(".") else key for key in OVERRIDABLE)
        )


@contextlib.contextmanager
def name_place(place: str) -> Iterator[None]:
    """Begin a ConfigError or ValueError that is raised in this context with a phase's place."""
    try:
        yield
    except ValueError as error:
        if not place or str(error).startswith(place):
            raise
        raise ConfigError(f"{place}: {error}") from error


def find_phase(phases: Sequence[Any], step: int) -> Any:
    """Return the phase that trains the batch of `step`, counted from 0; the last one after it."""
    return next((phase for phase in phases if step < phase.stop), phases[-1])


def get_run_at(run: Run, step: int) -> Run:
    """Return the settings with which a checkpoint of `step` was trained; `train.steps` stays."""
    own = find_phase(resolve_phases(run), max(step - 1, 0)).run
    if own is run:
        return run
    train = dataclasses.replace(
        own.train, steps=run.train.steps, stop_at_step=run.train.stop_at_step
    )
    return dataclasses.replace(own, train=train)


# ---- from the command line ---------------------------------------------------


def set_phases(run: Run, words: Iterable[Override]) -> Run:
    """Return a run with the `phases.NAME.key=value` arguments; a new name adds a phase at the end.

    Raises:
      ConfigError: a phase has no such key, or no length.
    """
    phases = {phase.name: phase for phase in run.phases}
    by_name: dict[str, list[Override]] = {}
    for word in words:
        if len(word.names) < 3:
            raise ConfigError(
                f"{word.key} is a phase: set its length, as in {word.key}.steps=1000, or one of "
                f"its settings, as in {word.key}.data.batch_size=64"
            )
        by_name.setdefault(word.names[1], []).append(word)
    for name, group in by_name.items():
        phases[name] = set_phase(phases.get(name), name, group)
    return dataclasses.replace(run, phases=tuple(phases.values()))


def set_phase(phase: Phase | None, name: str, words: Iterable[Override]) -> Phase:
    """Return the phase `name` with arguments; of two values for one key the last is used."""
    lengths = {}
    overrides = {line.partition("=")[0]: line for line in (phase.overrides if phase else ())}
    for word in words:
        path = word.names[2:]
        if len(path) == 1 and path[0] in LENGTHS:
            lengths[path[0]] = parse_value(word.text, int, word.key)
        else:
            line = f"{'.'.join(path)}={word.text}"
            parse_phase_override(name, line)
            overrides[".".join(path)] = line
    if phase and not lengths:
        lengths = {length: getattr(phase, length) for length in LENGTHS}
    return Phase(name=name, overrides=tuple(overrides.values()), **lengths)


def set_length(run: Run, words: Iterable[Override], report: Callable[[str], None]) -> Run:
    """Return a run whose `train.steps` is the sum of its phases' steps.

    Args:
      words: the other arguments; `train.steps` among them must be the sum.
      report: called with a line if the run had another length of its own.

    Raises:
      ConfigError: `train.steps` was given, and is not the sum.
    """
    total = lay_out_phases(run)[-1].stop
    before, default = run.train.steps, type(run.train)().steps
    if before == total:
        return run
    stops = {phase.name: (phase.begin, phase.stop) for phase in lay_out_phases(run)}
    phases = ", ".join(f"{name} {stop - begin:,}" for name, (begin, stop) in stops.items())
    if any(word.key == "train.steps" for word in words):
        raise ConfigError(
            f"train.steps={before}: the phases have {total:,} steps together ({phases}); leave "
            "train.steps out, or change the length of a phase"
        )
    if before != default:
        report(f"train.steps={total} is the sum of the phases ({phases}), not {before:,}")
    train = dataclasses.replace(run.train, steps=total)
    return dataclasses.replace(run, train=train)


# ---- the rows of phases ------------------------------------------------------


class OpenedOnce:
    """A source that opens the rows of an objective once, for all stairs that read them."""

    def __init__(self, source: Source) -> None:
        """Open nothing yet."""
        self.path, self.open_rows = source.path, functools.cache(source.open_rows)


def open_streams(
    source: Source, phases: Sequence[PhaseRun], split: str, for_evaluation: bool = False
) -> list[Stream | MixedStream]:
    """Return the rows of each phase; in training, the first row of each was not read before it.

    Raises:
      ValueError: the settings of a phase do not fit the source.
    """
    streams: list[Stream | MixedStream] = []
    rows: Any = OpenedOnce(source)
    for phase in phases:
        seed = phase.run.train.seed
        with name_place(phase.place):
            stream = open_stream(
                rows, phase.run.data, split=split, seed=seed, for_evaluation=for_evaluation
            )
            if streams and split == "train":
                continue_rows(stream, streams[-1], phase.start)
        streams.append(stream)
    return streams
