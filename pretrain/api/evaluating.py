"""Score a checkpoint on every row of a split, or on questions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from data.mixed import split_objective
from pretrain.api.arguments import format_path
from pretrain.evaluation.text_store import TextRequest, count_tokens, open_text_store
from pretrain.host.terminal import print_notice
from pretrain.inference import random_head
from pretrain.inference.in_context_tasks import InContextQuestion, read_questions
from pretrain.processes import processes
from pretrain.training.fits.label_checks import open_labelled_store

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

TASK_BATCH = 32  # choices
TEXT_FLAGS = {"document": "--document", "field": "--field", "file_format": "--as"}


def evaluate(
    model: str | os.PathLike[str] | Trained,
    *,
    step: int | None = None,
    store: str | os.PathLike[str] | None = None,
    labelled: str | os.PathLike[str] | None = None,
    text: str | os.PathLike[str] | None = None,
    document: str | None = None,
    field: str | None = None,
    file_format: str | None = None,
    split: str = "heldout",
    dtype: str | None = None,
    batch_size: int | None = None,
    allow_random_head: bool = False,
) -> dict[str, float]:
    """Return {name: score} of a checkpoint on every row of a split of a token store, or of a text.

    Args:
      model: a workdir or a loaded checkpoint, which is read from its workdir again.
      step: the step of the checkpoint of a workdir; None: the newest sound one.
      store: a token store with the same vocabulary; None: the run's.
      labelled: a file of labelled examples, for a fine-tuned model; instead of `store`.
      text: a file, folder or "pattern" of plain text, all of which is scored; instead of `store`.
      document, field: how `text` is read, as `prepare` reads it.
      file_format: format of `text` or `labelled`, whatever its name, such as "conll".
      split: "heldout" or "train".
      dtype: "float32" or "bfloat16"; None: as the run computes.
      batch_size: rows computed at once; None: the run's.
      allow_random_head: score a head that was not trained.

    Raises:
      ConfigError: the store has another vocabulary or other labels than the run.
      ValueError: options contradict each other, or the head was not trained.
    """
    workdir, step = find_checkpoint(model, step)
    reading = {"document": document, "field": field, "file_format": file_format}
    labelled_format = reading.pop("file_format") if labelled else None
    request = make_text_request(text, **reading)
    processes.join_run()
    return score_store(
        workdir,
        step,
        store,
        labelled,
        split,
        allow_random_head,
        dtype,
        batch_size,
        request,
        labelled_format,
    )[2]


def make_text_request(text: Any, **options: str | None) -> TextRequest | None:
    """Return how a text is read, None if there is none.

    Raises:
      ValueError: options of a text without one, or an empty path.
    """
    if text is not None:
        _check_paths(text=text)
        return TextRequest(format_path(text), **options)
    if given := [TEXT_FLAGS[name] for name, value in options.items() if value is not None]:
        raise ValueError(f"these flags need --text FILE: {', '.join(given)}")
    return None


def evaluate_questions(
    model: str | os.PathLike[str] | Trained,
    task: str | os.PathLike[str],
    *,
    step: int | None = None,
    shots: int = 0,
    examples: str | os.PathLike[str] | None = None,
    delimiter: str = "\n\n",
    answer_context: str | None = None,
    seed: int = 0,
    dtype: str | None = None,
    batch_size: int = TASK_BATCH,
    allow_random_head: bool = False,
    join_run: Callable[[], None] = processes.join_run,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return {name: score} of questions, and the record of each one with its scores.

    The answers are scored by log-likelihood (docs/in_context.md).

    Args:
      model: a workdir or a loaded checkpoint.
      task: a file of questions, see `pretrain.inference.in_context_tasks`.
      step: the step of the checkpoint of a workdir; None: the newest sound one.
      shots: number of answered examples before each question.
      examples, delimiter: the file that these are drawn from, and the text between them.
      answer_context: normalize each choice by its likelihood after this text alone.
      seed: of the drawn examples.
      dtype, allow_random_head: as of `evaluate`.
      batch_size: choices computed at once.
      join_run: joins the other processes of the run, if any.

    Raises:
      ValueError: for bad options or questions, before any parameters are read.
    """
    _check_counts(shots=shots, seed=seed, batch_size=batch_size)
    _check_paths(task=task, examples=examples)
    questions, pool = _read_task(task, examples)
    join_run()
    import jax

    from pretrain.inference.in_context import evaluate_task
    from pretrain.workdir.trained import open_placed

    trained, mesh = open_placed(*find_checkpoint(model, step))
    dtype = dtype or trained.run.train.compute_dtype
    random_head.check_head(trained, "evaluate", allow_random_head)
    with jax.set_mesh(mesh):
        scores, answers = evaluate_task(
            trained.with_compute_dtype(dtype),
            mesh,
            questions,
            pool=pool,
            shots=shots,
            delimiter=delimiter,
            answer_context=answer_context,
            seed=seed,
            batch_size=batch_size,
        )
    records = [each.record | answer for each, answer in zip(questions, answers, strict=True)]
    return {"step": trained.step, "task": os.fspath(task), "dtype": dtype} | scores, records


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


