"""Train a model, or resume its training."""

from __future__ import annotations

import base64
import dataclasses
import html
import importlib.util
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pretrain.api.store_vocabulary import follow_store, is_size_fixed
from pretrain.config import Run, load, override_run, validate_run
from pretrain.host.command import PROGRAM
from pretrain.processes import processes
from pretrain.settings.arguments import PathText, format_optional, format_path, list_arguments
from pretrain.settings.verb_options import CONFIG_HELP, option, takes
from pretrain.training.monitoring.options import Monitoring, MonitoringOptions, make_monitoring
from pretrain.workdir.check import check_workdir_path
from pretrain.workdir.workdir import Workdir

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
        return Workdir.open(self.workdir).read_metrics()

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


class TrainOptions(MonitoringOptions):
    """The options of `train`."""

    config: PathText | Run = option(f"{CONFIG_HELP}, here or in a bucket", "config", kw_only=False)
    workdir: str = option(
        "folder of the run; an existing run is resumed", kw_only=False, converter=format_path
    )
    allow_changes: bool = option(
        "resume a run although its configuration has changed", default=False
    )
    pretrained: str | None = option(
        "begin a new run with the parameters of this run or Hugging Face folder, of the same sizes "
        "and family or its twin (docs/modern_encoders.md); of images all but the head "
        "(docs/pictures.md). Labels of texts have `finetune --from`",
        "--from",
        default=None,
        converter=format_optional,
        metavar="PLACE",
    )
    step: int | None = option(
        "with --from: begin with the checkpoint of this step of a run (default: the newest)",
        default=None,
    )
    with_optimizer: bool = option(
        "with --from: branch off a run, with its optimizer, its count of steps and the rows that "
        "it has not read (docs/training.md)",
        default=False,
    )
    tile: bool = option(
        "with --from: begin a larger model with the tiled weights of a smaller one "
        "(docs/modern_encoders.md)",
        default=False,
    )
    new_rows: str | None = option(
        "with --from: begin with the vocabulary of the store, whatever that of the model; a token "
        "of both has its old row, any other the mean of the rows of its pieces, or of all rows "
        "(docs/continue_a_model.md)",
        default=None,
        choices=("pieces", "mean"),
    )
    overrides: list[str] = option(
        "changed fields, e.g. train.steps=100 optimizer.learning_rate=3e-4",
        "overrides",
        default=(),
        converter=list_arguments,
        kw_only=False,
        nargs="*",
        metavar="path=value",
    )
    dataset: Callable[..., Any] | None = option(
        "replaces the dataset of the rows, see `pretrain.training.loop.train`",
        default=None,
        only_python=True,
    )
    source: Source | None = option(
        "what to train on instead of the token store in `run.data.store`",
        default=None,
        only_python=True,
    )

    def check(self) -> None:
        """Raise ValueError for an option of --from without it, or for two that exclude another."""
        super().check()
        if self.tile and not self.pretrained:
            raise ValueError("--tile: name the smaller model by --from")
        if not self.pretrained and (self.with_optimizer or self.step is not None):
            flag = "--with-optimizer" if self.with_optimizer else "--step"
            raise ValueError(f"{flag}: name the run to begin with by --from")
        if self.tile and self.with_optimizer:
            raise ValueError("--with-optimizer: tiled weights have no optimizer; leave one out")
        if self.new_rows and not self.pretrained:
            raise ValueError(f"--new-rows {self.new_rows}: name the trained model by --from")
        if self.new_rows and (self.tile or self.with_optimizer):
            other = "--tile" if self.tile else "--with-optimizer"
            raise ValueError(
                f"{other}: not with --new-rows, whose rows it does not know; leave one out"
            )


@takes(TrainOptions)
def train(options: TrainOptions) -> RunResult:
    """Train a model to its last step, from the newest checkpoint in the workdir, if any.

    In an environment that describes several processes (docs/processes.md) all of them call this,
    and each returns the same. `config` may also be a `Run`, and `overrides` a mapping such as
    {"train.steps": 100}.

    Raises:
      ValueError: this is not the main thread.
      ConfigError: configuration, source, devices and workdir do not fit each other.
      MemoryExhausted: the run does not fit in memory.
      Diverged: all steps are skipped, since their losses or gradients are not finite or too large.
      ReplicaMismatch: devices disagree about parameters that should be the same.
    """
    return run_training(options, time.time())


def run_training(
    options: TrainOptions, began: float, join_run: Callable[[], None] = processes.join_run
) -> RunResult:
    """Train as `train` does.

    Args:
      options: the options.
      began: time at which the program began, for the goodput.
      join_run: joins the other processes of the run, if any.
    """
    check_main_thread("train")
    workdir, arguments = options.workdir, options.overrides
    keeps_vocab = False
    if isinstance(options.config, Run):
        run = override_run(options.config, arguments)
        validate_run(run)
    else:
        keeps_vocab = is_size_fixed(options.config, arguments)
        run = load(format_path(options.config), arguments)
        if options.source is None:
            run = follow_store(run, options.config, arguments, workdir)
    monitoring = make_monitoring(options, run.train.last_step)
    check_workdir_path(workdir)
    join_run()
    if options.pretrained:
        from pretrain.training.beginnings.beginning import start_from

        run = start_from(
            run,
            workdir,
            options.pretrained,
            step=options.step,
            with_optimizer=options.with_optimizer,
            tile=options.tile,
            new_rows=options.new_rows,
            keeps_vocab=keeps_vocab,
            source=options.source,
        )
    sources = options.dataset, options.source
    return train_watched(run, workdir, began, monitoring, options.allow_changes, *sources)


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
