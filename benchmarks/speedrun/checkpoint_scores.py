"""Score the checkpoints of a finished run, with the clock stopped.

All runs are scored on the rows and masks of `heldout_rows`, in float32.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

from benchmarks.cached_results import write_result
from benchmarks.harness import ROOT
from benchmarks.peer_environment import find_peers_python
from benchmarks.program_turns import run_to_end
from benchmarks.speedrun.entries import TRAINER
from benchmarks.speedrun.heldout_rows import OBJECTIVE, open_heldout_rows
from benchmarks.speedrun.race import read_race
from data.source import Source
from data.store.reader import Store

NAME = "scores.json"


def make_cloze_scorer(
    workdir: pathlib.Path, store: Source, parameters: str
) -> Callable[[int], tuple[float, float]]:
    """Return a function of a step to (accuracy, nats) of its checkpoint on the held-out rows.

    The models of all checkpoints have one configuration.
    """
    import jax

    from models import build
    from pretrain.kernels.model_hooks import make_model_hooks
    from pretrain.mesh.sharding import make_mesh
    from pretrain.settings import Mesh
    from pretrain.training.evaluation import make_evaluator
    from pretrain.training.losses import make_loss
    from pretrain.workdir.trained import open_trained
    from pretrain.workdir.workdir import Workdir

    mesh = make_mesh(Mesh())
    model = build(Workdir.open(workdir).run.model, **make_model_hooks(mesh, []))
    rows = open_heldout_rows(store)
    evaluate = make_evaluator(model, make_loss(OBJECTIVE), mesh, compute_dtype="float32")

    def score_step(step: int) -> tuple[float, float]:
        trained = open_trained(workdir, step, parameters)
        with jax.set_mesh(mesh):
            scores = evaluate(trained.params, rows)
        return scores["masked_lm_accuracy"], scores["loss"]

    return score_step


def score_trainer(folder: pathlib.Path) -> dict[int, tuple[float, float]]:
    """Return {step: (accuracy, nats)} of all checkpoints of the Trainer."""
    program = ROOT / "benchmarks" / "speedrun" / "speedrun_torch.py"
    run_to_end([find_peers_python(), program, "score", folder])
    found = json.loads((folder / "torch_scores.json").read_text())
    return {step: (accuracy, nats) for step, accuracy, nats in found}


def score_run(folder: pathlib.Path, store_path: pathlib.Path) -> list[list[float]]:
    """Return [step, seconds, accuracy, nats] of each checkpoint of a finished run.

    They are written to `scores.json` one after the other, so that a second call goes on.
    Raises ValueError for a run that is no record, as `read_race`.
    """
    race, path = read_race(folder), folder / NAME
    scores: dict[int, list[float]] = {}
    if path.exists():
        scores = {int(row[0]): row for row in json.loads(path.read_text())}
    missing = [(step, seconds) for step, seconds in race["marks"] if step not in scores]
    if not missing:
        return list(scores.values())
    score_step: Callable[[int], tuple[float, float]]
    if race["entry"] == TRAINER:
        score_step = score_trainer(folder).__getitem__
    else:
        store: Any = Store.open(store_path)
        score_step = make_cloze_scorer(folder / "workdir", store, race["parameters"])
    for step, seconds in missing:
        accuracy, nats = score_step(step)
        scores[step] = [step, seconds, accuracy, nats]
        print(f"step {step:,}, {seconds:.0f} s: {accuracy:.2%}, {nats:.3f} nats", flush=True)
        write_result(path, [scores[step] for step in sorted(scores)])
    return [scores[step] for step in sorted(scores)]
