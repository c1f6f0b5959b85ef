"""Score a checkpoint on every row of a split, or on questions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from data.mixed import split_objective
from pretrain.api.evaluate_options import TASK_BATCH, EvaluateOptions, QuestionOptions
from pretrain.api.loading import find_checkpoint
from pretrain.evaluation.text_store import TextRequest, count_tokens, open_text_store
from pretrain.host.terminal import print_notice
from pretrain.inference import random_head
from pretrain.inference.in_context_tasks import InContextQuestion, read_questions
from pretrain.phases import get_run_at
from pretrain.processes import processes
from pretrain.settings.verb_options import format_flag, takes
from pretrain.training.fits.label_checks import open_labelled_store
from pretrain.workdir.workdir import Workdir


@takes(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> dict[str, float]:
    """Return {name: score} of a checkpoint on every row of a split of a token store, or of a text.

    `model` may also be a loaded checkpoint, which is read from its workdir again.

    Raises:
      ConfigError: the store has another vocabulary or other labels than the run.
      ValueError: options contradict each other, or the head was not trained.
    """
    make_text_request(options)  # its errors come first
    processes.join_run()
    return score_store(options)[2]


def make_text_request(options: EvaluateOptions) -> TextRequest | None:
    """Return how a text is read, None if there is none.

    Raises:
      ValueError: options of a text without one, or an empty path.
    """
    _check_paths(text=options.text)
    reading = {name: vars(options)[name] for name in ("document", "field", "file_format")}
    if options.labelled:
        del reading["file_format"]  # of the labelled examples
    if options.text is not None:
        return TextRequest(options.text, **reading)
    if given := [name for name, value in reading.items() if value is not None]:
        flags = ", ".join("--as" if name == "file_format" else format_flag(name) for name in given)
        raise ValueError(f"these flags need --text FILE: {flags}")
    return None


@takes(QuestionOptions)
def evaluate_questions(options: QuestionOptions) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return {name: score} of questions, and the record of each one with its scores.

    The answers are scored by log-likelihood (docs/in_context.md). `model` may also be a loaded
    checkpoint.

    Raises:
      ValueError: for bad options or questions, before any parameters are read.
    """
    return score_questions(options, processes.join_run)


