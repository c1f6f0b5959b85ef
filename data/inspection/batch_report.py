"""Report on real batches: some rows decoded, and the guarantees of the objective checked.

The checks read only the batches, the store and the row table, and share no code with the objective:
text is compared with the store's tokens, words and documents are counted again, and shares are
compared with their binomial standard deviation.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from data import batch_spec
from data.inspection.checks import Check, InspectableObjective, InspectedBatch, RowStream


def inspect_batches(
    stream: RowStream,
    step: int = 0,
    batches: int = 8,
    rows: int = 4,
    token_id: Callable[[str], int | None] | None = None,
) -> dict[str, Any]:
    """Return a report on the batches from `step` on.

    If keys, shapes or ids are wrong, the other checks are skipped.

    Args:
      step: first batch.
      token_id: piece -> its id in the tokenizer that the model will be used with; the store's
        vocabulary by default.

    Returns:
      {"objective", "step", "batches", "passed", "checks", "rows"}.
    """
    objective: InspectableObjective = stream.objective
    token_id = token_id or {piece: i for i, piece in enumerate(stream.vocabulary.pieces)}.get
    inspected_batches = [read_batch(stream, step + i) for i in range(batches)]
    checks, rendered = check_spec(stream, inspected_batches, step), []
    if checks[0].passed and checks[1].passed:
        restored = [restore_batch(stream, inspected) for inspected in inspected_batches]
        checks += objective.measure_batches(stream, restored, token_id)
        shown = restored[0] if stream.objective.characters else inspected_batches[0]
        rendered = [
            objective.render_row(stream, shown, i) for i in range(min(rows, len(shown.row_B)))
        ]
    return {
        "objective": objective.name,
        "step": step,
        "batches": batches,
        "passed": all(check.passed for check in checks),
        "checks": [asdict(check) for check in checks],
        "rows": rendered,
    }


def read_batch(stream: RowStream, step: int) -> InspectedBatch:
    """Return the batch of a step with its rows and keys."""
    size = stream.data.batch_size
    return InspectedBatch(
        stream.build_batch(step), *stream.draw_keys(stream.locate_rows(step) + np.arange(size))
    )


def restore_batch(stream: RowStream, inspected: InspectedBatch) -> InspectedBatch:
    """Return a batch with the token ids of the split, where its source changes them."""
    if stream.restore is None:
        return inspected
    return inspected._replace(batch=stream.restore(*inspected))


def check_spec(stream: RowStream, batches: Sequence[InspectedBatch], step: int) -> list[Check]:
    """Return the checks of every objective: keys and shapes, ids, and slices of a batch."""
    objective: InspectableObjective = stream.objective
    size, vocabulary = stream.data.batch_size, stream.vocabulary
    expected = actual = "as the batch spec says"
    try:
        for inspected in batches:
            batch_spec.check_batch(inspected.batch, objective, size)
    except ValueError as error:
        actual = str(error)
    roles = (batch_spec.TOKEN_ID, batch_spec.CHARACTER)
    ids = [
        inspected.batch[key]
        for inspected in (restore_batch(stream, read) for read in batches)
        for key, field in objective.describe_batch().items()
        if field.role in roles and key in inspected.batch
    ]
    low, high = min(int(i.min()) for i in ids), max(int(i.max()) for i in ids)
    halves = [
        stream.build_batch(step, start, stop)
        for start, stop in ((0, size // 2), (size // 2, size))
        if start < stop
    ]
    whole = {key: np.concatenate([half[key] for half in halves]) for key in halves[0]}
    is_equal = all(np.array_equal(whole[key], array) for key, array in batches[0].batch.items())
    return [
        Check("keys, types and shapes", actual == expected, actual, expected),
        Check(
            "ids in the vocabulary",
            0 <= low <= high < vocabulary.size,
            f"{low} to {high}",
            f"0 to {vocabulary.size - 1}",
        ),
        Check(
            "two hosts read the rows that one reads",
            is_equal,
            "equal" if is_equal else "different",
            "equal",
        ),
    ]
