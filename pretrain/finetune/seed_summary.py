"""What came out of one fine-tuning, or of several that differ by their seed."""

import json
import os
import statistics

from pretrain.workdir.retention import best


def outcome(workdir, name):
    """(the step of the checkpoint that is best by a held-out score, that score by the names of all). Raises ValueError where none was scored."""
    from pretrain.workdir.checkpoints import Checkpoints

    with Checkpoints(workdir, read_only=True) as checkpoints:
        scores = {step: checkpoints.scores(step) for step in checkpoints.steps()}
    step = best(scores, name)
    if step is None:
        raise ValueError(
            f"{workdir}: no checkpoint in which {name} of the held-out part was measured"
        )
    return step, scores[step]


def summary(folder, workdirs, metrics):
    """Lines for a person; those of several runs are in scores.json of the folder too.

    {"metric", "runs": {workdir: {"step", name: score}}, "mean": {name: ...}, "spread": {name: the sample standard deviation}}
    """
    names = metrics or ("loss",)
    found = {workdir: outcome(workdir, names[0]) for workdir in workdirs}
    lines = []
    for workdir, (step, scores) in found.items():
        own = [name for name in scores if "/" in name]  # of several tasks
        told = ", ".join(f"{name} {scores[name]:.4f}" for name in (*names, *own))
        lines.append(f"{workdir}: best by {names[0]} at step {step:,}, held out: {told}")
    if len(workdirs) > 1:
        values = {name: [scores[name] for _, scores in found.values()] for name in names}
        mean, spread = (
            {name: f(each) for name, each in values.items()}
            for f in (statistics.fmean, statistics.stdev)
        )
        lines.append(
            f"{len(workdirs)} seeds: "
            + ", ".join(f"{name} {mean[name]:.4f} (spread {spread[name]:.4f})" for name in names)
        )
        runs = {
            workdir: {"step": step} | {name: scores[name] for name in names}
            for workdir, (step, scores) in found.items()
        }
        text = json.dumps(
            {"metric": names[0], "runs": runs, "mean": mean, "spread": spread}, indent=1
        )
        with open(os.path.join(folder, "scores.json"), "w", encoding="utf-8") as file:
            file.write(text + "\n")
    which = workdirs[
        best({number: found[workdir][1] for number, workdir in enumerate(workdirs)}, names[0])
    ]
    words = f"--workdir {which} --step {found[which][0]}"
    return "\n".join(
        [
            *lines,
            "next:",
            f"  python -m pretrain predict {words} --input FILE",
            f"  python -m pretrain export {words} --output FOLDER",
        ]
    )
