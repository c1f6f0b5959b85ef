"""finetune --from WORKDIR --task TASK --train FILE --workdir W: fine-tune a pretrained model.

    python -m pretrain finetune --from runs/bert --task classification \\
        --train train.jsonl --heldout dev.jsonl --workdir runs/sentiment
    python -m pretrain finetune --from runs/bert --task mrpc \\
        --train train.tsv --heldout dev.tsv --seeds 5 --workdir runs/mrpc
    python -m pretrain finetune --from runs/t5 --task cola=cola.tsv --task sst2=sst2.jsonl \\
        --workdir runs/both

W is a workdir like any other, with the labelled examples in W/store: `evaluate`, `predict` and
`export` accept it, and the same command resumes it. With --seeds N there is one workdir W/seed-S
per seed.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from typing import Any

from data.corpus.paths import is_remote
from data.examples.tag_schemes import SCHEMES
from pretrain.cli.train import add_monitoring_arguments, parse_monitoring, run_training
from pretrain.command import PROGRAM
from pretrain.config import override_run
from pretrain.distributed import processes
from pretrain.finetune.encoders import NAMES, check_start
from pretrain.finetune.multitask import combine_examples, split_task_arguments
from pretrain.finetune.start import EPOCHS, EPOCHS_OF_NEW, make_run, open_start, prepare_workdir
from pretrain.finetune.text2text_task import GENERATIVE_MODELS
from pretrain.workdir.check import check_workdir_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `finetune` to a parser."""
    _add_start_arguments(parser)
    parser.add_argument(
        "--step", type=int, help="step of its checkpoint (default: the newest intact one)"
    )
    parser.add_argument(
        "--task",
        required=True,
        action="append",
        metavar="TASK",
        help="classification, regression, tagging, multiple_choice, text2text, squad, squad2, or a "
        "task of GLUE: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli. A generative model can "
        "learn several tasks: --task NAME=FILE for each, where FILE has the training examples",
    )
    _add_example_arguments(
        parser.add_argument_group(
            "examples",
            "each FILE is .jsonl, .tsv or .csv with named columns, SQuAD's .json (also .gz), or "
            "tfds:NAME[/CONFIG][:SPLIT]. With several tasks, give --heldout, --columns, --prefix "
            "and --labels as NAME=VALUE, once per task",
        )
    )
    parser.add_argument(
        "--workdir", required=True, help="folder of the run; an existing run is resumed"
    )
    parser.add_argument(
        "--epochs",
        type=float,
        metavar="E",
        help="passes over all examples, unless train.steps is set (default: "
        f"{EPOCHS:g}; {EPOCHS_OF_NEW:g} with --config)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="make N runs with the seeds train.seed, train.seed + 1, ..., and report mean and "
        "standard deviation",
    )
    parser.add_argument(
        "--fresh",
        choices=("head", "all"),
        default="head",
        help="parameters to initialize at random: the head, or all, as a baseline "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="changed fields, e.g. optimizer.learning_rate=3e-4 data.objective.length=64",
    )
    add_monitoring_arguments(parser)


