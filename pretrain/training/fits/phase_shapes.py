"""Which phases of a run compute the same, so that they share a compiled program."""

import dataclasses
from typing import Any

from data.mixed import Mixed
from pretrain.config import Run
from pretrain.run import list_ramps
from pretrain.settings.overrides import apply_overrides, parse_override
from pretrain.training.losses import make_loss


def find_shapes(run: Run) -> Run:
    """Return what the program of a phase depends on: its settings without rates and lengths.

    The rate of the masks is a number of the rows that are built, and the step never reads it.
    """
    if masks := [key for key in list_ramps(run) if key.endswith("mask_ramp")]:
        run = apply_overrides(run, [parse_override(f"{key}=Ramp") for key in masks])
    objective = level_mask_rate(run.data.objective)
    return dataclasses.replace(
        run,
        optimizer=run.optimizer.without_schedule(),
        data=dataclasses.replace(run.data, rates=(), temperature=1.0, objective=objective),
        train=dataclasses.replace(run.train, steps=1, stop_at_step=0),
    )


def level_mask_rate(objective: Any) -> Any:
    """Return an objective with its default mask rate, if batches and loss stay as they are."""
    if isinstance(objective, Mixed):
        parts = (
            dataclasses.replace(part, objective=level_mask_rate(part.objective))
            for part in objective.parts
        )
        return dataclasses.replace(objective, parts=tuple(parts))
    if objective.mask_rate is None:
        return objective
    level = dataclasses.replace(objective, mask_rate=type(objective).mask_rate)
    one, other = ((each.axis_sizes(), each.describe_batch()) for each in (level, objective))
    is_same = one == other and make_loss(level) == make_loss(objective)
    return level if is_same else objective
