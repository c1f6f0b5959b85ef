"""One real batch, decoded for the eye, and what its objective promises, measured on a few batches.

The measurements read nothing but the batches, the store and the row table, and recompute each promise in their own way:
text is compared with the store's tokens, words and documents are walked, shares are held against their binomial spread.
"""

from dataclasses import asdict

import numpy as np

from data import batch_spec
from data.inspection.checks import Check, Seen


def inspect(stream, step=0, batches=8, rows=4, token_id=None):
    """{"objective", "step", "batches", "passed", "checks", "rows"}: measured from `step` on, some rows decoded.

    token_id: from a piece to its id in the tokenizer that the model will be used with; default: the store's vocabulary.
    If keys, shapes or ids are wrong, nothing further can be read, and the report ends there.
    """
    objective = stream.objective
    token_id = token_id or {piece: i for i, piece in enumerate(stream.vocabulary.pieces)}.get
    seen = [look(stream, step + i) for i in range(batches)]
    checks, shown = common(stream, seen, step), []
    if checks[0].passed and checks[1].passed:
        checks += objective.measure(stream, seen, token_id)
        shown = [objective.render(stream, seen[0], i) for i in range(min(rows, len(seen[0].row_B)))]
    return {
        "objective": objective.name,
        "step": step,
        "batches": batches,
        "passed": all(check.passed for check in checks),
        "checks": [asdict(check) for check in checks],
        "rows": shown,
    }


def look(stream, step):
    return Seen(
        stream.batch(step),
        *stream.draws(step * stream.data.batch_size + np.arange(stream.data.batch_size)),
    )


def common(stream, seen, step):
    """What holds for every objective; first of all keys and shapes, then ids."""
    size, vocabulary = stream.data.batch_size, stream.vocabulary
    shapes = "as the batch spec says"
    try:
        for each in seen:
            batch_spec.check(each.batch, stream.objective, size)
    except ValueError as error:
        shapes = str(error)
    ids = [
        each.batch[key]
        for each in seen
        for key, field in stream.objective.spec().items()
        if field.role == batch_spec.TOKEN_ID and key in each.batch
    ]
    low, high = min(int(i.min()) for i in ids), max(int(i.max()) for i in ids)
    halves = [
        stream.batch(step, lo, hi) for lo, hi in ((0, size // 2), (size // 2, size)) if lo < hi
    ]
    whole = {key: np.concatenate([half[key] for half in halves]) for key in halves[0]}
    same = all(np.array_equal(whole[key], array) for key, array in seen[0].batch.items())
    return [
        Check("keys, types and shapes", shapes.startswith("as"), shapes, "as the batch spec says"),
        Check(
            "ids in the vocabulary",
            0 <= low <= high < vocabulary.size,
            f"{low} to {high}",
            f"0 to {vocabulary.size - 1}",
        ),
        Check("two hosts read what one reads", same, "equal" if same else "different", "equal"),
    ]
