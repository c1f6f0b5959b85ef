"""finetune --from WORKDIR --task TASK --train FILE --workdir W: a pretrained model learns a task, by the same `train`.

    python -m pretrain finetune --from runs/bert --task classification --train train.jsonl --heldout dev.jsonl --workdir runs/sentiment
    python -m pretrain finetune --from runs/bert --task mrpc --train train.tsv --heldout dev.tsv --seeds 5 --workdir runs/mrpc
    python -m pretrain finetune --from runs/t5 --task cola=cola.tsv --task sst2=sst2.jsonl --workdir runs/both

W is then a run's folder as any other, with the labelled examples in W/store: `evaluate`, `predict` and `export` take it, and the same
command goes on with it. With --seeds N there is one in W/seed-S for each seed.
"""

import math
import os
import sys
import time

from data.corpus.paths import is_remote
from data.examples.tag_schemes import SCHEMES
from pretrain.config import override
from pretrain.distributed import processes
from pretrain.finetune.encoders import NAMES
from pretrain.finetune.multitask import separated, together
from pretrain.finetune.start import make_run, prepare_workdir
from pretrain.workdir.check import check_place


def add_arguments(parser):
    encoders = f"of a run that was trained, or imported: {NAMES}"
    parser.add_argument(
        "--from", dest="pretrained", required=True, metavar="WORKDIR", help=encoders
    )
    parser.add_argument("--step", type=int, help="its checkpoint; the newest good one unless given")
    names = "classification, regression, tagging, multiple_choice, text2text, squad, squad2, or one of GLUE: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli"
    several = (
        ". Of several for one model that writes: --task NAME=FILE for each, FILE to learn from"
    )
    parser.add_argument(
        "--task", required=True, action="append", metavar="TASK", help=names + several
    )
    _add_example_arguments(
        parser.add_argument_group(
            "examples: .jsonl, .tsv or .csv with named columns, SQuAD's .json (also .gz), or tfds:NAME[/CONFIG][:SPLIT]"
        )
    )
    parser.add_argument(
        "--workdir", required=True, help="a folder for the run; an existing one is continued"
    )
    epochs = (
        "times that all examples are seen (%(default)g), unless train.steps says how many steps"
    )
    parser.add_argument("--epochs", type=float, default=3.0, metavar="E", help=epochs)
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="so many runs, from train.seed on, and their mean and spread",
    )
    parser.add_argument(
        "--fresh",
        choices=("head", "all"),
        default="head",
        help="what begins at random: the head (default), or all, to compare",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="e.g. optimizer.learning_rate=3e-4 data.objective.length=64",
    )


def _add_example_arguments(text):
    text.add_argument(
        "--train",
        metavar="FILE",
        help="to learn from; that of GLUE or SQuAD from TFDS unless given",
    )
    each = "; of several tasks NAME=..., once for each"
    text.add_argument(
        "--heldout",
        action="append",
        metavar="FILE",
        help=f"to measure by, the whole of it; a share of --train unless given{each}",
    )
    text.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="that share, drawn by the texts' hashes (0.1)",
    )
    columns = "names of the text, the second text of a pair, and the label (text[,text2],label); of tagging the words and the tags"
    text.add_argument("--columns", action="append", metavar="A[,B],LABEL", help=columns + each)
    text.add_argument(
        "--prefix",
        action="append",
        metavar="TEXT",
        help=f'of text2text, in front of every source: "translate English to German: "{each}',
    )
    text.add_argument(
        "--labels",
        action="append",
        metavar="A,B,...",
        help=f"the classes in their order; those of --train unless given{each}",
    )
    text.add_argument(
        "--limit",
        type=int,
        metavar="K",
        help="of several tasks, which are mixed by their examples: K of each in an epoch, at most",
    )
    text.add_argument(
        "--scheme",
        choices=SCHEMES,
        help="of --task tagging: how tags spell entities; what they look like unless given",
    )
    bad = "of squad, a question whose answer is not where it is said to be: an error (default), or left out and counted"
    text.add_argument("--on-bad-answer", choices=("refuse", "skip"), default="refuse", help=bad)


