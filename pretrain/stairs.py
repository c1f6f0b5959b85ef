"""Ramps of a run's settings: where they count from, and the stairs of a phase. No JAX.

A ramp of the batch or of the temperature becomes stairs: parts of a phase with constant settings,
through which a run goes as through phases. Other ramps are functions of the step where they are
used. The ramp that a phase sets counts the steps of the phase, and a run's own counts all steps;
here all become ramps over the steps of the run.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from data.config import Data
from data.mixed import count_positions
from data.rows.ramp import FULL_BATCH, Ramp
from pretrain.run import Run, list_ramps
from pretrain.settings.optimizers import WeightDecay
from pretrain.settings.overrides import ConfigError, apply_overrides, parse_override

MAX_SIZES = 256  # of a batch that rises, each of which compiles a program
TEMPERATURE_STAIRS = 16


class Stair(NamedTuple):
    """A part of a phase. changes: its settings that other stairs of the phase do not have."""

    steps: int
    data: Data
    changes: tuple[str, ...] = ()

    @property
    def has_smaller_batch(self) -> bool:
        """Whether the batch has not reached its size."""
        return any(change.startswith("data.batch_size") for change in self.changes)


# ---- where ramps count from --------------------------------------------------


def place_ramps(run: Run, keys: Collection[str], start: int) -> Run:
    """Return the settings of a phase with ramps over the steps of the run.

    Args:
      run: the settings, with ramps as they were given.
      keys: the keys that the phase sets; its ramps count from `start`.
    """
    shifts = [
        f"{ramp_key}.{name}={getattr(ramp, name) + start}"
        for ramp_key, ramp in list_ramps(run).items()
        if is_set(ramp_key, keys)
        for name in ("first_step", "last_step")
    ]
    run = apply_overrides(run, map(parse_override, shifts))
    if start and not is_set("data.batch_ramp", keys):  # the run's own is for the run's first phase
        run = dataclasses.replace(run, data=dataclasses.replace(run.data, batch_ramp=FULL_BATCH))
    return run


def is_set(ramp: str, keys: Collection[str]) -> bool:
    """Return whether one of the keys is of a ramp."""
    return any(key == ramp or key.startswith(f"{ramp}.") for key in keys)


def check_ends(run: Run, keys: Collection[str], start: int, stop: int) -> None:
    """Raise ConfigError for a ramp of these keys that ends after `stop`, the end of its phase."""
    for key, ramp in list_ramps(run).items():
        if is_set(key, keys) and ramp.last_step > stop:
            raise ConfigError(
                f"{key}.last_step={ramp.last_step - start:,} is beyond the end, step "
                f"{stop - start:,}: end the ramp earlier, or train longer"
            )


def count_all_decays(runs: Sequence[Run]) -> list[Run]:
    """Return the settings of phases with a ramp of the weight decay in all, or in none.

    A ramp counts updates in the optimizer's state, which passes from phase to phase.
    """
    ramped = ["optimizer.weight_decay_ramp" in list_ramps(run) for run in runs]
    if not any(ramped):
        return list(runs)
    result = []
    for run, is_ramped in zip(runs, ramped):
        if not is_ramped and isinstance(run.optimizer, WeightDecay):
            level = Ramp(run.optimizer.weight_decay, 0, 1)
            optimizer = dataclasses.replace(run.optimizer, weight_decay_ramp=level)
            run = dataclasses.replace(run, optimizer=optimizer)
        result.append(run)
    return result


# ---- stairs ------------------------------------------------------------------


def list_stairs(data: Data, start: int, steps: int, tokens: int) -> list[Stair]:
    """Return the stairs of a phase, in order.

    Args:
      data: the settings of the phase, with ramps over the steps of the run.
      start: the steps before the phase.
      steps, tokens: the length of the phase; one of them is 0.

    Raises:
      ConfigError: a ramp is invalid, or longer than the phase.
    """
    ramp, stairs = data.temperature_ramp, []
    length = ramp.last_step - ramp.first_step
    rises = [] if ramp.is_constant else range(TEMPERATURE_STAIRS + 1)
    edges = [ramp.first_step - -i * length // TEMPERATURE_STAIRS for i in rises]
    for count, size in rise_batch(data, steps, tokens):
        stop = start + count
        cuts = sorted({start, stop, *(edge for edge in edges[1:] if start < edge < stop)})
        for first, end in itertools.pairwise(cuts):
            held = max((edge for edge in edges if edge <= first), default=first)
            value = float(ramp.compute_values(np.array(held), data.temperature))
            changes = [f"data.batch_size={size}"] if size != data.batch_size else []
            changes += [f"data.temperature={value:.4g}"] if value != data.temperature else []
            constant = dataclasses.replace(
                data,
                batch_size=size,
                batch_ramp=FULL_BATCH,
                temperature=value,
                temperature_ramp=Ramp(),
            )
            stairs.append(Stair(end - first, constant, tuple(changes)))
        start = stop
    return stairs


def rise_batch(data: Data, steps: int, tokens: int) -> list[tuple[int, int]]:
    """Return (steps, rows of a batch) of the stairs of a phase of so many steps or tokens.

    ModernBERT's warm-up: with a length of T tokens, the size b_i ends when T (b_1 + ... + b_i) /
    (b_1 + ... + b_n) tokens have been read, rounded up. So sizes have about as many steps each.
    """
    ramp, sizes = data.batch_ramp, list_sizes(data)
    total, read, stairs = sum(sizes), 0, []
    for i, size in enumerate(sizes, 1):
        per_step = count_positions(data.objective, size)
        if ramp.tokens:
            end = -(-ramp.tokens * sum(sizes[:i]) // total)
            count = max(-((read - end) // per_step), 0)
        else:
            count = -(-i * ramp.steps // len(sizes)) + ((1 - i) * ramp.steps // len(sizes))
        stairs.append((count, size))
        read += count * per_step
    before = sum(count for count, _ in stairs)
    rest = steps - before
    if tokens:
        rest = -((read - tokens) // count_positions(data.objective, data.batch_size))
    if rest < 0:
        own, whole = (read, f"{tokens:,} tokens") if tokens else (before, f"{steps:,} steps")
        raise ConfigError(
            f"data.batch_ramp ends after {own:,} of {whole}: end the ramp earlier, or train longer"
        )
    return [stair for stair in [*stairs, (rest, data.batch_size)] if stair[0]]


def list_sizes(data: Data) -> list[int]:
    """Return the sizes of a batch before its own, ascending; raise ConfigError for a bad ramp."""
    ramp, size, key = data.batch_ramp, data.batch_size, "data.batch_ramp"
    if ramp.start is None:
        if ramp != FULL_BATCH:
            raise ConfigError(f"{key} needs its first size: set {key}.start")
        return []
    for name in ("steps", "tokens", "rise"):
        if (value := getattr(ramp, name)) < 0:
            raise ConfigError(f"{key}.{name}={value}: 0 or more")
    if bool(ramp.steps) == bool(ramp.tokens):
        raise ConfigError(f"{key} needs one length: set either {key}.steps or {key}.tokens")
    if not 0 < ramp.start < size:
        raise ConfigError(
            f"{key}.start={ramp.start}: a ramp begins with a row or more, below "
            f"data.batch_size={size}"
        )
    rise = ramp.rise or ramp.start
    if (size - ramp.start) % rise:
        raise ConfigError(
            f"{key}: from {ramp.start} rows by {rise} a rise, a batch does not reach "
            f"data.batch_size={size}; set {key}.rise to a divisor of {size - ramp.start}"
        )
    sizes = range(ramp.start, size, rise)
    if len(sizes) > MAX_SIZES:
        raise ConfigError(
            f"{key} has {len(sizes):,} sizes below data.batch_size={size}, each of which compiles "
            f"a program; set {key}.rise so that there are at most {MAX_SIZES}"
        )
    return list(sizes)
