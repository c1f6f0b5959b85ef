"""The options of `evaluate` and `evaluate_questions`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from data.examples.file_formats import FORMATS
from pretrain.api.preparing import document_option, field_option, format_option
from pretrain.inference.random_head import HeadOptions, parameters_option, step_option
from pretrain.settings.arguments import PathText, format_optional
from pretrain.settings.verb_options import Group, option

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

TASK_BATCH = 32  # choices
READING = Group("how --text (docs/data.md) and --labelled are read")
QUESTIONS = Group("questions, scored by log-likelihood (docs/in_context.md)")


class ScoreOptions(HeadOptions):
    """The options of every evaluation."""

    dtype: str | None = option(
        "dtype of the computation (default: train.compute_dtype of the run, as in its own "
        "evaluations; predict and exported models compute in float32)",
        default=None,
        choices=("float32", "bfloat16"),
    )
    batch_size: int | None = option(
        "rows per batch, or choices of --task (default: data.batch_size of the run; for "
        f"--task {TASK_BATCH})",
        default=None,
        metavar="B",
    )


class EvaluateOptions(ScoreOptions):
    """The options of `evaluate`."""

    model: PathText | Trained = option("workdir of a run", "--workdir", kw_only=False)
    step: int | None = step_option()
    parameters: str | None = parameters_option()
    store: str | None = option(
        "token store to use instead of the run's; it must have the same vocabulary",
        default=None,
        converter=format_optional,
    )
    labelled: str | None = option(
        "labelled examples to score a fine-tuned model on, with the columns it was fine-tuned on",
        default=None,
        converter=format_optional,
        metavar="FILE",
    )
    text: str | None = option(
        'plain text to score all of: a file, a folder or a "pattern", as `prepare` reads '
        "them; no store is kept",
        default=None,
        converter=format_optional,
        metavar="FILE",
    )
    split: str = option(
        "split of the store (default: %(default)s)", default="heldout", choices=("heldout", "train")
    )
    document: str | None = document_option(None, READING)
    file_format: str | None = format_option(READING, FORMATS)
    field: str | None = field_option(READING)


class QuestionOptions(ScoreOptions):
    """The options of `evaluate_questions`."""

    model: PathText | Trained = option("workdir of a run", "--workdir", kw_only=False)
    step: int | None = step_option()
    parameters: str | None = parameters_option()
    task: str = option(
        'JSON lines of {"context", "choices", "answer"}, {"context", "answer"} or {"text"}',
        kw_only=False,
        group=QUESTIONS,
        converter=os.fspath,
        required=False,
        metavar="FILE",
    )
    shots: int = option(
        "number of answered examples before each question (default: %(default)s)",
        default=0,
        group=QUESTIONS,
        metavar="K",
    )
    examples: str | None = option(
        "file to draw these examples from (default: the other questions of --task)",
        default=None,
        group=QUESTIONS,
        converter=format_optional,
        metavar="FILE",
    )
    delimiter: str = option(
        "text between the examples; \\n is a newline (default: \\n\\n)",
        default="\n\n",
        group=QUESTIONS,
        type=lambda text: text.replace("\\n", "\n"),
    )
    answer_context: str | None = option(
        'normalize each choice by its likelihood after this text alone, e.g. "Answer:"',
        default=None,
        group=QUESTIONS,
        metavar="TEXT",
    )
    seed: int = option(
        "seed of the drawn examples (default: %(default)s)", default=0, group=QUESTIONS
    )
