"""evaluate --workdir W: score a checkpoint on every row of the held-out split.

With --text FILE it scores all of another text (pretrain/evaluation/text_store.py).
With --task FILE it scores answers to questions by log-likelihood
(pretrain/inference/in_context_tasks.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools

from data.corpus.json_lines import format_json
from pretrain.api.evaluate_options import QUESTIONS, EvaluateOptions, QuestionOptions, ScoreOptions
from pretrain.api.evaluating import make_text_request, score_questions, score_store
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.inference.random_head import name_parameters
from pretrain.inference.record_files import open_line_writer
from pretrain.processes import processes
from pretrain.settings.verb_options import add_options, format_flag, list_options, read_options

# Options that both kinds of evaluation have.
SHARED = ["model", "step", "parameters", *(field.name for field in list_options(ScoreOptions))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `evaluate` to a parser."""
    add_options(parser, EvaluateOptions)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    task = add_options(parser, QuestionOptions, leave_out=SHARED)[QUESTIONS]
    task.add_argument(
        "--output", metavar="FILE", help="write each question with its scores as JSON lines"
    )
    add_overwrite(task, "FILE")
    processes.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Score a checkpoint and print the scores; return 0."""
    if args.task is not None:
        return run_task(args)
    if given := list_task_flags(args):
        raise ValueError(f"these flags need --task FILE: {', '.join(given)}")
    options = read_options(EvaluateOptions, args)
    text = make_text_request(options)
    processes.join_run(args)
    import jax

    from pretrain.workdir.workdir import Workdir

    dtype = options.dtype or Workdir.open(args.workdir).run.train.compute_dtype
    step, store, scores = score_store(dataclasses.replace(options, dtype=dtype))
    if jax.process_index():
        return 0  # all processes have the same scores; the first prints them
    if args.json:
        place = {"text": text.path} if text else {"store": str(store), "split": args.split}
        average = {"parameters": options.parameters} if options.parameters else {}
        facts = {"step": step, **average, **place, "dtype": dtype}
        print(format_json({**facts, **scores}))
        return 0
    tokens = f"{scores['tokens']:,} tokens, " if text else ""
    place = store if text else f"the {args.split} split of {store}"
    print(
        f"{name_parameters(step, args.parameters)} on {place}: {tokens}"
        f"{scores['rows']:,} rows, {scores['targets']:,.0f} targets, {describe_dtype(dtype)}"
    )
    for name, value in scores.items():
        if name not in ("rows", "targets", "tokens"):
            print(f"  {name:<27} {value:.5g}")
    return 0


def list_task_flags(args: argparse.Namespace) -> list[str]:
    """Return the flags of --task that differ from their defaults."""
    defaults = {field.name: field.default for field in list_options(QuestionOptions)}
    defaults |= {"task": None, "output": None, "overwrite": False}
    own = [name for name in defaults if name not in SHARED]
    return [format_flag(name) for name in own if vars(args)[name] != defaults[name]]


def describe_dtype(dtype: str) -> str:
    """Return the end of a line that names the dtype, and how to choose the other."""
    hint = " (as predict and exported models compute: --dtype float32)"
    return f"computed in {dtype}{'' if dtype == 'float32' else hint}"


def run_task(args: argparse.Namespace) -> int:
    """Score answers to questions by log-likelihood; return 0."""
    for flag, is_given in (
        ("--store", args.store),
        ("--labelled", args.labelled),
        ("--text", args.text),
        ("--split", args.split != "heldout"),
    ):
        if is_given:
            raise ValueError(f"give --task or {flag}, not both")
    if args.output:
        check_output_file(args.output, args.overwrite, [args.task, args.examples])
    join_run = functools.partial(processes.join_run, args)
    scores, records = score_questions(read_options(QuestionOptions, args), join_run)
    import jax

    if jax.process_index():
        return 0
    if args.output:
        with open_line_writer(args.output) as write:
            for record in records:
                write(format_json(record, ensure_ascii=False))
    if args.json:
        print(format_json(scores))
        return 0
    step, task, dtype = (scores.pop(name) for name in ("step", "task", "dtype"))
    named = name_parameters(step, args.parameters)
    print(f"{named} on {task}, {describe_dtype(dtype)}")
    for name, value in scores.items():
        print(f"  {name:<28}{value:,}" if isinstance(value, int) else f"  {name:<28}{value:.5g}")
    return 0
