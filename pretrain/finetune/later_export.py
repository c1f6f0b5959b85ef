"""Before a fine-tuning begins: whether its model can be exported afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from models.config.heads import HeadedConfig
from pretrain.convert import find_model_type, fine_tuned
from pretrain.convert.read_write import find_converter
from pretrain.convert.tokenizer import build_tokenizer
from pretrain.families.family_record import JAX_FOLDER

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary
    from pretrain.config import Run


def describe_refusal(run: Run, vocabulary: Vocabulary) -> str | None:
    """Return why the model of a run cannot be exported for `transformers`, or None if it can.

    Nothing is computed: the maps of names are compared with the names of the parameters.
    """
    try:
        check_export(run.model, vocabulary, list_paths(run))
    except ValueError as error:
        text = str(error)
        return text if JAX_FOLDER in text else f"{text}. {JAX_FOLDER}"
    return None


def check_export(config: Any, vocabulary: Vocabulary, paths: Iterable[str]) -> None:
    """Raise ValueError if `export` would refuse a model, whatever the values of its parameters.

    paths: of its parameters.
    """
    find_converter(config).to_hf_config(config, vocabulary)
    if isinstance(config, HeadedConfig):
        fine_tuned.check_map(config, paths)
    build_tokenizer(vocabulary, find_model_type(config), isinstance(config, HeadedConfig))


def list_paths(run: Run) -> list[str]:
    """Return the paths of the parameters of a run."""
    from functools import partial

    import jax

    from models import build
    from models.layers.layer_layout import flatten_params
    from pretrain.training.state import init_params

    init = partial(init_params, build(run.model), run.data.objective, run.train.seed)
    return list(flatten_params(jax.eval_shape(init)))
