"""Weights & Biases and MLflow by one small interface.

Each reads its own environment variables: WANDB_MODE=offline, WANDB_PROJECT; MLFLOW_TRACKING_URI,
MLFLOW_EXPERIMENT_NAME.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

PROJECT = "cloze"  # of runs whose environment names no other
MAX_PARAMETER = 6000  # characters of a value that MLflow takes
PARAMETERS_AT_ONCE, METRICS_AT_ONCE = 100, 1000  # at most, in a call of MLflow
END_STATES = {"finished": "FINISHED", "failed": "FAILED", "preempted": "KILLED"}  # MLflow's


class Tracker(Protocol):
    """A run in the database of another program. Any method may raise or hang."""

    def choose_id(self) -> str | None:
        """Return the id of a new run, or None if `start` returns one."""
        ...

    def start(self, run_id: str | None, is_new: bool, name: str, config: Mapping[str, Any]) -> str:
        """Start a new run, or continue the one of `run_id`, and return its id.

        Args:
          config: {dotted name: value} of all fields.
        """
        ...

    def log_rows(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Log the metrics of steps, as (step, {name: value})."""
        ...

    def finish(self, state: str) -> None:
        """End the run as "finished", "failed" or "preempted"."""
        ...


class WandbTracker:
    """A run of Weights & Biases. Offline, it is in the folder `wandb` of a local workdir."""

    def __init__(self, workdir: str) -> None:
        self.folder = None if "://" in workdir else workdir

    def choose_id(self) -> str | None:
        return secrets.token_hex(8)

    def start(self, run_id: str | None, is_new: bool, name: str, config: Mapping[str, Any]) -> str:
        import wandb  # pyright: ignore[reportMissingImports] - an extra

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=run_id,
            name=name,
            config=dict(config),
            dir=self.folder,
            resume="allow",
            allow_val_change=True,
            settings=wandb.Settings(console="off", silent=True),
        )
        return self.run.id

    def log_rows(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        for step, values in rows:
            self.run.log(dict(values), step=step)

    def finish(self, state: str) -> None:
        self.run.summary["end_state"] = state
        if state == "preempted":
            self.run.mark_preempting()
        self.run.finish(exit_code=0 if state == "finished" else 1)


class MlflowTracker:
    """A run of MLflow."""

    def choose_id(self) -> str | None:
        return None

    def start(self, run_id: str | None, is_new: bool, name: str, config: Mapping[str, Any]) -> str:
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports] - an extra
        from mlflow.entities import Param  # pyright: ignore[reportMissingImports]

        self.client = MlflowClient()
        if not is_new and run_id:
            self.client.update_run(run_id, status="RUNNING")
            self.run_id = run_id
            return run_id
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self.client.get_experiment_by_name(title)
        experiment_id = (
            experiment.experiment_id if experiment else self.client.create_experiment(title)
        )
        self.run_id = self.client.create_run(experiment_id, run_name=name).info.run_id
        params = [Param(key, str(value)[:MAX_PARAMETER]) for key, value in config.items()]
        for begin in range(0, len(params), PARAMETERS_AT_ONCE):
            self.client.log_batch(self.run_id, params=params[begin : begin + PARAMETERS_AT_ONCE])
        return self.run_id

    def log_rows(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        now = int(1000 * time.time())
        metrics = [
            Metric(key, value, now, step) for step, values in rows for key, value in values.items()
        ]
        for begin in range(0, len(metrics), METRICS_AT_ONCE):
            self.client.log_batch(self.run_id, metrics=metrics[begin : begin + METRICS_AT_ONCE])

    def finish(self, state: str) -> None:
        self.client.set_tag(self.run_id, "end_state", state)
        self.client.set_terminated(self.run_id, status=END_STATES[state])


def make_tracker(name: str, workdir: str) -> Tracker:
    """Return the tracker of a name in `options.TRACKERS`."""
    return WandbTracker(workdir) if name == "wandb" else MlflowTracker()
