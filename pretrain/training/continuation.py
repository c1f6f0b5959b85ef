"""What may differ between two starts of one run, and what a person is told of it."""

from etils import epath

from data.mixed_stream import MixedStream, split_stream
from data.pipeline import Stream
from pretrain.config import Run, read_json
from pretrain.fields import difference
from pretrain.overrides import ConfigError
from pretrain.training.schedules import make_learning_rate

# A run may be continued with these changed: they choose where and how often, not what is computed. `describe_schedule` tells what
# another train.steps moves.
FREE = (
    *("mesh.", "evaluate.", "checkpoint.", "watchdog.", "guard.replicas"),
    *("train.steps", "train.stop_at_step"),
    *("data.store", "data.threads", "data.prefetch", "model.remat", "model.encoder.remat"),
)


def check_workdir(run: Run, workdir: epath.Path, allow_changes: bool) -> Run | None:
    """Return the configuration that the run in a workdir had before; None where none has begun there.

    Raises ConfigError where it differs in what `FREE` does not list, unless changes are allowed: then they are printed.
    """
    path = workdir / "config.json"
    if not path.exists():
        return None
    before = read_json(path)
    rows = difference(before, run)
    changed = [f"{key}: {old} -> {new}" for key, old, new in rows if not key.startswith(FREE)]
    if changed and not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run of another configuration: "
            + "; ".join(changed)
            + ". Name a new --workdir, or add --allow-changes"
        )
    for line in changed:
        print(f"changed on continuing: {line}")
    return before


def describe_schedule(run: Run, before: Run | None, updates: int) -> list[str]:
    """Return lines on a learning rate that is another than a reader of the configuration expects; updates: those that were made.

    before: the configuration of the run's last start, or None.
    """
    lines, optimizer = [], run.optimizer
    end = optimizer.decay_steps or run.train.steps
    if optimizer.decay in ("linear", "cosine") and optimizer.warmup_steps >= end:
        lines.append(
            f"optimizer.warmup_steps={optimizer.warmup_steps:,} is not shorter than the {end:,} steps until the learning rate has reached "
            f"its end: it climbs for {max(end - 1, 0):,}"
        )
    if before is None or not updates or before.train.steps == run.train.steps:
        return lines
    was, now = (
        float(make_learning_rate(run.optimizer, one.train.steps)(updates)) for one in (before, run)
    )
    if was != now:
        lines.append(
            f"train.steps: {before.train.steps:,} -> {run.train.steps:,} moves the schedule: the learning rate of update {updates + 1:,} was "
            f"to be {was:.3g} and is {now:.3g}"
        )
    return lines


def begin_from(stream: Stream | MixedStream, step: int, rows: int | dict[str, int]) -> None:
    """Let the batch of `step` begin behind the rows that a checkpoint has recorded: a number, or {part: number} of a mixture."""
    if isinstance(rows, dict) and not isinstance(stream, MixedStream):
        rows = sum(rows.values())
    stream.begin_from(step, rows)


def describe_rows(stream: Stream | MixedStream, start: int) -> list[str]:
    """Return a line where the batch of the next step does not begin with the row that a constant batch size would give it."""
    lines = []
    for part, each in split_stream(stream).items():
        row, size = each.place(start), each.data.batch_size
        if part in getattr(stream, "unrecorded", ()):
            lines.append(
                f"the checkpoint knows of no rows of {part}: it begins with its first at step {start + 1:,}"
            )
        elif row != start * size:
            rows = f"rows of {part}" if part else "rows"
            lines.append(
                f"{start:,} steps have read {row:,} {rows}: step {start + 1:,} goes on behind them with {size:,} a step"
            )
    return lines