def score_questions(
    options: QuestionOptions, join_run: Callable[[], None]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Score as `evaluate_questions` does; `join_run` joins the other processes, if any."""
    batch_size = TASK_BATCH if options.batch_size is None else options.batch_size
    _check_counts(shots=options.shots, seed=options.seed, batch_size=batch_size)
    _check_paths(task=options.task, examples=options.examples)
    questions, pool = _read_task(options.task, options.examples)
    join_run()
    import jax

    from pretrain.inference.in_context import evaluate_task
    from pretrain.workdir.trained import open_placed

    trained, mesh = open_placed(*find_checkpoint(options.model, options.step, options.parameters))
    dtype = options.dtype or trained.run.train.compute_dtype
    random_head.check_head(trained, "evaluate", options.allow_random_head)
    with jax.set_mesh(mesh):
        scores, answers = evaluate_task(
            trained.with_compute_dtype(dtype),
            mesh,
            questions,
            pool=pool,
            shots=options.shots,
            delimiter=options.delimiter,
            answer_context=options.answer_context,
            seed=options.seed,
            batch_size=batch_size,
        )
    records = [
        question.record | answer for question, answer in zip(questions, answers, strict=True)
    ]
    return {"step": trained.step, "task": options.task, "dtype": dtype} | scores, records


def _check_counts(**values: int) -> None:
    """Raise ValueError for a negative number, or for batches of no row."""
    for name, value in values.items():
        if value < (least := int(name == "batch_size")):
            raise ValueError(f"--{name.replace('_', '-')} {value}: must be at least {least}")


def _check_paths(**paths: Any) -> None:
    """Raise ValueError for an empty path, which is not one that is left out."""
    for name, path in paths.items():
        if path is not None and not os.fspath(path):
            raise ValueError(
                f"--{name} is given without a path, as by a variable of the shell that is not set"
            )


def _read_task(
    task: Any, examples: Any
) -> tuple[Sequence[InContextQuestion], Sequence[InContextQuestion]]:
    """Return the questions of a file, and those from which examples are drawn.

    Raises:
      ValueError: both have different forms.
    """
    questions = read_questions(task)
    pool = read_questions(examples) if examples else questions
    if pool[0].is_open != questions[0].is_open:
        raise ValueError(f"{examples} and {task} have questions of different forms")
    return questions, pool


def score_store(options: EvaluateOptions) -> tuple[int, Any, dict[str, float]]:
    """Return the step, the store, the file or the text, and {name: score} of `evaluate`."""
    text = make_text_request(options)
    folder, step, parameters = find_checkpoint(options.model, options.step, options.parameters)
    workdir, store = Workdir.open(folder), options.store
    labelled, split = options.labelled, options.split
    _check_paths(labelled=labelled, store=store)
    with contextlib.ExitStack() as stack:
        if text:
            _check_text_alone(store=store, labelled=labelled, split=split != "heldout")
            store, split = stack.enter_context(open_text_store(workdir, text)), "train"
        if labelled:
            if store or split != "heldout":
                raise ValueError("--labelled cannot be combined with --store or --split")
            store = stack.enter_context(open_labelled_store(workdir, labelled, options.file_format))
        step, path, scores = evaluate_checkpoint(
            workdir,
            step,
            store,
            split,
            options.allow_random_head,
            options.dtype,
            options.batch_size,
            parameters,
        )
        if text:
            path, scores = text.path, scores | {"tokens": count_tokens(path, split)}
    return step, labelled or path, scores


def _check_text_alone(**others: Any) -> None:
    """Raise ValueError for an option that names other data than --text does."""
    if given := [f"--{name}" for name, value in others.items() if value]:
        raise ValueError(f"--text cannot be combined with {given[0]}")


def evaluate_checkpoint(
    workdir: str | os.PathLike[str],
    step: int | None = None,
    store: str | os.PathLike[str] | None = None,
    split: str = "heldout",
    allow_random_head: bool = False,
    dtype: str | None = None,
    batch_size: int | None = None,
    parameters: str | None = None,
) -> tuple[int, Any, dict[str, float]]:
    """Return the step, the path of the store and {name: score} of a checkpoint on one split of it.

    Args:
      allow_random_head, parameters: as of `random_head.check_head` and `open_trained`.
      dtype: dtype of the computation; None: the run's `train.compute_dtype`.
      batch_size: rows computed at once; None: the run's `data.batch_size`.

    Raises ConfigError if the store has another vocabulary or other labels than the run, and
    ValueError as `random_head.check_head`.
    """
    import jax

    from data.mixed_stream import open_stream
    from models import build
    from pretrain.evaluation.text_scores import score_text
    from pretrain.inference.tasks.predict_answers import resolve_threshold
    from pretrain.kernels.model_hooks import make_model_hooks
    from pretrain.mesh.sharding import make_mesh, make_param_sharding
    from pretrain.training import truncation_report
    from pretrain.training.evaluation import make_evaluator
    from pretrain.training.fits.fitting_store import open_fitting_store
    from pretrain.training.losses import make_loss
    from pretrain.workdir.trained import open_trained

    workdir = Workdir.open(workdir)
    run = get_run_at(workdir.run, max(workdir.list_steps(), default=0) if step is None else step)
    opened = open_fitting_store(os.fspath(store or run.data.store), workdir)
    if split == "heldout":
        check_own_heldout(opened, store, workdir)
    mesh = make_mesh(run.mesh)
    data = choose_data(run, store, batch_size, mesh)
    stream = open_stream(opened, data, split=split, seed=run.train.seed, for_evaluation=True)
    place = functools.partial(make_param_sharding, mesh=mesh)
    trained = open_trained(workdir, step, parameters, print_notice, place)
    sentences = needs_sentence_heads(run.data.objective)
    random_head.check_head(trained, "evaluate", allow_random_head, sentence_heads=sentences)
    run, step = resolve_threshold(trained), trained.step
    for line in truncation_report.describe_truncation(stream):
        print_notice(line)
    evaluator = make_evaluator(
        build(run.model, **make_model_hooks(mesh, [])),
        make_loss(run.data.objective),
        mesh,
        compute_dtype=dtype or run.train.compute_dtype,
        metrics=run.evaluate.metrics,
        objective=run.data.objective,
    )
    with jax.set_mesh(mesh):
        scores = evaluator(trained.params, stream)
    return step, opened.path, scores | score_text(stream, split, opened.manifest, scores)


def check_own_heldout(opened: Any, store: Any, workdir: Workdir) -> None:
    """Check by `check_heldout` the store of the run, by whatever name it is given."""
    from pretrain.workdir.source_record import check_heldout

    is_own = not store or os.path.realpath(store) == os.path.realpath(workdir.run.data.store)
    if is_own and (line := check_heldout(opened, workdir)):
        print_notice(line)


def choose_data(run: Any, store: Any, batch_size: int | None, mesh: Any) -> Any:
    """Return the data section of an evaluation: of the run, or another store or batch size."""
    from pretrain.training.program import check_rows

    data = dataclasses.replace(run.data, rates=()) if store else run.data
    if batch_size is not None:
        check_rows(data.objective, batch_size, mesh)
    return dataclasses.replace(data, batch_size=batch_size or data.batch_size)


def needs_sentence_heads(objective: Any) -> bool:
    """Return whether an objective, or a part of a mixed one, scores more than masked tokens."""
    return any(part.name != "masked_lm" for part in split_objective(objective).values())
