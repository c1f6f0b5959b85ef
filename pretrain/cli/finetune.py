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

from pretrain.api.finetuning import run_finetuning
from pretrain.cli.train import report_end
from pretrain.finetune.finetune_options import FinetuneOptions
from pretrain.host.command import PROGRAM
from pretrain.settings.verb_options import add_options, read_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `finetune` to a parser."""
    add_options(parser, FinetuneOptions)


def run(args: argparse.Namespace) -> int:
    """Train one run per seed and print their scores; return the exit status."""
    began, results = time.time(), []

    def train() -> int | None:
        results.extend(run_finetuning(read_options(FinetuneOptions, args), began))
        return results[-1].signal

    if status := report_end(train):
        return status
    from models.config.heads import HeadedConfig
    from pretrain.convert import find_model_family
    from pretrain.finetune.seed_summary import format_seed_summary
    from pretrain.workdir.workdir import Workdir

    workdirs = [result.workdir for result in results]
    run = Workdir.open(workdirs[0]).run
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
    hf_map = find_model_family(run.model).hugging_face
    has_class = hf_map is not None and (hf_map.head_map or not isinstance(run.model, HeadedConfig))
    scores = dict.fromkeys(filter(None, (run.checkpoint.best, *run.evaluate.metrics)))
    print(format_seed_summary(args.workdir, workdirs, [*scores], bool(has_class)))
    return 0
