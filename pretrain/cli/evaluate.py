"""evaluate --workdir W: score a checkpoint on every row of the held-out split.

With --task FILE it scores answers to questions by log-likelihood
(pretrain/inference/in_context_tasks.py).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import sys
from typing import Any

from data.mixed import split_objective
from pretrain.distributed import processes
from pretrain.evaluation.label_checks import open_labelled_store
from pretrain.inference import random_head
from pretrain.inference.in_context_tasks import read_questions
from pretrain.inference.record_files import open_line_writer

TASK_BATCH = 32  # choices


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


def run(args: argparse.Namespace) -> int:
    """Score a checkpoint and print the scores; return 0."""
    if args.task:
        args.batch_size = TASK_BATCH if args.batch_size is None else args.batch_size
        return run_task(args)
    if args.examples or args.output or args.shots or args.answer_context:
        raise ValueError("--shots, --examples, --answer-context and --output need --task FILE")
    processes.join_run(args)
    import jax

    dtype = choose_dtype(args)
    with contextlib.ExitStack() as stack:
        store = args.store
        if args.labelled:
            if args.store or args.split != "heldout":
                raise ValueError("--labelled cannot be combined with --store or --split")
            store = stack.enter_context(open_labelled_store(args.workdir, args.labelled))
        step, path, scores = evaluate_checkpoint(
            args.workdir,
            step=args.step,
            store=store,
            split=args.split,
            allow_random_head=args.allow_random_head,
            dtype=dtype,
            batch_size=args.batch_size,
        )
    store = args.labelled or path
    if jax.process_index():
        return 0  # all processes have the same scores; the first prints them
    if args.json:
        facts = {"step": step, "store": str(store), "split": args.split, "dtype": dtype}
        print(json.dumps({**facts, **scores}))
        return 0
    print(
        f"step {step:,} on the {args.split} split of {store}: {scores['rows']:,} rows, "
        f"{scores['targets']:,.0f} targets, {describe_dtype(dtype)}"
    )
    for name, value in scores.items():
        if name not in ("rows", "targets"):
            print(f"  {name:<27} {value:.5g}")
    return 0


def choose_dtype(args: argparse.Namespace) -> str:
    """Return the dtype of the computation: that of --dtype, else the one the run trains in.

    So the scores are those of the run's own evaluations, which early stopping and
    `checkpoint.best` compare.
    """
    from pretrain.workdir.checkpoints import read_run

    return args.dtype or read_run(args.workdir).train.compute_dtype


def describe_dtype(dtype: str) -> str:
    """Return the end of a line that names the dtype, and how to choose the other."""
    hint = " (as predict and exported models compute: --dtype float32)"
    return f"computed in {dtype}{'' if dtype == 'float32' else hint}"


def evaluate_checkpoint(
    workdir: str,
    step: int | None = None,
    store: str | None = None,
    split: str = "heldout",
    allow_random_head: bool = False,
    dtype: str | None = None,
    batch_size: int | None = None,
) -> tuple[int, Any, dict[str, float]]:
    """Return the step, the path of the store and {name: score} of a checkpoint on one split of it.

    Args:
      allow_random_head: score a head that was not trained, see `random_head.check_head`.
      dtype: dtype of the computation; None: the run's `train.compute_dtype`.
      batch_size: rows computed at once; None: the run's `data.batch_size`.

    Raises:
      ConfigError: if the store has another vocabulary or other labels than the run.
      ValueError: as `random_head.check_head`.
    """
    import jax

    from data.mixed_stream import open_stream
    from models import build
    from pretrain.distributed.model_hooks import make_model_hooks
    from pretrain.distributed.sharding import make_mesh, make_param_sharding
    from pretrain.evaluation.fitting_store import open_fitting_store
    from pretrain.finetune.qa_task import resolve_threshold
    from pretrain.inference.trained import open_trained
    from pretrain.training import truncation_report
    from pretrain.training.evaluation import make_evaluator
    from pretrain.training.losses import make_loss
    from pretrain.workdir.checkpoints import read_run

    run = read_run(workdir)
    opened = open_fitting_store(store or run.data.store, workdir, run)
    mesh = make_mesh(run.mesh)
    data = choose_data(run, store, batch_size, mesh)
    stream = open_stream(opened, data, split=split, seed=run.train.seed, for_evaluation=True)
    report = functools.partial(print, file=sys.stderr)
    place = functools.partial(make_param_sharding, mesh=mesh)
    trained = open_trained(workdir, step, report, place)
    sentences = needs_sentence_heads(run.data.objective)
    random_head.check_head(trained, "evaluate", allow_random_head, sentence_heads=sentences)
    run, step = resolve_threshold(trained), trained.step
    for line in truncation_report.describe_truncation(stream):
        report(line)
    model = build(run.model, **make_model_hooks(mesh, []))
    evaluator = make_evaluator(
        model,
        make_loss(run.data.objective),
        mesh,
        compute_dtype=dtype or run.train.compute_dtype,
        metrics=run.evaluate.metrics,
        objective=run.data.objective,
    )
    with jax.set_mesh(mesh):
        return step, opened.path, evaluator(trained.params, stream)


def choose_data(run: Any, store: str | None, batch_size: int | None, mesh: Any) -> Any:
    """Return the data section of an evaluation: of the run, or another store or batch size."""
    from pretrain.training.program import check_rows

    data = dataclasses.replace(run.data, rates=()) if store else run.data
    if batch_size is not None:
        check_rows(data.objective, batch_size, mesh)
    return dataclasses.replace(data, batch_size=batch_size or data.batch_size)


def needs_sentence_heads(objective: Any) -> bool:
    """Return whether an objective, or a part of a mixed one, scores more than masked tokens."""
    return any(each.name != "masked_lm" for each in split_objective(objective).values())


def run_task(args: argparse.Namespace) -> int:
    """Score answers to questions by log-likelihood; return 0.

    Raises:
      ValueError: for bad arguments or questions, before any parameters are read.
    """
    if args.store:
        raise ValueError("give --task or --store, not both")
    for name, least in (("shots", 0), ("batch_size", 1), ("seed", 0)):
        if (value := getattr(args, name)) < least:
            raise ValueError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
    questions = read_questions(args.task)
    pool = read_questions(args.examples) if args.examples else questions
    if pool[0].is_open != questions[0].is_open:
        raise ValueError(
            f"{args.examples}: its questions have a different form from those of {args.task}"
        )
    processes.join_run(args)
    import jax

    from pretrain.distributed.sharding import make_mesh, make_param_sharding
    from pretrain.inference.in_context import evaluate_task
    from pretrain.inference.trained import open_trained
    from pretrain.workdir.checkpoints import read_run

    mesh = make_mesh(read_run(args.workdir).mesh)
    trained = open_trained(
        args.workdir,
        args.step,
        report=lambda text: print(text, file=sys.stderr),
        choose_sharding=lambda path, shape: make_param_sharding(path, shape, mesh),
    )
    random_head.check_head(trained, "evaluate", args.allow_random_head)
    trained = trained.with_compute_dtype(dtype := choose_dtype(args))
    with jax.set_mesh(mesh):
        scores, answers = evaluate_task(
            trained,
            mesh,
            questions,
            pool=pool,
            shots=args.shots,
            delimiter=args.delimiter.replace("\\n", "\n"),
            answer_context=args.answer_context,
            seed=args.seed,
            batch_size=args.batch_size,
        )
    if jax.process_index():
        return 0
    if args.output:
        with open_line_writer(args.output) as write:
            for question, answer in zip(questions, answers, strict=True):
                write(json.dumps(question.record | answer, ensure_ascii=False))
    if args.json:
        facts = {"step": trained.step, "task": args.task, "dtype": dtype}
        print(json.dumps({**facts, **scores}))
        return 0
    print(f"step {trained.step:,} on {args.task}, {describe_dtype(dtype)}")
    for name, value in scores.items():
        print(f"  {name:<28}{value:,}" if isinstance(value, int) else f"  {name:<28}{value:.5g}")
    return 0
