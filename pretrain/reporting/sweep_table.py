"""The members of a sweep side by side: a table, and scores.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from data.corpus.json_lines import format_json, replace_nonfinite
from pretrain.reporting.curves import HELDOUT_PREFIX
from pretrain.workdir.retention import find_best_step
from pretrain.workdir.workdir import Workdir


class Outcome(NamedTuple):
    """What a member of a sweep has reached.

    Attributes:
      state: what the sweep knows of its end, such as "finished".
      step: its last step; 0 before the first.
      scored_step: the step of the scores; None without any.
      scores: the held-out scores, {} before the first evaluation.
      seconds: of all its steps.
    """

    state: str
    step: int = 0
    scored_step: int | None = None
    scores: Mapping[str, float] = {}
    seconds: float = 0.0


def read_outcome(workdir: str, state: str, metric: str, keeps_best: bool) -> Outcome:
    """Return what the metrics of a workdir tell.

    Args:
      state: see `Outcome`.
      metric: held-out score by which members are compared.
      keeps_best: whether the run keeps its best checkpoint, whose scores then count; else the
        scores of the last evaluation do.
    """
    opened = Workdir.open(workdir)
    rows = opened.read_metrics()
    scores_by_step = {
        row["step"]: {
            key.removeprefix(HELDOUT_PREFIX): float(value)
            for key, value in row.items()
            if key.startswith(HELDOUT_PREFIX) and isinstance(value, int | float)
        }
        for row in rows
        if any(key.startswith(HELDOUT_PREFIX) for key in row)
    }
    step = max(scores_by_step, default=None)
    if keeps_best:  # Evaluations between two checkpoints have none that could be used.
        saved = opened.list_steps()
        usable = {each: scores for each, scores in scores_by_step.items() if each in saved}
        step = find_best_step(usable, metric)
    return Outcome(
        state,
        rows[-1]["step"] if rows else 0,
        step,
        {} if step is None else scores_by_step[step],
        math.fsum(row["seconds"] for row in rows if isinstance(row.get("seconds"), int | float)),
    )


def rank_members(outcomes: Mapping[str, Outcome], metric: str) -> list[str]:
    """Return the names of the members, the best score first, those without a finite one last."""
    rest = dict(enumerate(outcomes))
    ranked: list[str] = []
    scores = {-index: outcomes[name].scores for index, name in rest.items()}  # the first of equals
    while (best := find_best_step(scores, metric)) is not None:
        ranked.append(rest.pop(-best))
        del scores[best]
    return [*ranked, *rest.values()]


def format_table(outcomes: Mapping[str, Outcome], metric: str) -> str:
    """Return a table of the members, the best first."""
    rows = [("member", metric, "step", "seconds", "state")]
    for name in rank_members(outcomes, metric):
        outcome = outcomes[name]
        score = outcome.scores.get(metric, math.nan)
        rows.append(
            (
                name,
                f"{score:.4f}" if math.isfinite(score) else "-",
                f"{outcome.step:,}",
                f"{outcome.seconds:,.0f}",
                outcome.state,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(_format_row(row, widths) for row in rows)


def _format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row: names to the left, numbers to the right."""
    name, *numbers, state = row
    cells = [name.ljust(widths[0])]
    cells += [number.rjust(width) for number, width in zip(numbers, widths[1:])]
    return "  ".join([*cells, state])


def format_scores(
    members: Mapping[str, Sequence[str]],
    ranked: Mapping[str, Outcome],
    metric: str,
    best: str | None,
) -> str:
    """Return the text of scores.json: {"metric", "best", "members": {name: what it reached}}.

    Args:
      members: {name: overrides}.
      ranked: {name: what it reached}, the best first.
      best: the best finished member.
    """
    described: dict[str, Any] = {
        name: {"overrides": list(members[name]), **outcome._asdict()}
        for name, outcome in ranked.items()
    }
    content = {"metric": metric, "best": best, "members": described}
    return format_json(replace_nonfinite(content), indent=1) + "\n"
