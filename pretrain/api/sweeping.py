"""Train one configuration with several values of its fields, and compare the runs."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import time
from collections.abc import Mapping
from typing import Any

from etils import epath

from data.corpus.hub.address import is_address
from data.corpus.paths import is_remote
from data.store.atomic import write_atomically
from data.store.kinds import open_source
from pretrain.api.training import check_main_thread
from pretrain.config import Run, load, to_json
from pretrain.convert.export_folder import check_output
from pretrain.host.terminal import print_notice
from pretrain.processes.job_queue import JobQueue, VerbCall
from pretrain.processes.processes import detect_own_cluster
from pretrain.processes.restarts import STOPS, name_signal
from pretrain.reporting.sweep_table import (
    Outcome,
    format_scores,
    format_table,
    rank_members,
    read_outcome,
)
from pretrain.settings.overrides import ConfigError
from pretrain.settings.scores import check_score
from pretrain.settings.sections import EMA_SCORE
from pretrain.settings.sweep_options import SweepOptions
from pretrain.settings.verb_options import takes
from pretrain.workdir.check import explain_no_workdir, is_hugging_face_folder
from pretrain.workdir.sweep_record import check_folder, open_record
from pretrain.workdir.workdir import Workdir

SCORES, REPORT = "scores.json", "report"  # files in the folder of a sweep


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """A sweep after its runs.

    Attributes:
      folder: the folder of the sweep.
      metric: the held-out score by which members are compared.
      outcomes: {name of a member: what it reached}, the best first; its run is in FOLDER/NAME.
      signal: the number of the signal that ended the sweep early; None at its end.
    """

    folder: str
    metric: str
    outcomes: Mapping[str, Outcome]
    signal: int | None = None

    @property
    def best(self) -> str | None:
        """The workdir of the best finished member; None if none has the score."""
        for name, outcome in self.outcomes.items():
            if outcome.state == "finished" and self.metric in outcome.scores:
                return os.path.join(self.folder, name)
        return None

    @property
    def failed(self) -> list[str]:
        """The names of the members that failed."""
        return [name for name, each in self.outcomes.items() if each.state.startswith("failed")]

    def __str__(self) -> str:
        return format_table(self.outcomes, self.metric)


@takes(SweepOptions)
def sweep(options: SweepOptions) -> SweepResult:
    """Train all members of a sweep, write FOLDER/scores.json and FOLDER/report, and return them.

    A member that fails does not stop the others, and is tried again when the sweep is resumed.

    Raises:
      ValueError: this is not the main thread, or the process is one of several.
      ConfigError: a member is not a valid run, or the folder has another sweep.
    """
    result = run_sweep(options)
    write_comparison(options, result)
    export_best(options, result)
    return result


def run_sweep(options: SweepOptions) -> SweepResult:
    """Train and compare as `sweep` does, write no comparison, and print how each member ends."""
    check_main_thread("sweep")
    if (cluster := detect_own_cluster()).num_processes != 1:
        raise ValueError(
            f"{cluster}: `sweep` starts its members itself (CLOZE_CLUSTER=none); on a cluster "
            "`pod manifest` starts each of them"
        )
    members = options.list_members()
    runs = {name: load(options.config, overrides) for name, overrides in members.items()}
    check_members(members, runs)
    metric = choose_metric(options, runs)
    check_folder(options.folder)
    if options.export:
        check_output(options.export, options.overwrite)
    if options.jobs:
        check_beginning(options, runs)
    states: dict[str, str] = {}
    signal = None
    if options.jobs:
        with hold_folder(options.folder):
            open_record(options.folder, options.config, options.pretrained, members)
            states, signal = train_members(options, members)
    return compare_members(options, runs, metric, states, signal)


def export_best(options: SweepOptions, result: SweepResult) -> None:
    """Export the best member, if that is asked and the sweep was not stopped.

    A score of the moving average exports the average that has it.

    Raises ValueError if no member has finished with the score.
    """
    if not options.export or result.signal is not None:
        return
    if result.best is None:
        raise ValueError(f"--export {options.export}: no member has finished with {result.metric}")
    from pretrain.api.exporting import export

    step = result.outcomes[os.path.basename(result.best)].scored_step
    export(
        result.best,
        options.export,
        step=step,
        parameters="ema" if result.metric.startswith(EMA_SCORE) else "raw",
        overwrite=options.overwrite,
    )


def check_members(members: Mapping[str, list[str]], runs: Mapping[str, Run]) -> None:
    """Raise ConfigError if two members are the same run."""
    names: dict[str, str] = {}
    for name, run in runs.items():
        if (other := names.setdefault(to_json(run), name)) != name:
            raise ConfigError(f"{other} and {name} are the same run: leave one of the values out")


def check_beginning(options: SweepOptions, runs: Mapping[str, Run]) -> None:
    """Raise an error if a store, or the model of --from that a new member needs, is not there."""
    for store in dict.fromkeys(run.data.store for run in runs.values()):
        open_source(store)
    has_new = any(not Workdir.open(f"{options.folder}/{name}").has_config for name in runs)
    if has_new and (place := options.pretrained) and not is_address(place):
        path = epath.Path(place)
        if not is_hugging_face_folder(path) and not (path / "checkpoints").is_dir():
            raise FileNotFoundError(f"--from: {explain_no_workdir(path, 'checkpoints/')}")


def choose_metric(options: SweepOptions, runs: Mapping[str, Run]) -> str:
    """Return the score that compares the members; raise ConfigError if a member lacks it."""
    first = next(iter(runs.values()))
    metric = options.metric or first.checkpoint.best or "loss"
    for name, run in runs.items():
        if not run.evaluate.every:
            raise ConfigError(
                f"{name}: evaluate.every is 0, and members are compared by held-out "
                "scores; set it, for example to train.steps"
            )
        check_score(run.evaluate, metric, f"--metric {metric} of {name}")
    return metric


def hold_folder(folder: str) -> contextlib.AbstractContextManager[Any]:
    """Return the lease of a sweep's folder, so that two commands do not train one sweep."""
    from pretrain.workdir.leases.hold_lease import end_process
    from pretrain.workdir.leases.lease import Lease

    return Lease(folder, "sweep", end_process)