def find_checkpoint(
    model: str | os.PathLike[str] | Trained, step: int | None
) -> tuple[str, int | None]:
    """Return the workdir and the step of a checkpoint, which is read from the workdir again.

    Raises:
      ValueError: a loaded checkpoint is of another step.
    """
    if isinstance(model, (str, os.PathLike)):
        return format_path(model), step
    if step not in (None, model.step):
        raise ValueError(f"step {step}: the loaded checkpoint is of step {model.step}")
    return os.fspath(model.workdir), model.step


def score_store(
    workdir: str,
    step: int | None,
    store: str | os.PathLike[str] | None,
    labelled: str | os.PathLike[str] | None,
    split: str,
    allow_random_head: bool,
    dtype: str | None,
    batch_size: int | None,
    text: TextRequest | None = None,
    labelled_format: str | None = None,
) -> tuple[int, Any, dict[str, float]]:
    """Return the step, the store, the file or the text, and {name: score} of `evaluate`."""
    _check_paths(labelled=labelled, store=store)
    with contextlib.ExitStack() as stack:
        if text:
            _check_text_alone(store=store, labelled=labelled, split=split != "heldout")
            store, split = stack.enter_context(open_text_store(workdir, text)), "train"
        if labelled:
            if store or split != "heldout":
                raise ValueError("--labelled cannot be combined with --store or --split")
            store = stack.enter_context(
                open_labelled_store(workdir, os.fspath(labelled), labelled_format)
            )
        step, path, scores = evaluate_checkpoint(
            workdir, step, store, split, allow_random_head, dtype, batch_size
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
    from pretrain.evaluation.text_scores import score_text
    from pretrain.inference.tasks.predict_answers import resolve_threshold
    from pretrain.kernels.model_hooks import make_model_hooks
    from pretrain.mesh.sharding import make_mesh, make_param_sharding
    from pretrain.training import truncation_report
    from pretrain.training.evaluation import make_evaluator
    from pretrain.training.fits.fitting_store import open_fitting_store
    from pretrain.training.losses import make_loss
    from pretrain.workdir.checkpoints import read_run
    from pretrain.workdir.trained import open_trained

    run = read_run(workdir)
    opened = open_fitting_store(os.fspath(store or run.data.store), os.fspath(workdir), run)
    if split == "heldout":
        check_own_heldout(opened, store, run, workdir)
    mesh = make_mesh(run.mesh)
    data = choose_data(run, store, batch_size, mesh)
    stream = open_stream(opened, data, split=split, seed=run.train.seed, for_evaluation=True)
    place = functools.partial(make_param_sharding, mesh=mesh)
    trained = open_trained(workdir, step, print_notice, place)
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


def check_own_heldout(opened: Any, store: Any, run: Any, workdir: Any) -> None:
    """Check by `check_heldout` the store of the run, by whatever name it is given."""
    from pretrain.workdir.source_record import check_heldout

    is_own = not store or os.path.realpath(store) == os.path.realpath(run.data.store)
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
    return any(each.name != "masked_lm" for each in split_objective(objective).values())