def run(args):
    began = time.time()
    if is_remote(args.workdir):
        raise ValueError(
            f"--workdir {args.workdir}: a folder on this machine; `train` goes on with a copy of it in a bucket"
        )
    if (among := processes.seen_by()).processes != 1:
        goes_on = f"`train {args.workdir}/config.json --workdir {args.workdir}` goes on with it in all of them"
        raise ValueError(
            f"{among}: `finetune` begins a run in one process (CLOZE_CLUSTER=none); {goes_on}"
        )
    tasks = separated(args)
    gathered = [
        gather(each) for each in tasks
    ]  # what is wrong with the text is told before JAX is imported
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds {args.seeds}: at least 1")
    from pretrain.cli.train import finish
    from pretrain.distributed.preflight import preflight_accelerators
    from pretrain.evaluation.task_metrics import check_measured
    from pretrain.finetune.seed_summary import summary
    from pretrain.inference.trained import open_trained

    preflight_accelerators()
    pretrained = open_trained(
        args.pretrained, args.step, report=lambda text: print(text, file=sys.stderr)
    )
    args.task = ", ".join(each.task for each in tasks)
    task, examples = together(args, [each.task for each in tasks], gathered, pretrained)
    whole = make_run(args, task, examples, pretrained)
    check_measured(whole.evaluate.metrics, whole.data.objective, whole.model)
    workdirs = [args.workdir]
    if args.seeds:
        seeds = range(whole.train.seed, whole.train.seed + args.seeds)
        workdirs = [os.path.join(args.workdir, f"seed-{seed}") for seed in seeds]
    for workdir in workdirs:
        check_place(workdir)
    for number, workdir in enumerate(workdirs):
        one = override(whole, [f"train.seed={whole.train.seed + number}"])
        prepare_workdir(workdir, one, pretrained, args, examples)
        if status := finish(one, workdir, began=began):
            return status
        began = None
    if whole.train.end < whole.train.steps:
        goes_on = (
            f"  python -m pretrain train {workdir}/config.json --workdir {workdir} train.stop_at_step=0"
            for workdir in workdirs
        )
        print(
            f"ended at step {whole.train.end:,} of {whole.train.steps:,}, as train.stop_at_step says; next:",
            *goes_on,
            sep="\n",
        )
        return 0
    print(summary(args.workdir, workdirs, whole.evaluate.metrics))
    return 0


# ---- the examples ------------------------------------------------------------


def gather(args):
    """(task, examples) of the command line of one task; examples: as pretrain/finetune/labelled_task.py says."""
    from pretrain.finetune.tasks import TASKS

    if args.task not in TASKS:
        raise ValueError(f"--task {args.task}: one of {', '.join(TASKS)}")
    task = TASKS[args.task]
    if args.scheme and args.task != "tagging":
        raise ValueError("--scheme is of tags: --task tagging")
    if args.prefix and args.task != "text2text":
        raise ValueError(
            "--prefix is for text2text; the texts of a labelled task are named by the task"
        )
    if not 0 < args.epochs < math.inf:
        raise ValueError(f"--epochs {args.epochs:g}: above 0")
    train, heldout = args.train, args.heldout
    if train is None:
        if task.tfds is None:
            raise ValueError(f"--task {args.task} needs --train FILE")
        train, heldout = task.tfds[0], heldout or task.tfds[1]
    if heldout and args.held_out is not None:
        raise ValueError(
            "--held-out is a share of --train, where --heldout names no file: give one of them"
        )
    share = 0.1 if args.held_out is None else args.held_out
    if not 0 < share < 1:
        raise ValueError(f"--held-out {share:g}: a share of the examples, between 0 and 1")
    return task, task.read(args, train, heldout, share)
