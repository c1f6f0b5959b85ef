"""Fine-tune a pretrained model."""

from __future__ import annotations

import dataclasses
import filecmp
import math
import os
import sys
import time
from typing import Any

from data.corpus.paths import is_remote
from pretrain.api.loading import find_checkpoint
from pretrain.api.training import RunResult, check_main_thread, train_watched
from pretrain.config import override_run
from pretrain.finetune.begin_adapter import check_adapter
from pretrain.finetune.encoders import check_start
from pretrain.finetune.finetune_options import FinetuneOptions, TaskOptions
from pretrain.finetune.multitask import OF_EACH, combine_examples, split_task_arguments
from pretrain.finetune.start import make_run, open_start, prepare_workdir
from pretrain.host.terminal import print_notice
from pretrain.processes import processes
from pretrain.settings.verb_options import takes
from pretrain.training.monitoring.options import make_monitoring
from pretrain.workdir.check import check_workdir_path
from pretrain.workdir.workdir import Workdir


@takes(FinetuneOptions)
def finetune(options: FinetuneOptions) -> RunResult:
    """Fine-tune a model on labelled examples, or resume it, and return the run.

    Raises:
      ValueError: for options that contradict each other or the task, and for bad examples.
      Diverged, ReplicaMismatch, MemoryExhausted: as `train`.
    """
    if options.seeds is not None:
        raise ValueError("seeds: several runs are made by `finetune_seeds`")
    return _finetune_all(options)[0]


@takes(FinetuneOptions)
def finetune_seeds(options: FinetuneOptions) -> list[RunResult]:
    """Fine-tune a model with several seeds, and return the runs in WORKDIR/seed-S.

    Raises:
      ValueError: for options that contradict each other or the task, and for bad examples.
      Diverged, ReplicaMismatch, MemoryExhausted: as `train`.
    """
    return _finetune_all(options)


def _finetune_all(options: FinetuneOptions) -> list[RunResult]:
    """Fine-tune; `pretrained` may be a loaded checkpoint, and labels and columns may be lists."""
    check_main_thread("finetune")
    start = options.pretrained
    if (start is None) == (options.config is None):
        raise ValueError("give the workdir of a pretrained model, or `config` of a new one")
    if start is not None:
        start, step, parameters = find_checkpoint(start, options.step, options.parameters)
        chosen = {"step": step, "parameters": parameters}
        options = dataclasses.replace(options, pretrained=start, **chosen)
    if len(options.task) == 1:
        joined: dict[str, Any] = {
            name: [",".join(values)] if name in ("labels", "columns") else values
            for name in OF_EACH
            if (values := _list_values(options, name))
        }
        options = dataclasses.replace(options, **joined)
    return run_finetuning(options)


def _list_values(options: FinetuneOptions, name: str) -> list[str]:
    """Return the values of an option of a single task.

    Raises:
      ValueError: there are several values of an option that one task has once.
    """
    values = vars(options)[name] or []
    if len(values) > 1 and name not in ("labels", "columns"):
        raise ValueError(f"{name}: {len(values)} values for one task; give one, or several tasks")
    return values


