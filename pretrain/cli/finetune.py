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
import shlex
import time

from data.examples.file_formats import FORMATS
from data.examples.tag_schemes import SCHEMES
from pretrain.api.finetuning import run_finetuning
from pretrain.cli.train import add_monitoring_arguments, report_end
from pretrain.finetune.encoders import name_encoders
from pretrain.finetune.finetune_request import FinetuneRequest
from pretrain.finetune.start import EPOCHS, EPOCHS_OF_NEW
from pretrain.finetune.text2text_task import GENERATIVE_MODELS
from pretrain.host.command import PROGRAM


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
        f"{name_encoders()}. Encoder-decoders generate the answer as text: "
        f"{', '.join(GENERATIVE_MODELS)}",
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
    _add_reading_arguments(group)


def _add_reading_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the arguments by which the files of examples are read."""
    group.add_argument(
        "--as",
        dest="file_format",
        choices=FORMATS,
        help="format of the files, whatever their names: conll for CoNLL's eng.train (default: the "
        "end of a name decides)",
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
    """Train one run per seed and print their scores; return the exit status."""
    began, results = time.time(), []

    def train() -> int | None:
        results.extend(run_finetuning(FinetuneRequest(**vars(args)), began))
        return results[-1].signal

    if status := report_end(train):
        return status
    from pretrain.convert import find_model_family
    from pretrain.finetune.seed_summary import format_seed_summary
    from pretrain.workdir.checkpoints import read_run

    workdirs = [result.workdir for result in results]
    run = read_run(workdirs[0])
    if run.train.last_step < run.train.steps:
        commands = (
            f"  {PROGRAM} train {workdir}/config.json --workdir {workdir} train.stop_at_step=0"
            for workdir in map(shlex.quote, workdirs)
        )
        print(
            f"stopped at step {run.train.last_step:,} of {run.train.steps:,} "
            "(train.stop_at_step); next:",
            *commands,
            sep="\n",
        )
        return 0
    in_transformers = find_model_family(run.model).hugging_face is not None
    print(format_seed_summary(args.workdir, workdirs, run.evaluate.metrics, in_transformers))
    return 0
