"""evaluate --workdir W: score a checkpoint on every row of the held-out split.

With --text FILE it scores all of another text (pretrain/evaluation/text_store.py).
With --task FILE it scores answers to questions by log-likelihood
(pretrain/inference/in_context_tasks.py).
"""

from __future__ import annotations

import argparse
import functools

from data.corpus.json_lines import format_json
from data.examples.file_formats import FORMATS
from pretrain.api.evaluating import (
    TASK_BATCH,
    TEXT_FLAGS,
    evaluate_questions,
    make_text_request,
    score_store,
)
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.cli.prepare import add_reading_arguments
from pretrain.inference import random_head
from pretrain.inference.record_files import open_line_writer
from pretrain.processes import processes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `evaluate` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    parser.add_argument(
        "--step", type=int, help="step of the checkpoint (default: the newest intact one)"
    )
    parser.add_argument(
        "--store", help="token store to use instead of the run's; it must have the same vocabulary"
    )
    parser.add_argument(
        "--labelled",
        metavar="FILE",
        help="labelled examples to score a fine-tuned model on, with the columns it was "
        "fine-tuned on",
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        help='plain text to score all of: a file, a folder or a "pattern", as `prepare` reads '
        "them; no store is kept",
    )
    parser.add_argument(
        "--split",
        default="heldout",
        choices=("heldout", "train"),
        help="split of the store (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="dtype of the computation (default: train.compute_dtype of the run, as in its own "
        "evaluations; predict and exported models compute in float32)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        metavar="B",
        help="rows per batch, or choices of --task (default: data.batch_size of the run; for "
        f"--task {TASK_BATCH})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    random_head.add_argument(parser)
    reading = parser.add_argument_group("how --text (docs/data.md) and --labelled are read")
    add_reading_arguments(reading, formats=FORMATS)
    _add_task_arguments(
        parser.add_argument_group("questions, scored by log-likelihood (docs/in_context.md)")
    )
    processes.add_arguments(parser)


def _add_task_arguments(task: argparse._ArgumentGroup) -> None:
    """Add the arguments of `evaluate --task` to a group."""
    task.add_argument(
        "--task",
        metavar="FILE",
        help='JSON lines of {"context", "choices", "answer"}, {"context", "answer"} or {"text"}',
    )
    task.add_argument(
        "--shots",
        type=int,
        default=0,
        metavar="K",
        help="number of answered examples before each question (default: %(default)s)",
    )
    task.add_argument(
        "--examples",
        metavar="FILE",
        help="file to draw these examples from (default: the other questions of --task)",
    )
    task.add_argument(
        "--delimiter",
        default="\\n\\n",
        help="text between the examples; \\n is a newline (default: %(default)s)",
    )
    task.add_argument(
        "--answer-context",
        metavar="TEXT",
        help='normalize each choice by its likelihood after this text alone, e.g. "Answer:"',
    )
    task.add_argument(
        "--seed", type=int, default=0, help="seed of the drawn examples (default: %(default)s)"
    )
    task.add_argument(
        "--output", metavar="FILE", help="write each question with its scores as JSON lines"
    )
    add_overwrite(task, "FILE")


def run(args: argparse.Namespace) -> int:
    """Score a checkpoint and print the scores; return 0."""
    if args.task is not None:
        args.batch_size = TASK_BATCH if args.batch_size is None else args.batch_size
        return run_task(args)
    if given := list_task_flags(args):
        raise ValueError(f"these flags need --task FILE: {', '.join(given)}")
    reading = {name: getattr(args, name) for name in TEXT_FLAGS}
    labelled_format = reading.pop("file_format") if args.labelled else None
    text = make_text_request(args.text, **reading)
    processes.join_run(args)
    import jax

    from pretrain.workdir.checkpoints import read_run

    dtype = args.dtype or read_run(args.workdir).train.compute_dtype
    step, store, scores = score_store(
        args.workdir,
        args.step,
        args.store,
        args.labelled,
        args.split,
        args.allow_random_head,
        dtype,
        args.batch_size,
        text,
        labelled_format,
    )
    if jax.process_index():
        return 0  # all processes have the same scores; the first prints them
    if args.json:
        place = {"text": text.path} if text else {"store": str(store), "split": args.split}
        facts = {"step": step, **place, "dtype": dtype}
        print(format_json({**facts, **scores}))
        return 0
    tokens = f"{scores['tokens']:,} tokens, " if text else ""
    print(
        f"step {step:,} on {store if text else f'the {args.split} split of {store}'}: {tokens}"
        f"{scores['rows']:,} rows, {scores['targets']:,.0f} targets, {describe_dtype(dtype)}"
    )
    for name, value in scores.items():
        if name not in ("rows", "targets", "tokens"):
            print(f"  {name:<27} {value:.5g}")
    return 0


def list_task_flags(args: argparse.Namespace) -> list[str]:
    """Return the flags of --task that differ from their defaults."""
    parser = argparse.ArgumentParser()
    _add_task_arguments(parser.add_argument_group())
    defaults = vars(parser.parse_args([]))
    return [
        f"--{name.replace('_', '-')}"
        for name, default in defaults.items()
        if getattr(args, name) != default
    ]


def describe_dtype(dtype: str) -> str:
    """Return the end of a line that names the dtype, and how to choose the other."""
    hint = " (as predict and exported models compute: --dtype float32)"
    return f"computed in {dtype}{'' if dtype == 'float32' else hint}"


def run_task(args: argparse.Namespace) -> int:
    """Score answers to questions by log-likelihood; return 0.

    Raises:
      ValueError: for bad arguments or questions, before any parameters are read.
    """
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
    scores, records = evaluate_questions(
        args.workdir,
        args.task,
        step=args.step,
        shots=args.shots,
        examples=args.examples,
        delimiter=args.delimiter.replace("\\n", "\n"),
        answer_context=args.answer_context,
        seed=args.seed,
        dtype=args.dtype,
        batch_size=args.batch_size,
        allow_random_head=args.allow_random_head,
        join_run=functools.partial(processes.join_run, args),
    )
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
    print(f"step {step:,} on {task}, {describe_dtype(dtype)}")
    for name, value in scores.items():
        print(f"  {name:<28}{value:,}" if isinstance(value, int) else f"  {name:<28}{value:.5g}")
    return 0
