"""The lines of Python of a model card, which load an export and use it."""

from collections.abc import Sequence
from typing import Any, cast

from data.examples.text_pairs import format_source
from data.images.encoding import ImageEncoding
from data.objectives.span_corruption import SpanCorruption
from data.objectives.text2text import Text2Text
from data.vocabulary.base import Vocabulary
from models.config.base import Config
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from pretrain.config import Run
from pretrain.convert import find_model_family
from pretrain.convert.head_maps import HEAD_CONVERSIONS
from pretrain.families import Family
from pretrain.publish.cards import image_card
from pretrain.publish.cards.card_texts import (
    HEAD_TASKS,
    USES,
    format_literal,
    name_auto_class,
)


def find_auto_class(config: Config) -> str:
    """Return the class of transformers that opens the folder of a model."""
    if isinstance(config, HeadedConfig):
        return f"AutoModel{HEAD_CONVERSIONS[type(config)].suffix.removeprefix('Model')}"
    return name_auto_class(find_model_family(config).require_hugging_face().architecture)


def find_use(run: Run) -> tuple[tuple[str, Sequence[str]], dict[str, str]]:
    """Return the entry of USES for a run, and the values of its placeholders."""
    objective, prompt = run.data.objective, ""
    family = find_model_family(run.model)
    key = HEAD_TASKS.get(type(run.model)) or family.use or family.task
    if isinstance(objective, Text2Text):
        prompt = make_sample_input((*objective.tasks, objective)[0])
    return USES[objective.name if prompt else key], {"prompt": prompt}


def make_sample_input(objective: Text2Text) -> str:
    """Return a sample input of a text-to-text model."""
    texts = (
        ("Who sleeps?", "The fox sleeps.")
        if objective.questions
        else ("It is a text.", *["This is another."] * len(objective.columns))
    )
    return format_source(objective, texts[: len(objective.columns) - 1])


def make_loading_lines(run: Run, encoding: Vocabulary | ImageEncoding, folder: str) -> list[str]:
    """Return lines of Python that load an export and use it."""
    if isinstance(encoding, ImageEncoding):
        auto_class, config = find_auto_class(run.model), cast(Any, run.model)
        return image_card.list_loading_lines(config, auto_class, format_literal(folder))
    (_, lines), values = find_use(run)
    if isinstance(run.model, EmbedderConfig):
        opened = f'model = SentenceTransformer("{format_literal(folder)}")'
        return ["from sentence_transformers import SentenceTransformer", opened, *lines]
    auto_class = find_auto_class(run.model)
    values = {
        "folder": folder,
        "gap": find_gap_token(find_model_family(run.model), encoding),
        **values,
    }
    values = {name: format_literal(value) for name, value in values.items()}
    opened = f'"{values["folder"]}"'
    if find_model_family(run.model).require_hugging_face().code:
        opened += ", trust_remote_code=True"
    use = [line.replace('"{folder}"', "{opened}").format(**values, opened=opened) for line in lines]
    imported = f"{auto_class}, AutoTokenizer"
    if use[-1].startswith("pipeline"):
        imported += ", pipeline"
    return [
        f"from transformers import {imported}",
        f"model = {auto_class}.from_pretrained({opened})",
        f"tokenizer = AutoTokenizer.from_pretrained({opened})",
        *use,
    ]


def find_gap_token(family: Family, vocabulary: Vocabulary) -> str:
    """Return the token that stands for a gap, or another special token if the model has none."""
    if SpanCorruption in family.objectives:
        return "<extra_id_0>"
    ids = (i for i in (vocabulary.mask, vocabulary.eos, vocabulary.unk) if i is not None)
    return vocabulary.pieces[next(ids)]
