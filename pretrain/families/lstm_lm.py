"""LSTM language models: models/lstm_lm.py. transformers opens them with a file of the export.

The file is remote_code/lstm_lm.py, whose names are below.
"""

from typing import Any

import numpy as np

from data.objectives.causal_lm import CausalLm
from models.config.lstm_lm import LstmLmConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Key
from pretrain.families.remote_code import describe_code, name_code
from pretrain.families.rules import KERNEL, SAME, Rules
from pretrain.families.tensor_steps import Tensors

NAME = "lstm_lm"
OURS, THEIRS = "decoder/layers/lstm", "layers.{i}"
RULES = (
    ("token_embedding/embedding", "token_embedding.weight", SAME),
    (f"{OURS}/input/kernel", f"{THEIRS}.weight_ih_l0", KERNEL),
    (f"{OURS}/input/bias", f"{THEIRS}.bias_ih_l0", SAME),
    (f"{OURS}/recurrent/kernel", f"{THEIRS}.weight_hh_l0", KERNEL),
    ("lm_head/bias", "head_bias", SAME),
)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 10_000),
    Key("width", "hidden_size", 650),
    Key("depth", "num_hidden_layers", 2),
    Key("dropout", "hidden_dropout_prob", 0.5),
    Key("tied", "tie_word_embeddings", False),
    Key("forget_bias", "forget_bias", 0.0),
)


def make_rules(config: LstmLmConfig) -> Rules:
    """Return the rules of a configuration."""
    return RULES if config.tied else (*RULES, ("lm_head/kernel", "head.weight", KERNEL))


def list_second_biases(config: LstmLmConfig) -> dict[str, np.ndarray]:
    """Return {name: second bias of a layer} of a `torch.nn.LSTM`; ours has one, and a constant."""
    bias = np.zeros(4 * config.width, np.float32)
    bias[config.width : 2 * config.width] = config.forget_bias
    return {f"layers.{i}.bias_hh_l0": bias for i in range(config.depth)}


def add_second_biases(config: LstmLmConfig, tensors: Tensors) -> Tensors:
    """Write the second biases."""
    return {**tensors, **list_second_biases(config)}


def join_biases(config: Any, tensors: Tensors) -> Tensors:
    """Add what the second biases have beyond the constant to the first ones."""
    joined = dict(tensors)
    for name, constant in list_second_biases(config).items():
        if name in joined:
            second = np.asarray(joined.pop(name), np.float32) - constant
            first = name.replace("_hh_", "_ih_")
            joined[first] = np.asarray(joined[first], np.float32) + second
    return joined


FAMILY = Family(
    name=NAME,
    config=LstmLmConfig,
    objectives=(CausalLm,),
    make_import_objective=lambda config: CausalLm(length=128),
    predictor="text_generation:ContinuationWriter",
    title="LSTM language model",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    hugging_face=HuggingFaceMap(
        model_type=NAME,
        architecture="LstmLmForCausalLM",
        rules=make_rules,
        stacks={"decoder": "depth"},
        body=("token_embedding.", "layers."),
        heads=("head.", "head_bias"),
        keys=KEYS,
        before_import=(join_biases,),
        after_export=(add_second_biases,),
        settings=describe_code(
            NAME,
            AutoConfig="LstmLmConfig",
            AutoModel="LstmLmModel",
            AutoModelForCausalLM="LstmLmForCausalLM",
        ),
        code=name_code(NAME),
    ),
)
