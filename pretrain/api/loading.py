"""Load a checkpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pretrain.host.terminal import print_notice
from pretrain.settings.arguments import format_path

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


def load(
    workdir: str | os.PathLike[str] | Trained,
    step: int | None = None,
    parameters: str | None = None,
) -> Trained:
    """Return a checkpoint: its configuration, its parameters and its vocabulary.

    `models.build(trained.run.model).apply({"params": trained.params}, ...)` computes with it.

    Args:
      workdir: the workdir of a run, here or in a bucket. A loaded checkpoint is returned as it is.
      step: the step of the checkpoint; None: the newest sound one.
      parameters: "raw", as trained, or "ema", their moving average; None: raw.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      ConfigError: the vocabulary in the workdir is not the one of the checkpoint, or the run keeps
        no moving average.
      ValueError: a loaded checkpoint is of another step, or has other parameters.
    """
    from pretrain.workdir.trained import Trained, open_trained

    if not isinstance(workdir, Trained):
        return open_trained(format_path(workdir), step, parameters, report=print_notice)
    find_checkpoint(workdir, step, parameters)
    return workdir


def find_checkpoint(
    model: str | os.PathLike[str] | Trained, step: int | None, parameters: str | None
) -> tuple[str, int | None, str | None]:
    """Return workdir, step and `parameters` of a checkpoint, which is read from its workdir again.

    Raises:
      ValueError: a loaded checkpoint is of another step, or has other parameters.
    """
    if isinstance(model, (str, os.PathLike)):
        return format_path(model), step, parameters
    if step not in (None, model.step):
        raise ValueError(f"step {step}: the loaded checkpoint is of step {model.step}")
    if parameters not in (None, model.parameters):
        raise ValueError(
            f"parameters {parameters}: the loaded checkpoint has the {model.parameters} ones; load "
            f"it with parameters={parameters}"
        )
    return os.fspath(model.workdir), model.step, model.parameters
