"""GPT-3: models/gpt3.py, and `GPT2LMHeadModel` of transformers if its windows span whole rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from models.config.gpt3 import Gpt3Config
from pretrain.families import gpt, gpt2
from pretrain.families.rules import Index, Rules

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary


def check_window(config: Gpt3Config) -> None:
    """Raise ValueError unless the window is as long as the rows, which makes the model a GPT-2."""
    if config.window < config.length:
        raise ValueError(
            f"a GPT-3 with bands of {config.window} positions (model.window) in rows of "
            f"{config.length} cannot be exported: transformers has no GPT-2 with banded layers. "
            "With a window as long as the rows it is a GPT-2 and can be exported"
        )


def describe_settings(config: Gpt3Config, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json. Raises as `check_window`."""
    check_window(config)
    return gpt2.describe_settings(config, vocabulary)


def make_rules(config: Gpt3Config) -> Rules:
    """Return the rules of GPT-2, whose layers 2 i and 2 i + 1 are the two of our pair i."""
    check_window(config)
    return gpt2.make_gpt2_rules(
        *gpt.map_fused_layer("decoder/layers/dense", f"transformer.h.{Index(0, 2)}"),
        *gpt.map_fused_layer("decoder/layers/banded", f"transformer.h.{Index(1, 2)}"),
    )


FAMILY = dataclasses.replace(
    gpt2.FAMILY,
    name="gpt3",
    config=Gpt3Config,
    title="GPT-3 decoder",
    extends=("gpt", "gpt2"),
    make_import_objective=None,
    hugging_face=dataclasses.replace(
        gpt2.MAP,
        rules=make_rules,
        stacks={"decoder": "num_pairs"},
        settings=describe_settings,
    ),
)
