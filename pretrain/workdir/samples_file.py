"""Texts with gaps and what a model says there, over its training: `samples.jsonl`, a line for each evaluation (docs/inside.md)."""

from etils import epath

from data.corpus.json_lines import format_json_lines, parse_json_lines
from data.store.atomic import write_atomically

NAME = "samples.jsonl"
LINES = 100  # of the file: beyond that every second one goes


def write(path, line):
    """Add the line of a step, in place of those from there on, which another start has left."""
    lines = [one for one in read(path) if one["step"] < line["step"]]
    if len(lines) >= LINES:
        lines = lines[::2]
    write_atomically(path, format_json_lines([*lines, line], ensure_ascii=False))


def read(path):
    """The lines of a file, in the order of their steps; none where there is no file."""
    path = epath.Path(path)
    return parse_json_lines(path.read_text(encoding="utf-8")) if path.exists() else []


def by_row(lines):
    """What a page shows of a file's lines: {"steps": [N], "rows": [{"text", "right", "told"}]}, one for each different row.

    told: for each step the [word, probability] of each gap, None where the row was not among that step's.
    """
    rows = {}
    for n, line in enumerate(lines):
        for one in line["samples"]:
            right = [gap["right"] for gap in one["gaps"]]
            row = rows.setdefault(
                (*one["text"], *right),
                {"text": one["text"], "right": right, "told": [None] * len(lines)},
            )
            row["told"][n] = [[gap["told"], gap["probability"]] for gap in one["gaps"]]
    return {"steps": [line["step"] for line in lines], "rows": list(rows.values())}