# ---- the runs ----------------------------------------------------------------


def train_members(
    options: SweepOptions, members: Mapping[str, list[str]]
) -> tuple[dict[str, str], int | None]:
    """Train the members; return ({name: how it ended}, the signal that ended the sweep or None)."""
    jobs = {
        name: VerbCall(words, os.path.join(options.folder, f"{name}.log"))
        for name, words in options.list_commands(members).items()
    }
    began: dict[str, float] = {}

    def report(name: str, status: int | None) -> None:
        position = f"[{list(jobs).index(name) + 1}/{len(jobs)}] {name}"
        if status is None:
            began[name] = time.monotonic()
            print(f"{position}: training; its output is in {jobs[name].log}", flush=True)
        else:
            seconds = time.monotonic() - began[name]
            print(f"{position}: {describe_state(status)} after {seconds:,.0f} s", flush=True)

    queue = JobQueue(jobs, options.jobs, report)
    states = {name: describe_state(status) for name, status in queue.run().items()}
    return states, queue.signals[0] if queue.signals else None


def describe_state(status: int) -> str:
    """Return how a member ended, of the exit status of its process."""
    number = -status if status < 0 else status - 128
    if number in STOPS:
        return f"stopped by {name_signal(number)}"
    if status < 0:
        return f"failed: {name_signal(-status)}"
    return f"failed: exit status {status}" if status else "finished"


def compare_members(
    options: SweepOptions,
    runs: Mapping[str, Run],
    metric: str,
    states: Mapping[str, str],
    signal: int | None,
) -> SweepResult:
    """Return what the members have reached, the best first."""
    outcomes = {}
    for name, run in runs.items():
        workdir = os.path.join(options.folder, name)
        keeps_best = run.checkpoint.best == metric
        outcome = read_outcome(workdir, states.get(name, ""), metric, keeps_best)
        state = outcome.state or describe_steps(workdir, outcome.step, run)
        outcomes[name] = outcome._replace(state=state)
    ranked = {name: outcomes[name] for name in rank_members(outcomes, metric)}
    return SweepResult(options.folder, metric, ranked, signal)


def write_comparison(options: SweepOptions, result: SweepResult) -> None:
    """Write FOLDER/scores.json and FOLDER/report, if the folder is on this machine."""
    folder, outcomes = options.folder, result.outcomes
    if is_remote(folder) or not os.path.isdir(folder):
        return
    best = os.path.basename(result.best) if result.best else None
    scores = format_scores(options.list_members(), outcomes, result.metric, best)
    write_atomically(os.path.join(folder, SCORES), scores)
    write_curves(folder, [name for name in outcomes if outcomes[name].step])


def describe_steps(workdir: str, step: int, run: Run) -> str:
    """Return the state of a member that this command did not train."""
    if step >= run.train.last_step or has_stopped_early(workdir, step, run):
        return "finished"
    return f"at step {step:,} of {run.train.last_step:,}" if step else "not begun"


def has_stopped_early(workdir: str, step: int, run: Run) -> bool:
    """Return whether early stopping has ended a run at a step, as its checkpoint says."""
    if not run.evaluate.patience or step not in Workdir.open(workdir).list_steps():
        return False
    from pretrain.training.early_stopping import EarlyStopping
    from pretrain.workdir.checkpoint_record import read_record

    record = read_record(epath.Path(workdir) / "checkpoints" / str(step))
    counts = record.get("stopping", {})
    return EarlyStopping(run.evaluate.patience, run.checkpoint.best, counts).is_exhausted


def write_curves(folder: str, names: list[str]) -> None:
    """Write the report of the members that have metrics, their curves over each other."""
    from pretrain.reporting.run_report import write_report

    if not names:
        return
    has_images = importlib.util.find_spec("matplotlib") is not None
    try:
        write_report(
            [os.path.join(folder, name) for name in names], os.path.join(folder, REPORT), has_images
        )
    except FileExistsError as error:
        print_notice(f"no report was written: {error}")
