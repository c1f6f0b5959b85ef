"""Load a checkpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pretrain.host.terminal import print_notice
from pretrain.settings.arguments import format_path

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


def load(workdir: str | os.PathLike[str] | Trained, step: int | None = None) -> Trained:
    """Return a checkpoint: its configuration, its parameters and its vocabulary.

    `models.build(trained.run.model).apply({"params": trained.params}, ...)` computes with it.

    Args:
      workdir: the workdir of a run, here or in a bucket. A loaded checkpoint is returned as it is.
      step: the step of the checkpoint; None: the newest sound one.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      ConfigError: the vocabulary in the workdir is not the one of the checkpoint.
      ValueError: a loaded checkpoint is of another step.
    """
    from pretrain.workdir.trained import Trained, open_trained

    if not isinstance(workdir, Trained):
        return open_trained(format_path(workdir), step, report=print_notice)
    if step not in (None, workdir.step):
        raise ValueError(f"step {step}: the loaded checkpoint is of step {workdir.step}")
    return workdir


def find_checkpoint(
    model: str | os.PathLike[str] | Trained, step: int | None
) -> tuple[str, int | None]:
    """Return the workdir and the step of a checkpoint, which is read from the workdir again.

    Raises:
      ValueError: a loaded checkpoint is of another step.
    """
    if isinstance(model, (str, os.PathLike)):
        return format_path(model), step
    if step not in (None, model.step):
        raise ValueError(f"step {step}: the loaded checkpoint is of step {model.step}")
    return os.fspath(model.workdir), model.step
