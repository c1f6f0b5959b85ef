"""Train a model, or resume its training."""

from __future__ import annotations

import base64
import dataclasses
import html
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from pretrain.api.arguments import format_path, list_arguments
from pretrain.api.store_vocabulary import follow_store
from pretrain.config import Run, load, override_run, validate_run
from pretrain.host.command import PROGRAM
from pretrain.processes import processes
from pretrain.training.monitoring.options import Monitoring, make_monitoring
from pretrain.workdir.check import check_workdir_path
from pretrain.workdir.metrics_file import read_metrics

if TYPE_CHECKING:
    from data.source import Source


@dataclasses.dataclass(frozen=True)
class RunResult:
    """A run after a training. A notebook shows its scores and its curves.

    Attributes:
      workdir: the folder of the run.
      signal: the number of the signal that ended the run early, after saving; None at its end.
    """

    workdir: str
    signal: int | None = None

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl: the metrics of each step."""
        path = epath.Path(self.workdir) / "metrics.jsonl"
        return read_metrics(path) if path.exists() else []

    @property
    def step(self) -> int:
        """The last step; 0 before the first."""
        rows = self.read_metrics()
        return rows[-1]["step"] if rows else 0

    @property
    def heldout(self) -> dict[str, float]:
        """The scores of the newest evaluation on the held-out split; {} before the first.

        A score that is not finite is None, as in metrics.jsonl.
        """
        return _find_heldout(self.read_metrics())

    def _repr_html_(self) -> str:
        rows = self.read_metrics()
        step = rows[-1]["step"] if rows else 0
        title = f"{html.escape(self.workdir)}: step {step:,}"
        if rows:
            title += f", loss {_format_number(rows[-1].get('loss'))}"
        cells = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{_format_number(value)}</td></tr>"
            for name, value in _find_heldout(rows).items()
        )
        table = f"<table><tr><th colspan=2>held out</th></tr>{cells}</table>" if cells else ""
        return f"<p>{title}</p>{table}{_format_curves(self.workdir) if rows else ''}"


def _find_heldout(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the scores of the newest evaluation in rows of metrics."""
    for row in reversed(rows):
        scores = {
            name.removeprefix("heldout_"): value
            for name, value in row.items()
            if name.startswith("heldout_")
        }
        if scores:
            return scores
    return {}


def _format_number(value: Any) -> str:
    """Return a metric as text for a page; a damaged file may have anything in its place."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.5g}" if is_number else "not finite"


def _format_curves(workdir: str) -> str:
    """Return the curves of a run as images of a page; "" without matplotlib."""
    from pretrain.api.pictures import draw_curves

    if not importlib.util.find_spec("matplotlib"):
        return ""
    return "".join(
        f'<img width=420 src="data:image/png;base64,{base64.b64encode(picture.png).decode()}">'
        for picture in draw_curves(workdir)
    )


def train(
    config: str | os.PathLike[str] | Run,
    workdir: str | os.PathLike[str],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    allow_changes: bool = False,
    pretrained: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    prometheus: str | os.PathLike[str] | None = None,
    tracker: str | None = None,
    dataset: Callable[..., Any] | None = None,
    source: Source | None = None,
    began: float | None = None,
    join_run: Callable[[], None] = processes.join_run,
) -> RunResult:
    """Train a model to its last step, from the newest checkpoint in the workdir, if any.

    In an environment that describes several processes (docs/processes.md) all of them call this,
    and each returns the same.

    Args:
      config: the name of a configuration in configs/, the path of a .py or .json file, or a `Run`.
      workdir: the folder of the run, here or in a bucket.
      overrides: changed fields, as {"train.steps": 100} or as ["train.steps=100"].
      allow_changes: resume although the configuration has changed.
      pretrained: a workdir, to begin a new run of images with its parameters, but for the head.
      profile: steps to trace, such as "100:105" (docs/watching.md).
      prometheus: the file of the newest metrics.
      tracker: "wandb" or "mlflow", which also receives the metrics.
      dataset: replaces the dataset of the rows, see `pretrain.training.loop.train`.
      source: what to train on instead of the token store in `run.data.store`.
      began: time at which the program began, for the goodput; None: now.
      join_run: joins the other processes of the run, if any.

    Raises:
      ValueError: this is not the main thread.
      ConfigError: configuration, source, devices and workdir do not fit each other.
      MemoryExhausted: the run does not fit in memory.
      Diverged: all steps are skipped, since their losses or gradients are not finite or too large.
      ReplicaMismatch: devices disagree about parameters that should be the same.
    """
    began = began or time.time()
    check_main_thread("train")
    workdir, arguments = format_path(workdir), list_arguments(overrides)
    if isinstance(config, Run):
        run = override_run(config, arguments)
        validate_run(run)
    else:
        run = load(format_path(config), arguments)
        if source is None:
            run = follow_store(run, config, arguments, workdir)
    prometheus = None if prometheus is None else format_path(prometheus)
    monitoring = make_monitoring(profile, prometheus, tracker, run.train.last_step)
    check_workdir_path(workdir)
    join_run()
    if pretrained:
        from pretrain.training.new_workdir import start_from

        start_from(run, workdir, format_path(pretrained))
    return train_watched(run, workdir, began, monitoring, allow_changes, dataset, source)


def check_main_thread(name: str) -> None:
    """Raise ValueError outside of the main thread, the only one that signals reach.

    Args:
      name: of the function.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError(
            f"{name} works in the main thread alone, since it saves when SIGTERM or Ctrl-C "
            f"arrives; from another thread start a process, such as `{PROGRAM} {name}`"
        )


def train_watched(
    run: Run,
    workdir: str,
    began: float,
    monitoring: Monitoring,
    allow_changes: bool = False,
    dataset: Callable[..., Any] | None = None,
    source: Source | None = None,
) -> RunResult:
    """Train a run as `pretrain.training.loop.train`, which imports JAX, and return it."""
    from pretrain.processes.exchange import begin_round
    from pretrain.training import loop

    begin_round()
    signal = loop.train(run, workdir, allow_changes, began, dataset, source, monitoring)
    return RunResult(workdir, signal)
