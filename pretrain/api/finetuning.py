"""Fine-tune a pretrained model."""

from __future__ import annotations

import dataclasses
import filecmp
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data.corpus.paths import is_remote
from pretrain.api.arguments import format_path, list_arguments, list_paths
from pretrain.api.training import RunResult, check_main_thread, train_watched
from pretrain.config import override_run
from pretrain.finetune.encoders import check_start
from pretrain.finetune.finetune_request import FinetuneRequest
from pretrain.finetune.multitask import combine_examples, split_task_arguments
from pretrain.finetune.start import make_run, open_start, prepare_workdir
from pretrain.host.terminal import print_notice
from pretrain.processes import processes
from pretrain.training.monitoring.options import make_monitoring
from pretrain.workdir.check import check_workdir_path

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

LISTS = ("task", "heldout", "columns", "prefix", "labels")  # options with a value for each task


def finetune(
    pretrained: str | os.PathLike[str] | Trained | None,
    task: str | Sequence[str],
    workdir: str | os.PathLike[str],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    **options: Any,
) -> RunResult:
    """Fine-tune a model on labelled examples, or resume it, and return the run.

    Args:
      pretrained: the workdir of a pretrained or imported model, or a loaded checkpoint, which is
        read from its workdir again; None with `config`.
      task: "classification", "tagging", ..., or a task of GLUE, see `finetune --help`; or for a
        generative model several "NAME=FILE".
      workdir: the folder of the run, on this machine.
      overrides: changed fields, as {"optimizer.learning_rate": 3e-5}.
      options: fields of `FinetuneRequest` (pretrain/finetune/finetune_request.py), such as
        train="train.tsv", heldout="dev.tsv", epochs=3.

    Raises:
      ValueError: for options that contradict each other or the task, and for bad examples.
      Diverged, ReplicaMismatch, MemoryExhausted: as `train`.
    """
    if options.pop("seeds", None) is not None:
        raise ValueError("seeds: several runs are made by `finetune_seeds`")
    return finetune_seeds(pretrained, task, workdir, overrides, seeds=None, **options)[0]


def finetune_seeds(
    pretrained: str | os.PathLike[str] | Trained | None,
    task: str | Sequence[str],
    workdir: str | os.PathLike[str],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    seeds: int | None,
    **options: Any,
) -> list[RunResult]:
    """Fine-tune a model with several seeds, and return the runs in WORKDIR/seed-S.

    Args:
      pretrained, task, workdir, overrides, options: as of `finetune`.
      seeds: the number of runs; their seeds are train.seed, train.seed + 1, ....
    """
    known = [field.name for field in dataclasses.fields(FinetuneRequest)]
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"finetune has no option {unknown[0]!r}; it has {', '.join(known)}")
    check_main_thread("finetune")
    if pretrained is not None and not isinstance(pretrained, (str, os.PathLike)):
        pretrained, options = pretrained.workdir, {"step": pretrained.step, **options}
    values: dict[str, Any] = options | {"task": task}
    is_single = isinstance(task, str) or len(task) == 1
    for name in LISTS:
        values[name] = _list_values(name, values.get(name), is_single)
    for name in ("train", "vectors", "prometheus"):
        values[name] = None if values.get(name) is None else format_path(values[name])
    request = FinetuneRequest(
        workdir=format_path(workdir),
        pretrained=None if pretrained is None else format_path(pretrained),
        overrides=list_arguments(overrides),
        seeds=seeds,
        **values,
    )
    if (request.pretrained is None) == (request.config is None):
        raise ValueError("give the workdir of a pretrained model, or `config` of a new one")
    return run_finetuning(request)


def _list_values(name: str, value: Any, is_single: bool) -> list[str] | None:
    """Return the values of an option as the verb has them: one for each task.

    Args:
      name: of the option.
      value: a text, a path, several, or None.
      is_single: whether there is one task, for which several labels or columns are one value.

    Raises:
      ValueError: there are several values of an option that one task has once.
    """
    if value is None or isinstance(value, (str, os.PathLike)):
        return None if value is None else [format_path(value)]
    if is_single and name in ("labels", "columns"):
        return [",".join(map(str, value))]
    if is_single and len(value) > 1:
        raise ValueError(f"{name}: {len(value)} values for one task; give one, or several tasks")
    return list_paths(value)


