"""GPT-3: models/gpt3.py, and `GPT2LMHeadModel` of Hugging Face transformers where its bands hold the whole row."""

import dataclasses

from models.config.gpt3 import Gpt3Config
from pretrain.families import gpt, gpt2
from pretrain.families.rules import Index


def check(config, vocabulary=None):
    """Raise ValueError unless each band is as long as the rows: then, and only then, it is a GPT-2."""
    if config.window < config.length:
        raise ValueError(
            f"a GPT-3 with bands of {config.window} positions (model.window) in rows of {config.length} cannot be exported: transformers "
            "has no model with GPT-2's layers, some of them banded. A window as long as the rows is a GPT-2 and can be"
        )


def rules(config):
    """The rules of GPT-2, whose layers 2 i and 2 i + 1 are the dense and the banded one of pair i."""
    check(config)
    return gpt2.rules(
        *gpt.layer("decoder/layers/dense", f"transformer.h.{Index(0, 2)}"),
        *gpt.layer("decoder/layers/banded", f"transformer.h.{Index(1, 2)}"),
    )


FAMILY = dataclasses.replace(
    gpt2.FAMILY,
    name="gpt3",
    config=Gpt3Config,
    extends=("gpt", "gpt2"),
    hugging_face=dataclasses.replace(
        gpt2.MAP, rules=rules, stacks={"decoder": "pairs"}, check=check, imported=False
    ),
)
