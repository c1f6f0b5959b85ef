"""A branch: a run that goes on from a checkpoint of another one, as that one would have gone on.

A stable run (`optimizer.decay=constant`) ends well at several budgets this way: a branch from a
step of each budget cools down (Hu et al. 2024, section 4.2; Hägele et al. 2024).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from etils import epath

from data.source import Source
from pretrain.config import Run, from_json
from pretrain.settings.overrides import ConfigError
from pretrain.training.beginnings.given import GivenModel
from pretrain.training.divergence import count_updates
from pretrain.training.new_workdir import name_folder, write_new_workdir
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.schedules import make_learning_rate
from pretrain.training.state import TrainState, init_run_state
from pretrain.workdir import skipped_documents, source_record
from pretrain.workdir.check import read_object
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.reader_pins import pin_step
from pretrain.workdir.workdir import Workdir


def start_branch(run: Run, workdir: str, given: GivenModel, source: Source) -> None:
    """Create a workdir whose only checkpoint is the given one, with the configuration of `run`.

    The count of steps goes on, so the schedule of `run` is at that step too. The next unread row
    follows if `run` reads the source of the given run, in its order.

    Raises:
      ConfigError: the given model has no optimizer, or the state of another one; or `run` ends
        before it begins.
    """
    step = given.step
    if step is None:
        raise ConfigError(
            f"--with-optimizer: {given.place} is no workdir, so it has no optimizer; leave "
            "--with-optimizer out"
        )
    if run.train.last_step <= step:
        raise ConfigError(
            f"--with-optimizer: the branch goes on after step {step:,} and would end at step "
            f"{run.train.last_step:,}: set train.steps to a number above {step:,}"
            + (", and train.stop_at_step=0" if run.train.stop_at_step else "")
        )
    state, record = restore_branch(run, given.place, step, source)
    before = from_json(record["run"], where=f"{given.place}, step {step}")
    parent = Workdir.open(given.place)
    files = find_source_files(parent, source)
    continues = bool(files) and before.train.seed == run.train.seed
    rows = record["rows"] if continues else 0
    origin = {
        "folder": name_folder(given.place),
        "pretrained_step": step,
        "fresh": [],
        "with_optimizer": True,
        "rows": rows,
        "before": parent.read_origin(),
    }
    write_new_workdir(workdir, run, lambda: state, source.encoding, origin, rows, files)
    rows_text = describe_rows_read(rows) if continues else "at the first row of its data"
    print(f"{workdir}: goes on from {given.origin} with its optimizer, {rows_text}")
    print(f"{workdir}: {describe_rate(run, before, state)}")


def restore_branch(
    run: Run, place: str, step: int, source: Source
) -> tuple[TrainState, dict[str, Any]]:
    """Return the state that `run` needs and the record of a checkpoint.

    Raises ConfigError if the checkpoint has other values.
    """
    abstract = jax.eval_shape(partial(init_run_state, run, make_run_optimizer(run)))
    first = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shardings = jax.tree.map(lambda _: first, abstract)
    with pin_step(place, step), Checkpoints(epath.Path(place), read_only=True) as checkpoints:
        try:
            state = checkpoints.restore_step(step, abstract, shardings, source.encoding.fingerprint)
        except ConfigError as error:
            raise ConfigError(
                f"--with-optimizer: {place}, step {step}: {error}. Give the run the model and the "
                "optimizer of that one (its kind, train.ema_decay, guard.norm_factor, model.scan), "
                "or leave --with-optimizer out"
            ) from error
        return state, checkpoints.load_record(step)


def find_source_files(parent: Workdir, source: Source) -> dict[str, str]:
    """Return {name: text} of a run's records of its data; {} if `source` has other data."""
    if read_object(parent / source_record.NAME).get("fingerprint") != source.fingerprint:
        return {}
    paths = [parent / name for name in (source_record.NAME, skipped_documents.NAME)]
    return {path.name: path.read_text() for path in paths if path.exists()}


def describe_rows_read(rows: int | dict[str, int]) -> str:
    """Return how many rows a branch follows, in words."""
    parts = rows.items() if isinstance(rows, dict) else [("", rows)]
    counts = " and ".join(f"{count:,} rows{part and ' of '}{part}" for part, count in parts)
    return f"after the {counts} that it read"


def describe_rate(run: Run, before: Run, state: TrainState) -> str:
    """Return the learning rate of the next update in a branch, and in the given run."""
    updates = int(count_updates(state.optimizer, state.step))
    new, old = (
        float(make_learning_rate(config.optimizer, config.train.steps)(updates))
        for config in (run, before)
    )
    beside = "as there" if new == old else f"and {old:.3g} there"
    return f"the learning rate of update {updates + 1:,} is {new:.3g}, {beside}"
