"""Compare the end of a tortured run with an undisturbed one: rows, metrics, parameters."""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints

TIMED = ("seconds", "tokens_per_second", "wait", "device")
# Largest absolute difference of a parameter where device counts changed: sums over devices have
# another order. It is not relative to the tensor, because the bias of the keys has no gradient, and
# so is rounding noise throughout.
TOLERANCE = 0.002

RowRecord = Mapping[str, Any]  # {"process", "step", "rows": [digest of each row]}


def read_untimed_rows(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl without what depends on the machine's speed."""
    return [
        {key: value for key, value in row.items() if not any(word in key for word in TIMED)}
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
    ]


def read_record(workdir: pathlib.Path, step: int) -> dict[str, Any]:
    """Return the record of a checkpoint."""
    with Checkpoints(workdir, read_only=True) as checkpoints:
        return checkpoints.load_record(step)


def read_fingerprints(workdir: pathlib.Path, step: int) -> tuple[Any, Any]:
    """Return the fingerprints of the parameters and of the optimizer's state after a step."""
    record = read_record(workdir, step)
    return record["params"], record["optimizer"]


def read_row_records(path: pathlib.Path) -> list[RowRecord]:
    """Return the lines that tests/faults/faulty.py wrote about each finished step, in order."""
    *lines, _ = path.read_text().split("\n")
    return [json.loads(line) for line in lines]


def order_rows(records: Sequence[RowRecord], last_step: int) -> tuple[list[str], str]:
    """Return (rows that the steps up to `last_step` have read, in order; a problem or "").

    A step that was repeated counts as it was done last. A step that is missing, and a process that
    goes on after another one has trained, are problems.
    """
    rows_of_step = {record["step"]: record["rows"] for record in records}
    missing = [step for step in range(1, last_step + 1) if step not in rows_of_step]
    if missing:
        return [], f"no rows are recorded of the steps {missing}"
    turns = [record["process"] for record in records]
    ended: set[int] = set()
    for previous, current in itertools.pairwise(turns):
        if previous != current:
            ended.add(previous)
        if current in ended:
            return [], f"process {current} went on training next to another one"
    rows = [row for step in range(1, last_step + 1) for row in rows_of_step[step]]
    return rows, ""


def compare_rows(rows: Sequence[str], expected: Sequence[str]) -> str:
    """Return how the rows read differ from an undisturbed run's; "" if they do not."""
    for i, (row, other) in enumerate(zip(rows, expected, strict=False)):
        if row != other:
            return f"row {i:,} of the run is not the undisturbed run's"
    if len(rows) > len(expected):
        return f"{len(rows):,} rows were read, only {len(expected):,} are known"
    return ""


def compare_metrics(
    rows: Sequence[Mapping[str, Any]],
    undisturbed: Sequence[Mapping[str, Any]],
    lost_steps: set[int],
    only_steps: bool = False,
) -> str:
    """Return how the lines of metrics.jsonl differ from an undisturbed run's; "" if they do not.

    Args:
      lost_steps: steps whose lines were damaged, and may be missing.
      only_steps: compare which steps have a line, not what it says.
    """
    steps = [row["step"] for row in rows]
    if steps != sorted(set(steps)):
        return f"metrics.jsonl has steps twice or out of order: {steps}"
    by_step = {row["step"]: row for row in undisturbed}
    missing = sorted(by_step.keys() - set(steps) - lost_steps)
    if missing or (unknown := sorted(set(steps) - by_step.keys())):
        return (
            f"metrics.jsonl lacks the steps {missing}" if missing else f"steps {unknown} too many"
        )
    for row in rows:
        if not only_steps and row != by_step[row["step"]]:
            return (
                f"the metrics of step {row['step']} are {row}, undisturbed {by_step[row['step']]}"
            )
    return ""


def measure_difference(params: Any, undisturbed: Any) -> float:
    """Return the largest absolute difference of two parameter trees of NumPy arrays.

    It is NaN or infinite where a parameter is. Compare it with `not difference <= limit`.
    """
    differences = [0.0]
    for key, value in undisturbed.items():
        if isinstance(value, Mapping):
            differences.append(measure_difference(params[key], value))
        else:
            one, other = np.asarray(params[key]), np.asarray(value)
            with np.errstate(invalid="ignore"):  # infinite in both
                differences.append(float(np.abs(one - other).max()))
    return float(np.max(differences))  # Python's max() may pass over NaN


def read_params(workdir: pathlib.Path, step: int) -> Any:
    """Return the parameters after a step, as NumPy arrays."""
    import jax

    from pretrain.workdir.read_params import restore_params

    return jax.device_get(restore_params(workdir, step)[2])
