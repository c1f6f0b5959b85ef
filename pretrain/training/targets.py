"""Rows that ask for nothing teach nothing: a step or an evaluation without targets is an error.

Whole words that no mask fits, texts of unknown tokens or examples of weight 0 give a loss of 0 / 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from data.pipeline import Stream
from data.rows.tables import Batch
from pretrain.settings.overrides import ConfigError
from pretrain.training.losses import Loss, MixedLoss

if TYPE_CHECKING:
    from data.mixed_stream import MixedStream

ROWS_AT_ONCE = 64  # rows that are built until one has a target, which most have


def split_loss(loss: Loss | MixedLoss) -> Mapping[str, Loss]:
    """Return {part: loss} of a mixture, {"": loss} of any other loss."""
    return loss.parts if isinstance(loss, MixedLoss) else {"": loss}


def check_training_rows(
    stream: Stream | MixedStream, loss: Loss | MixedLoss, step: int = 0
) -> None:
    """Raise ConfigError unless the batch after `step` has a target for each part of the loss."""
    for part, part_loss in split_loss(loss).items():
        rows = stream.streams[part]
        if not has_targets(part_loss, build_rows(rows.build_batch, step, rows.data.batch_size)):
            raise ConfigError(
                f"{describe_nothing(rows, rows.data.batch_size, step + 1)}; "
                f"`inspect` with `--step {step}` shows them"
            )


def check_heldout_rows(stream: Stream | MixedStream, loss: Loss | MixedLoss) -> None:
    """Raise ConfigError unless the held-out rows have a target for each part of the loss."""
    for part, part_loss in split_loss(loss).items():
        rows = stream.streams[part]
        batches = (
            batch
            for index in range(rows.num_evaluation_batches)
            for batch in build_rows(rows.build_evaluation_batch, index, rows.data.batch_size)
        )
        if not has_targets(part_loss, batches):
            raise ConfigError(
                f"{describe_nothing(rows, rows.num_rows)}; hold out more (`prepare --held-out`), "
                "or set evaluate.every=0"
            )


def check_evaluation(stream: Stream, num_targets: float) -> None:
    """Raise ConfigError if an evaluation of all rows has scored nothing."""
    if not num_targets:
        raise ConfigError(describe_nothing(stream, stream.num_rows))


def check_step(
    stream: Stream | MixedStream, loss: Loss | MixedLoss, row: Mapping[str, Any]
) -> None:
    """Raise ConfigError if the step of a row of metrics had no target for a part of the loss.

    A mean of exactly 0 means no target, or a perfect model: the rows are built again then.
    """
    for part, part_loss in split_loss(loss).items():
        term = part_loss.loss_terms[0]
        if row.get(f"{part}/{term}" if part else term) == 0:
            check_training_rows(stream, loss, row["step"] - 1)
            return


def build_rows(build: Callable[..., Batch], number: int, batch_size: int) -> Iterator[Batch]:
    """Iterate over the rows of a batch, `ROWS_AT_ONCE` at a time.

    Args:
      build: (number of the batch, first row, end) -> these rows.
    """
    for first in range(0, batch_size, ROWS_AT_ONCE):
        yield build(number, first, min(first + ROWS_AT_ONCE, batch_size))


def has_targets(loss: Loss, batches: Iterator[Batch]) -> bool:
    """Return whether a batch has a target of the first term of a loss."""
    key = loss.weight_keys[loss.loss_terms[0]]
    return any((batch[key] != 0).any() for batch in batches)


def describe_nothing(stream: Stream, num_rows: int, step: int | None = None) -> str:
    """Return that rows of a stream have no target, a step's or all of them."""
    which = f"the {num_rows:,} rows of step {step:,}" if step else f"its {num_rows:,} rows"
    return f"{stream.name}: {stream.objective.name} predicts nothing in {which}"
