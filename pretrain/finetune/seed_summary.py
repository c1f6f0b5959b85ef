"""Scores of one fine-tuned run, or of several that differ in their seed."""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Mapping, Sequence

from data.corpus.json_lines import format_json
from data.store.atomic import write_atomically
from pretrain.host.command import PROGRAM
from pretrain.settings.sections import EMA_SCORE
from pretrain.workdir.retention import find_best_step
from pretrain.workdir.workdir import Workdir


def find_best_checkpoint(workdir: str, name: str) -> tuple[int, dict[str, float]]:
    """Return the step and the held-out scores of the checkpoint with the best score of a name.

    Raises:
      ValueError: if no checkpoint has the score.
    """
    from pretrain.workdir.checkpoints import Checkpoints

    with Checkpoints(workdir, read_only=True) as checkpoints:
        scores = {step: checkpoints.load_scores(step) for step in checkpoints.list_steps()}
    step = find_best_step(scores, name)
    if step is None:
        raise ValueError(f"{workdir}: no checkpoint has {name} of the held-out split")
    return step, scores[step]


def describe_unfinished(workdir: str) -> str:
    """Return a line if a run was ended before its last step, so that its scores are not final."""
    from pretrain.training.early_stopping import EarlyStopping
    from pretrain.workdir.checkpoints import Checkpoints

    run = Workdir.open(workdir).run
    with Checkpoints(workdir, read_only=True) as checkpoints:
        step = max(checkpoints.list_steps())
        stopping = checkpoints.load_record(step).get("stopping", {})
    early = EarlyStopping(run.evaluate.patience, run.checkpoint.best, stopping)
    if step >= run.train.steps or early.is_exhausted:
        return ""
    return (
        f"note: {workdir} ended at step {step:,} of {run.train.steps:,}, so its scores are not "
        "final; the command that began it resumes it"
    )


def write_seed_scores(
    folder: str, names: Sequence[str], outcomes: Mapping[str, tuple[int, dict[str, float]]]
) -> str:
    """Write FOLDER/scores.json, see `format_seed_summary`, and return the line of the means.

    Args:
      outcomes: {workdir: (step, scores)} of the best checkpoints.
    """
    measured = [name for name in names if all(name in scores for _, scores in outcomes.values())]
    by_name = {name: [scores[name] for _, scores in outcomes.values()] for name in measured}
    mean, spread = (
        {name: reduce(values) for name, values in by_name.items()}
        for reduce in (statistics.fmean, statistics.stdev)
    )
    runs = {
        workdir: {"step": step} | {name: scores[name] for name in names if name in scores}
        for workdir, (step, scores) in outcomes.items()
    }
    text = format_json({"metric": names[0], "runs": runs, "mean": mean, "spread": spread}, indent=1)
    write_atomically(os.path.join(folder, "scores.json"), text + "\n")
    means = (f"{name} {mean[name]:.4f} (spread {spread[name]:.4f})" for name in measured)
    return f"{len(outcomes)} seeds: {', '.join(means)}"


def format_seed_summary(
    folder: str, workdirs: Sequence[str], metrics: Sequence[str], in_transformers: bool = True
) -> str:
    """Return the best scores of runs and the commands to run next, as text.

    For several runs it also writes FOLDER/scores.json: {"metric", "runs": {workdir: {"step", name:
    score}}, "mean": {name: ...}, "spread": {name: sample standard deviation}}, where the last two
    have the scores that all runs have.

    Args:
      metrics: the scores that are shown; the first one chooses the best checkpoint.
      in_transformers: whether Hugging Face transformers has such a model.
    """
    names = tuple(metrics) or ("loss",)
    outcomes = {workdir: find_best_checkpoint(workdir, names[0]) for workdir in workdirs}
    lines = []
    for workdir, (step, scores) in outcomes.items():
        task_names = [name for name in scores if "/" in name]
        values = ", ".join(
            # A checkpoint may be older than the command that names a metric.
            f"{name} {scores[name]:.4f}" if name in scores else f"{name} not measured"
            for name in dict.fromkeys((*names, *task_names))
        )
        lines.append(f"{workdir}: best by {names[0]} at step {step:,}, held out: {values}")
    if len(workdirs) > 1:
        lines.append(write_seed_scores(folder, names, outcomes))
    scores_by_number = {number: outcomes[workdir][1] for number, workdir in enumerate(workdirs)}
    number = find_best_step(scores_by_number, names[0])
    assert number is not None, "`find_best_checkpoint` has found the score in each run"
    best_workdir = workdirs[number]
    arguments = f"--workdir {shlex.quote(best_workdir)} --step {outcomes[best_workdir][0]}"
    arguments += " --parameters ema" * names[0].startswith(EMA_SCORE)
    return "\n".join(
        [
            *lines,
            "next:",
            f"  {PROGRAM} predict {arguments} --input FILE",
            f"  {PROGRAM} export {arguments} --output FOLDER"
            + ("" if in_transformers else " --format jax"),
        ]
    )