def run_finetuning(options: FinetuneOptions, began: float | None = None) -> list[RunResult]:
    """Read the examples, then train one run per seed; return the runs.

    A signal ends the run of one seed, and the later ones do not begin.

    Args:
      options: the options, as the command line has them.
      began: time at which the program began, for the goodput; None: now.
    """
    began = began or time.time()
    check_single_process(options)
    options = check_start(options)
    make_monitoring(options, sys.maxsize)  # the number of steps follows from the examples
    separate = split_task_arguments(options)
    if options.epochs is not None and not 0 < options.epochs < math.inf:
        raise ValueError(f"--epochs {options.epochs:g}: must be above 0")
    # Errors in the examples are reported before JAX is imported.
    gathered = [gather_examples(own) for own in separate]
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(f"--seeds {options.seeds}: must be at least 1")
    from pretrain.evaluation.task_metrics import check_run_metrics
    from pretrain.finetune.later_export import describe_refusal
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.fits.preflight import preflight_accelerators
    from pretrain.training.loop import check_run_program
    from pretrain.training.new_workdir import check_origin

    preflight_accelerators()
    pretrained = open_start(options, gathered)
    names = [own.task for own in separate]
    options = dataclasses.replace(options, task=names)
    task, examples = combine_examples(options, names, gathered, pretrained)
    base = make_run(options, task, examples, pretrained)
    check_run_metrics(base.evaluate.metrics, base.data.objective, base.model)
    for each in separate:
        check_separate(each.train, each.heldout)
    monitoring = make_monitoring(options, base.train.last_step)
    seeds = range(base.train.seed, base.train.seed + (options.seeds or 1))
    workdirs, watched = [options.workdir], [monitoring]
    if options.seeds:
        workdirs = [os.path.join(options.workdir, f"seed-{seed}") for seed in seeds]
        watched = [monitoring.choose_file(seed) for seed in seeds]
    for workdir in workdirs:
        check_workdir_path(workdir)
        if (existing := Workdir.open(workdir)).has_config:
            check_origin(existing, pretrained, options.fresh)
            check_adapter(existing, options.adapter)
    check_run_program(base, make_mesh(base.mesh))
    refusal, results = describe_refusal(base, pretrained.vocabulary), []
    for seed, workdir, monitoring in zip(seeds, workdirs, watched, strict=True):
        run = override_run(base, [f"train.seed={seed}"])
        prepare_workdir(workdir, run, pretrained, options, examples)
        if refusal and not results:
            print_notice(f"this model will have no Hugging Face folder: {refusal}")
        results.append(train_watched(run, workdir, began, monitoring))
        if results[-1].signal:
            break
        began = time.time()
    return results


def check_single_process(options: FinetuneOptions) -> None:
    """Raise ValueError if the workdir is remote or this process is one of several."""
    if is_remote(options.workdir):
        raise ValueError(
            f"--workdir {options.workdir}: must be on this machine; `train` can resume a copy "
            "of it in a bucket"
        )
    if (cluster := processes.detect_own_cluster()).num_processes != 1:
        raise ValueError(
            f"{cluster}: `finetune` starts a run in one process (CLOZE_CLUSTER=none); "
            f"`train {options.workdir}/config.json --workdir {options.workdir}` resumes it in all "
            "of them"
        )


def check_separate(train: str | None, heldout: str | None) -> None:
    """Raise ValueError if the held-out examples of a task are those that it is trained on."""
    if train and heldout and is_same_file(train, heldout):
        raise ValueError(
            f"--heldout {heldout} is --train {train}: a model must not be scored on what it was "
            "trained on; name another file, or leave --heldout out (a tenth of --train is held out)"
        )


def is_same_file(path: str, other: str) -> bool:
    """Return whether two paths lead to one file, or to two with the same bytes."""
    try:
        return os.path.samefile(path, other) or filecmp.cmp(path, other, shallow=False)
    except OSError:  # a data set of TFDS, or absent: reading it says so
        return path == other


# ---- the examples ------------------------------------------------------------


def gather_examples(options: TaskOptions) -> tuple[Any, Any]:
    """Return the task and the examples of the command line of one task.

    Raises:
      ValueError: for arguments that contradict each other or the task, and for bad examples.
    """
    from pretrain.finetune.tasks import TASKS

    if options.task not in TASKS:
        raise ValueError(f"--task {options.task}: must be one of {', '.join(TASKS)}")
    task = TASKS[options.task]
    if options.scheme and options.task != "tagging":
        raise ValueError("--scheme needs --task tagging")
    if options.prefix and options.task != "text2text":
        raise ValueError(
            "--prefix needs --task text2text; other tasks have their name as the prefix"
        )
    train, heldout = options.train, options.heldout
    if train is None:
        if task.tfds is None:
            raise ValueError(f"--task {options.task} needs --train FILE")
        train, heldout = task.tfds[0], heldout or task.tfds[1]
    if heldout and options.held_out is not None:
        raise ValueError(
            "--held-out is a share of --train, --heldout a file of its own: give one of them"
        )
    share = 0.1 if options.held_out is None else options.held_out
    if not 0 < share < 1:
        raise ValueError(f"--held-out {share:g}: must be between 0 and 1, a share of the examples")
    return task, task.read_examples(options, train, heldout, share)