def run_finetuning(request: FinetuneRequest, began: float | None = None) -> list[RunResult]:
    """Read the examples, then train one run per seed; return the runs.

    A signal ends the run of one seed, and the later ones do not begin.

    Args:
      request: the arguments.
      began: time at which the program began, for the goodput; None: now.
    """
    began = began or time.time()
    check_single_process(request)
    check_start(request)
    watch = (request.profile, request.prometheus, request.tracker)
    make_monitoring(*watch, sys.maxsize)  # the number of steps follows from the examples
    requests = split_task_arguments(request)
    # Errors in the examples are reported before JAX is imported.
    gathered = [gather_examples(each) for each in requests]
    if request.seeds is not None and request.seeds < 1:
        raise ValueError(f"--seeds {request.seeds}: must be at least 1")
    from pretrain.evaluation.task_metrics import check_run_metrics
    from pretrain.finetune.later_export import describe_refusal
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.fits.preflight import preflight_accelerators
    from pretrain.training.loop import check_run_program
    from pretrain.training.new_workdir import check_origin

    preflight_accelerators()
    pretrained = open_start(request, gathered)
    names = [each.task for each in requests]
    request = dataclasses.replace(request, task=", ".join(names))
    task, examples = combine_examples(request, names, gathered, pretrained)
    base = make_run(request, task, examples, pretrained)
    check_run_metrics(base.evaluate.metrics, base.data.objective, base.model)
    for each in requests:
        check_separate(each.train, each.heldout)
    monitoring = make_monitoring(*watch, base.train.last_step)
    seeds = range(base.train.seed, base.train.seed + (request.seeds or 1))
    workdirs, watched = [request.workdir], [monitoring]
    if request.seeds:
        workdirs = [os.path.join(request.workdir, f"seed-{seed}") for seed in seeds]
        watched = [monitoring.choose_file(seed) for seed in seeds]
    for workdir in workdirs:
        check_workdir_path(workdir)
        if os.path.exists(os.path.join(workdir, "config.json")):
            check_origin(workdir, pretrained, request.fresh)
    check_run_program(base, make_mesh(base.mesh))
    refusal, results = describe_refusal(base, pretrained.vocabulary), []
    for seed, workdir, monitoring in zip(seeds, workdirs, watched, strict=True):
        run = override_run(base, [f"train.seed={seed}"])
        prepare_workdir(workdir, run, pretrained, request, examples)
        if refusal and not results:
            print_notice(f"this model will have no Hugging Face folder: {refusal}")
        results.append(train_watched(run, workdir, began, monitoring))
        if results[-1].signal:
            break
        began = time.time()
    return results


def check_single_process(request: FinetuneRequest) -> None:
    """Raise ValueError if the workdir is remote or this process is one of several."""
    if is_remote(request.workdir):
        raise ValueError(
            f"--workdir {request.workdir}: must be on this machine; `train` can resume a copy "
            "of it in a bucket"
        )
    if (cluster := processes.detect_own_cluster()).num_processes != 1:
        raise ValueError(
            f"{cluster}: `finetune` starts a run in one process (CLOZE_CLUSTER=none); "
            f"`train {request.workdir}/config.json --workdir {request.workdir}` resumes it in all "
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


def gather_examples(request: FinetuneRequest) -> tuple[Any, Any]:
    """Return the task and the examples of the command line of one task.

    Raises:
      ValueError: for arguments that contradict each other or the task, and for bad examples.
    """
    from pretrain.finetune.tasks import TASKS

    if request.task not in TASKS:
        raise ValueError(f"--task {request.task}: must be one of {', '.join(TASKS)}")
    task = TASKS[request.task]
    if request.scheme and request.task != "tagging":
        raise ValueError("--scheme needs --task tagging")
    if request.prefix and request.task != "text2text":
        raise ValueError(
            "--prefix needs --task text2text; other tasks have their name as the prefix"
        )
    if request.epochs is not None and not 0 < request.epochs < math.inf:
        raise ValueError(f"--epochs {request.epochs:g}: must be above 0")
    train, heldout = request.train, request.heldout
    if train is None:
        if task.tfds is None:
            raise ValueError(f"--task {request.task} needs --train FILE")
        train, heldout = task.tfds[0], heldout or task.tfds[1]
    if heldout and request.held_out is not None:
        raise ValueError(
            "--held-out is a share of --train, --heldout a file of its own: give one of them"
        )
    share = 0.1 if request.held_out is None else request.held_out
    if not 0 < share < 1:
        raise ValueError(f"--held-out {share:g}: must be between 0 and 1, a share of the examples")
    return task, task.read_examples(request, train, heldout, share)
