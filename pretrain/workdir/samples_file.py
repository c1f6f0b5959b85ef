"""Texts with gaps and a model's predictions for them during training: `samples.jsonl`.

The file has one line for each evaluation (docs/inside.md).
"""

from collections.abc import Sequence
from typing import Any

from etils import epath

from data.corpus.json_lines import format_json_lines
from data.store.atomic import write_atomically
from pretrain.workdir.step_lines import mend_step_lines, report_step_lines

NAME = "samples.jsonl"
OLD_KEYS = {"right": "target", "told": "prediction"}  # of a gap, before 0.3.0
MAX_LINES = 100  # in the file; when it is full, every second line is dropped


def add_samples(path: epath.PathLike, line: dict[str, Any]) -> None:
    """Add the line of a step, and drop lines of this step and later, left by an earlier start."""
    lines = [
        earlier for earlier in mend_step_lines(path, "samples") if earlier["step"] < line["step"]
    ]
    if len(lines) >= MAX_LINES:
        lines = lines[::2]
    write_atomically(path, format_json_lines([*lines, line], ensure_ascii=False))


def read_samples(path: epath.PathLike) -> list[dict[str, Any]]:
    """Return the lines of a file in the order of their steps; [] if there is no file.

    A line of Cloze 0.2 has the keys of today.
    """
    lines = report_step_lines(path, "samples", is_sound=has_samples)
    for line in lines:
        for sample in line["samples"]:
            sample["gaps"] = [_rename_keys(gap) for gap in sample["gaps"]]
    return lines


def _rename_keys(gap: dict[str, Any]) -> dict[str, Any]:
    """Return a gap with the keys of today."""
    return {OLD_KEYS.get(key, key): value for key, value in gap.items()}


def has_samples(line: dict[str, Any]) -> bool:
    """Return whether a line has samples in the form that training writes."""
    samples = line["samples"]
    return isinstance(samples, list) and all(
        isinstance(sample, dict)
        and _is_list_of(str, sample.get("text"))
        and _is_list_of(dict, sample.get("gaps"))
        and all(
            isinstance(gap.get("target"), str)
            and isinstance(gap.get("prediction"), str)
            and isinstance(gap.get("probability", ""), int | float | None)
            for gap in map(_rename_keys, sample["gaps"])
        )
        for sample in samples
    )


def _is_list_of(kind: type, value: Any) -> bool:
    """Return whether a JSON value is a list of values of a kind."""
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def group_by_row(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a file grouped by row, as an HTML report shows it.

    Returns:
      {"steps": [N], "rows": [{"text", "targets", "predictions"}]}, one entry for each different
      row. "targets" has the original word of each gap. "predictions" has, for each step, the
      predicted [word, probability] of each gap, or None if the row was not sampled at that step.
    """
    rows = {}
    for n, line in enumerate(lines):
        for sample in line["samples"]:
            targets = [gap["target"] for gap in sample["gaps"]]
            row = rows.setdefault(
                (*sample["text"], *targets),
                {"text": sample["text"], "targets": targets, "predictions": [None] * len(lines)},
            )
            row["predictions"][n] = [
                [gap["prediction"], gap["probability"]] for gap in sample["gaps"]
            ]
    return {"steps": [line["step"] for line in lines], "rows": list(rows.values())}
