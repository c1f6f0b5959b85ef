"""What may change when a run is continued, and how the change is reported."""

import itertools
import shlex

from data.mixed_stream import MixedStream
from data.pipeline import Stream
from pretrain.config import Run
from pretrain.phases import resolve_phases
from pretrain.settings.overrides import ConfigError
from pretrain.training.schedules import make_learning_rate
from pretrain.workdir.recorded_run import list_changes, read_newest_run
from pretrain.workdir.workdir import Workdir


def check_workdir(run: Run, workdir: Workdir, allow_changes: bool) -> Run | None:
    """Return the configuration of the last start in a workdir, or None for a new workdir.

    A workdir in which no step was finished is new, too: its configuration may be changed.

    Raises:
      ConfigError: the configuration differs in keys outside `CHANGEABLE_KEYS`. With
        `allow_changes` the differences are printed instead, unless they are of a phase that has
        ended.
    """
    if not workdir.has_config:
        return None
    before = workdir.run
    changes = list_changes(before, run)
    if not workdir.has_finished_steps:
        if changes:
            print(f"{workdir}: no step was finished; changed: " + "; ".join(changes))
        return None
    if changes and not allow_changes:
        file, folder = shlex.quote(f"{workdir}/config.json"), shlex.quote(str(workdir))
        raise ConfigError(
            f"{workdir} (`train {file} --workdir {folder}` resumes it as it is) holds a run of "
            f"another configuration: {'; '.join(changes)}. Name a new --workdir, or add "
            "--allow-changes to `train`"
        )
    changes += check_recorded_run(run, workdir, allow_changes)
    check_past_phases(before, run, next(iter(workdir.list_steps()), 0))
    for line in dict.fromkeys(changes):
        print(f"changed on continuing: {line}")
    return before


def check_recorded_run(run: Run, workdir: Workdir, allow_changes: bool) -> list[str]:
    """Return how a run differs from the sealed record of the newest checkpoint."""
    newest = read_newest_run(workdir)
    if newest is None:
        return []
    step, recorded = newest
    changes = list_changes(recorded, run)
    if changes and not allow_changes:
        raise ConfigError(
            f"{workdir}: checkpoint {step} was made by a run of another configuration: "
            f"{'; '.join(changes)}. Either config.json was edited, or the checkpoint was copied "
            "from another run: put the right one back, name a new --workdir, or add "
            "--allow-changes to `train`"
        )
    return changes


def check_past_phases(before: Run, run: Run, step: int) -> None:
    """Raise ConfigError if a phase that has ended by a checkpoint of `step` would change."""
    earlier, later = resolve_phases(before), resolve_phases(run)
    if earlier[0].run is before and later[0].run is run:  # neither has phases or stairs
        return
    for old, new in itertools.zip_longest(earlier, later):
        if old is None:
            return
        is_over, where = old.stop <= step, old.place or "the run"
        changes = list_changes(old.run, new.run) if new and is_over else []
        if new and is_over and new.stop != old.stop:
            changes.insert(0, f"its last step: {old.stop:,} -> {new.stop:,}")
        if new is None or changes or new.stop < min(step, old.stop):
            raise ConfigError(
                f"{where} has trained up to step {min(step, old.stop):,}, which cannot change "
                f"afterwards ({'; '.join(changes) or 'it would be left out or end before'}). "
                "Change the phases after it, or name a new --workdir"
            )
        if not is_over:
            return


def describe_schedule(run: Run, before: Run | None, updates: int) -> list[str]:
    """Return a line for each property of the learning rate that a reader may not expect.

    Args:
      before: the configuration of the last start, or None.
    """
    lines, optimizer = [], run.optimizer
    end = optimizer.decay_steps or run.train.steps
    if optimizer.decay in ("linear", "cosine") and optimizer.warmup_steps >= end:
        lines.append(
            f"optimizer.warmup_steps={optimizer.warmup_steps:,} is not shorter than the schedule "
            f"of {end:,} steps: the learning rate rises for {max(end - 1, 0):,} steps"
        )
    if before is None or not updates or before.train.steps == run.train.steps:
        return lines
    old_rate, new_rate = (
        float(make_learning_rate(run.optimizer, config.train.steps)(updates))
        for config in (before, run)
    )
    if old_rate != new_rate:
        lines.append(
            f"train.steps: {before.train.steps:,} -> {run.train.steps:,} changes the schedule: the "
            f"learning rate of update {updates + 1:,} is {new_rate:.3g}, not {old_rate:.3g}"
        )
    return lines


def resume_rows(stream: Stream | MixedStream, step: int, num_rows: int | dict[str, int]) -> None:
    """Continue the stream after the rows that a checkpoint records as read.

    Args:
      num_rows: number of rows read, or {part: number of rows read} for a mixture of objectives.
    """
    if isinstance(stream, MixedStream):
        stream.start_at_row(step, num_rows)
    else:
        stream.start_at_row(
            step, sum(num_rows.values()) if isinstance(num_rows, dict) else num_rows
        )


def describe_rows(stream: Stream | MixedStream, start: int) -> list[str]:
    """Return a line for each stream that does not continue at row `start * batch_size`."""
    lines = []
    for part, part_stream in stream.streams.items():
        row, batch_size = part_stream.locate_rows(start), part_stream.data.batch_size
        if part in getattr(stream, "unrecorded_parts", ()):
            lines.append(
                f"the checkpoint records no rows of {part}: step {start + 1:,} begins with its "
                "first row"
            )
        elif row != start * batch_size:
            noun = f"rows of {part}" if part else "rows"
            lines.append(
                f"{start:,} steps have read {row:,} {noun}: step {start + 1:,} continues after "
                f"them with {batch_size:,} rows per step"
            )
    return lines