def _add_start_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments about the model to begin with."""
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument(
        "--from",
        dest="pretrained",
        metavar="WORKDIR",
        help="workdir of a pretrained or imported model. Encoders get a head for the task: "
        f"{NAMES}. Encoder-decoders generate the answer as text: {', '.join(GENERATIVE_MODELS)}",
    )
    start.add_argument(
        "--config",
        metavar="NAME",
        help="configuration of a new encoder with random parameters, which learns from labelled "
        "texts alone. Its vocabulary is the words of the training texts",
    )
    parser.add_argument(
        "--min-count",
        type=int,
        metavar="N",
        help="with --config: words that occur less often are unknown (default: 1)",
    )
    parser.add_argument(
        "--vectors",
        metavar="FILE",
        help="with --config: word vectors to begin with, one word and its numbers a line "
        "(also .gz)",
    )


def _add_example_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the arguments about the examples."""
    group.add_argument(
        "--train",
        metavar="FILE",
        help="training examples (default for GLUE and SQuAD: from TFDS)",
    )
    group.add_argument(
        "--heldout",
        action="append",
        metavar="FILE",
        help="held-out examples, all of which are scored (default: a share of --train)",
    )
    group.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="share of --train to hold out, chosen by hash (default: 0.1)",
    )
    group.add_argument(
        "--columns",
        action="append",
        metavar="A[,B],LABEL",
        help="names of the columns: a text or a pair of texts, and the label (default: text,label "
        "or text,text2,label); for tagging, the words and the tags",
    )
    group.add_argument(
        "--prefix",
        action="append",
        metavar="TEXT",
        help='for text2text: prefix of every source, e.g. "translate English to German: "',
    )
    group.add_argument(
        "--labels",
        action="append",
        metavar="A,B,...",
        help="names of the classes in order (default: those in --train)",
    )
    group.add_argument(
        "--limit",
        type=int,
        metavar="K",
        help="for several tasks, which are mixed in proportion to their examples: at most K "
        "examples of each per epoch",
    )
    group.add_argument(
        "--scheme",
        choices=SCHEMES,
        help="for tagging: scheme by which tags spell entities (default: detected)",
    )
    group.add_argument(
        "--on-bad-example",
        "--on-bad-answer",
        dest="on_bad_example",
        choices=("refuse", "skip"),
        default="refuse",
        help="what to do with a bad example, such as a line with a column too few, or a question "
        "whose answer is not in the context at its given position: stop with an error, or skip "
        "and count it (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Read the examples, then train one run per seed and print their scores; return the status."""
    began = time.time()
    check_single_process(args)
    check_start(args)
    parse_monitoring(args, sys.maxsize)  # the number of steps follows from the examples
    task_arguments = split_task_arguments(args)
    # Errors in the examples are reported before JAX is imported.
    gathered = [gather_examples(arguments) for arguments in task_arguments]
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds {args.seeds}: must be at least 1")
    from pretrain.convert import find_model_family
    from pretrain.distributed.preflight import preflight_accelerators
    from pretrain.distributed.sharding import make_mesh
    from pretrain.evaluation.task_metrics import check_run_metrics
    from pretrain.finetune.seed_summary import format_seed_summary
    from pretrain.training.loop import check_run_memory

    preflight_accelerators()
    pretrained = open_start(args, gathered)
    names = [arguments.task for arguments in task_arguments]
    args.task = ", ".join(names)
    task, examples = combine_examples(args, names, gathered, pretrained)
    base = make_run(args, task, examples, pretrained)
    check_run_metrics(base.evaluate.metrics, base.data.objective, base.model)
    monitoring = parse_monitoring(args, base.train.last_step)
    seeds = range(base.train.seed, base.train.seed + (args.seeds or 1))
    workdirs, watched = [args.workdir], [monitoring]
    if args.seeds:
        workdirs = [os.path.join(args.workdir, f"seed-{seed}") for seed in seeds]
        watched = [monitoring.choose_file(seed) for seed in seeds]
    for workdir in workdirs:
        check_workdir_path(workdir)
    check_run_memory(base, make_mesh(base.mesh))
    for seed, workdir, monitoring in zip(seeds, workdirs, watched):
        seed_run = override_run(base, [f"train.seed={seed}"])
        prepare_workdir(workdir, seed_run, pretrained, args, examples)
        if status := run_training(seed_run, workdir, began=began, monitoring=monitoring):
            return status
        began = None
    if base.train.last_step < base.train.steps:
        commands = (
            f"  {PROGRAM} train {workdir}/config.json --workdir {workdir} train.stop_at_step=0"
            for workdir in workdirs
        )
        print(
            f"stopped at step {base.train.last_step:,} of {base.train.steps:,} "
            "(train.stop_at_step); next:",
            *commands,
            sep="\n",
        )
        return 0
    in_transformers = find_model_family(base.model).hugging_face is not None
    print(format_seed_summary(args.workdir, workdirs, base.evaluate.metrics, in_transformers))
    return 0


def check_single_process(args: argparse.Namespace) -> None:
    """Raise ValueError if the workdir is remote or this process is one of several."""
    if is_remote(args.workdir):
        raise ValueError(
            f"--workdir {args.workdir}: must be on this machine; `train` can resume a copy of it "
            "in a bucket"
        )
    if (cluster := processes.detect_own_cluster()).num_processes != 1:
        raise ValueError(
            f"{cluster}: `finetune` starts a run in one process (CLOZE_CLUSTER=none); "
            f"`train {args.workdir}/config.json --workdir {args.workdir}` resumes it in all of them"
        )


# ---- the examples ------------------------------------------------------------


def gather_examples(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return the task and the examples of the command line of one task.

    Raises:
      ValueError: for arguments that contradict each other or the task, and for bad examples.
    """
    from pretrain.finetune.tasks import TASKS

    if args.task not in TASKS:
        raise ValueError(f"--task {args.task}: must be one of {', '.join(TASKS)}")
    task = TASKS[args.task]
    if args.scheme and args.task != "tagging":
        raise ValueError("--scheme needs --task tagging")
    if args.prefix and args.task != "text2text":
        raise ValueError(
            "--prefix needs --task text2text; other tasks have their name as the prefix"
        )
    if args.epochs is not None and not 0 < args.epochs < math.inf:
        raise ValueError(f"--epochs {args.epochs:g}: must be above 0")
    train, heldout = args.train, args.heldout
    if train is None:
        if task.tfds is None:
            raise ValueError(f"--task {args.task} needs --train FILE")
        train, heldout = task.tfds[0], heldout or task.tfds[1]
    if heldout and args.held_out is not None:
        raise ValueError(
            "--held-out is a share of --train, --heldout a file of its own: give one of them"
        )
    share = 0.1 if args.held_out is None else args.held_out
    if not 0 < share < 1:
        raise ValueError(f"--held-out {share:g}: must be between 0 and 1, a share of the examples")
    return task, task.read_examples(args, train, heldout, share)
