"""Which models a head can be added to, pretrained or new, and which objective trains each head."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from data.examples.text_sets import has_scores, has_vectors
from data.objectives.answer_span import AnswerSpan
from data.objectives.classification import Classification
from data.objectives.contrastive import Contrastive
from data.objectives.multiple_choice import MultipleChoice
from data.objectives.regression import Regression
from data.objectives.similarity import Similarity
from data.objectives.tagging import Tagging
from data.objectives.teacher_vectors import TeacherVectors
from models.config.base import EncoderConfig, TakesHead
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.families import find_family
from pretrain.finetune.finetune_options import FinetuneOptions, name_encoders

if TYPE_CHECKING:
    from data.objectives.objective import Objective
    from pretrain.config import Run
    from pretrain.workdir.trained import Trained

LENGTH, QUESTION_LENGTH = 128, 384  # tokens of a row, and of one with a question and its context


def check_start(args: FinetuneOptions) -> FinetuneOptions:
    """Return the options, of a new model with fresh="all".

    Raises:
      ValueError: options do not belong to --from or to --config.
    """
    if not args.config:
        for name, value in (("--vectors", args.vectors), ("--min-count", args.min_count)):
            if value is not None:
                raise ValueError(
                    f"{name} {value} is for a new model: give --config NAME instead of --from"
                )
        return args
    if args.parameters is not None:
        raise ValueError(
            f"--parameters {args.parameters}: of a checkpoint of --from; a new model has none"
        )
    if args.adapter is not None:
        raise ValueError(f"--adapter {args.adapter} is for the model of --from; a new one has none")
    if args.step is not None:
        raise ValueError(f"--step {args.step} is a checkpoint of --from; a new model has none")
    if args.min_count is not None and args.min_count < 1:
        raise ValueError(f"--min-count {args.min_count}: must be at least 1")
    return dataclasses.replace(args, fresh="all")


def find_encoder_config(pretrained: Trained) -> Any:
    """Return the configuration of the encoder of a pretrained or a fine-tuned run.

    Raises:
      ValueError: if it has none; names the models that have one.
    """
    model = pretrained.run.model.backbone
    if not isinstance(model, TakesHead):
        raise ValueError(
            f"{pretrained.workdir} is a run of a {type(model).__name__}; a head needs one of "
            f"{name_encoders()}"
        )
    return model.as_encoder()


def check_trained(run: Run, fresh: str) -> None:
    """Raise ValueError if random parameters of an encoder would stay as they are."""
    encoder = run.model.backbone
    if fresh == "all" and run.train.lora_rank:
        raise ValueError(
            f"train.lora_rank={run.train.lora_rank}: all parameters of this "
            f"{type(encoder).__name__} are random, and would stay so: give train.lora_rank=none"
        )
    if fresh == "all" and encoder.frozen:
        raise ValueError(
            f"model.encoder.frozen: all parameters of this {type(encoder).__name__} are random, "
            "and would stay so: add model.encoder.frozen=false"
        )


def describe_pair(encoder: EncoderConfig) -> dict[str, Any]:
    """Return the fields of objectives on pairs: the [SEP]s between two texts, and [CLS]'s place."""
    family = find_family(encoder)
    return {"separators": family.num_separators, "cls_position": family.cls_position}


# ---- objectives --------------------------------------------------------------


def make_label_objective(kind: type[Any], model: ClassifierConfig, **columns: Any) -> Any:
    """Return the objective of texts with labels, of class `kind`, for a model."""
    characters = model.characters
    fields: dict[str, Any] = {**describe_pair(model.encoder), **columns}
    return kind(length=min(LENGTH, model.length), characters=characters, **fields)


def make_tag_objective(model: TaggerConfig, columns: tuple[str, ...] = ()) -> Tagging:
    """Return the objective of words with tags for a model."""
    cls_position: Any = find_family(model.encoder).cls_position  # a tagger has no causal decoder
    return Tagging(
        length=min(LENGTH, model.length),
        cls_position=cls_position,
        columns=columns,
        characters=model.characters,
    )


def make_choice_objective(model: ChoiceConfig, **choices: int) -> MultipleChoice:
    """Return the objective of questions with choices for a model."""
    fields: dict[str, Any] = {**describe_pair(model.encoder), **choices}
    return MultipleChoice(length=min(LENGTH, model.length), **fields)


def make_text_objective(
    model: EmbedderConfig, columns: tuple[str, ...] = (), texts: int = 2, width: int = 1
) -> Contrastive | Similarity | TeacherVectors:
    """Return the objective of an embedder: of texts that belong together, of scores or of vectors.

    Args:
      columns: of the files; (): a query and its positive.
      texts: the texts of an example without a score.
      width: components of a teacher's vector.
    """
    fields: dict[str, Any] = {
        "length": min(LENGTH, model.length),
        "cls_position": find_family(model.encoder).cls_position,
    }
    if columns and has_scores(columns):
        return Similarity(columns=columns, **fields)
    if columns and has_vectors(columns):
        return TeacherVectors(columns=columns, width=width, **fields)
    return Contrastive(texts=texts, **fields, columns=columns or Contrastive.columns)


def make_span_objective(model: SpanReaderConfig) -> AnswerSpan:
    """Return the objective of questions about a context for a model."""
    length = min(QUESTION_LENGTH, model.length)
    return AnswerSpan(length=length, **divide_window(length), **describe_pair(model.encoder))


def divide_window(length: int) -> dict[str, int]:
    """Return the tokens of a question, and those that two rows share, for rows of a length."""
    return {"stride": min(128, length // 3), "question": min(64, length // 4)}


def fit_window(run: Run, given: Collection[str]) -> Run:
    """Return a run of questions whose rows of a given length are divided as `divide_window` does.

    given: keys of the command line; the keys of question and stride are left as they are.
    """
    objective = run.data.objective
    if not isinstance(objective, AnswerSpan) or "data.objective.length" not in given:
        return run
    parts = divide_window(objective.length).items()
    changed: Any = {name: size for name, size in parts if f"data.objective.{name}" not in given}
    objective = dataclasses.replace(objective, **changed)
    return dataclasses.replace(run, data=dataclasses.replace(run.data, objective=objective))


def make_head_objective(model: HeadedConfig) -> Objective:
    """Return the objective of a fine-tuned model of which only its configuration is known."""
    if isinstance(model, ClassifierConfig):
        return make_label_objective(Classification if model.labels else Regression, model)
    makers: dict[type[HeadedConfig], Any] = {
        TaggerConfig: make_tag_objective,
        ChoiceConfig: make_choice_objective,
        SpanReaderConfig: make_span_objective,
        EmbedderConfig: make_text_objective,
    }
    return makers[type(model)](model)
