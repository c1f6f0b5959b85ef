"""Read the parameters of a checkpoint while a run may be saving and deleting checkpoints."""

import time
from collections.abc import Callable
from typing import Any

from etils import epath

from data.corpus.buckets import check_bucket
from data.corpus.paths import check_utf8_path
from data.corpus.untrusted import check_special_files
from pretrain.config import Run, from_json
from pretrain.phases import get_run_at
from pretrain.workdir import orbax_manager
from pretrain.workdir.check import explain_no_workdir
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.errors import DamagedCheckpoint, NotRestored
from pretrain.workdir.reader_pins import pin_step

ATTEMPTS = 20  # at a workdir whose run deletes the checkpoint that is being read
DELETION_SECONDS = 2.0  # a folder that loses its files may take so long to vanish


class _Deleted(Exception):
    """The checkpoint was deleted while it was read."""


def restore_params(
    workdir: epath.PathLike,
    step: int | None = None,
    choose_sharding: orbax_manager.Place | None = None,
    report: Callable[[str], Any] = print,
) -> tuple[Run, int, dict[str, Any]]:
    """Return (run, step, float32 parameters) of a checkpoint; see `restore_recorded_params`."""
    record, params = restore_recorded_params(workdir, step, choose_sharding, report)
    where = f"{workdir}, step {record['step']}"
    run = get_run_at(from_json(record["run"], where=where), int(record["step"]))
    return run, record["step"], params


def restore_recorded_params(
    workdir: epath.PathLike,
    step: int | None = None,
    choose_sharding: orbax_manager.Place | None = None,
    report: Callable[[str], Any] = print,
    ema: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (record, float32 parameters) of a checkpoint; the workdir stays as it is.

    The step is pinned while it is read. If a run deletes it nevertheless (it was about to, or the
    workdir cannot be written), the newest of the remaining ones is read.

    Args:
      step: the step of the checkpoint; None: the newest sound one.
      choose_sharding: (path, shape) -> sharding of a parameter; None: the first device.
      ema: whether to return the moving average of the parameters in their place.

    Raises:
      ConfigError: with `ema`, the run keeps no moving average.
      FileNotFoundError: there is no such checkpoint.
      DamagedCheckpoint: there is no sound one.
      NotRestored: one cannot be read, and nothing proves that it is damaged.
    """
    check_bucket(workdir)
    check_utf8_path(workdir)
    check_special_files(workdir)
    workdir = epath.Path(workdir)
    if not (workdir / "checkpoints").is_dir():
        raise FileNotFoundError(explain_no_workdir(workdir, "checkpoints/"))
    choose_sharding = choose_sharding or orbax_manager.place_on_first_device
    for _ in range(ATTEMPTS):
        try:
            return _restore_listed(workdir, step, choose_sharding, report, ema)
        except _Deleted:
            continue
    raise NotRestored(
        f"{workdir}: a run deleted {ATTEMPTS} checkpoints in a row while they were read; make "
        f"{workdir} writable for this command, or pin a step: echo STEP >> {workdir}/pinned"
    )


def _restore_listed(
    workdir: epath.Path,
    step: int | None,
    choose_sharding: orbax_manager.Place,
    report: Callable[[str], Any],
    ema: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (record, parameters) of a step, or of the newest sound one of those listed now."""
    with Checkpoints(workdir, read_only=True) as checkpoints:
        steps = checkpoints.list_steps()
        if step is not None and step not in steps:
            raise FileNotFoundError(
                f"{workdir}: no checkpoint of step {step}; there are {sorted(steps) or 'none'}"
            )
        restore = checkpoints.restore_ema if ema else checkpoints.restore_params
        for candidate in steps if step is None else [step]:
            try:
                with pin_step(workdir, candidate):
                    return restore(candidate, choose_sharding)
            except (
                OSError
            ) as error:  # DamagedCheckpoint, NotRestored, and a deleted folder's errors
                if _is_deleted(workdir / "checkpoints" / str(candidate)):
                    raise _Deleted from error
                if not isinstance(error, DamagedCheckpoint):
                    raise
                if step is not None:
                    raise DamagedCheckpoint(
                        f"{workdir}: checkpoint {candidate} is damaged: {error}"
                    ) from error
                report(f"checkpoint {candidate} is damaged, taking the one before: {error}")
    if steps:
        raise DamagedCheckpoint(f"{workdir}: none of the checkpoints {sorted(steps)} is sound")
    raise FileNotFoundError(f"{workdir}: no checkpoint yet")


def _is_deleted(step_folder: epath.Path) -> bool:
    """Return whether a folder is gone, now or within DELETION_SECONDS."""
    deadline = time.monotonic() + DELETION_SECONDS
    while step_folder.is_dir():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
