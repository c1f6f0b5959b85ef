"""GPT: models/gpt.py, and `OpenAIGPTLMHeadModel` of Hugging Face transformers.

GPT-2 has the same names of layers, and the same `c_attn`, the one matrix of queries, keys and
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data.objectives.causal_lm import CausalLm
from models.config.gpt import GptConfig
from pretrain.families.family_record import Family, HeadClass, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import Fixed, Key
from pretrain.families.rules import (
    JOINED,
    SAME,
    JoinLayout,
    Layout,
    Rules,
    map_norm,
    map_scores,
)
from pretrain.families.tensor_steps import add_prefix, tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

# Their kernels are [in, out], as ours are.
STRAIGHT = Layout(
    theirs=lambda a: a.reshape(a.shape[0], -1), ours=lambda a, shape: a.reshape(shape)
)
STRAIGHT_OUT = Layout(
    theirs=lambda a: a.reshape(-1, a.shape[-1]), ours=lambda a, shape: a.reshape(shape)
)
FUSED = ("query", "key", "value")  # in c_attn, along its last axis, in this order


def map_straight_linear(ours: str, theirs: str, layout: Layout = STRAIGHT) -> Rules:
    """Return the two rules of a linear map with a bias."""
    return (f"{ours}/kernel", f"{theirs}.weight", layout), (
        f"{ours}/bias",
        f"{theirs}.bias",
        JOINED,
    )


def map_fused_layer(ours: str, theirs: str) -> Rules:
    """Return the rules of a layer, with queries, keys and values in one matrix and one bias."""
    attention, fused = f"{ours}/attention", f"{theirs}.attn.c_attn"
    return (
        (
            tuple(f"{attention}/{part}/kernel" for part in FUSED),
            f"{fused}.weight",
            JoinLayout(STRAIGHT, axis=1),
        ),
        (tuple(f"{attention}/{part}/bias" for part in FUSED), f"{fused}.bias", JoinLayout(JOINED)),
        *map_straight_linear(f"{attention}/out", f"{theirs}.attn.c_proj", STRAIGHT_OUT),
        *map_norm(f"{ours}/attention_norm", f"{theirs}.ln_1"),
        *map_straight_linear(f"{ours}/mlp/up", f"{theirs}.mlp.c_fc"),
        *map_straight_linear(f"{ours}/mlp/down", f"{theirs}.mlp.c_proj"),
        *map_norm(f"{ours}/mlp_norm", f"{theirs}.ln_2"),
    )


WORDS = "transformer.tokens_embed.weight"
RULES = (
    ("embeddings/token_embedding/embedding", WORDS, SAME),
    ("embeddings/position_embedding/embedding", "transformer.positions_embed.weight", SAME),
    *map_fused_layer("decoder/layers", "transformer.h.{i}"),
)

KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 40478),
    Key("length", "n_positions", 512, ("max_position_embeddings",)),
    Key("width", "n_embd", 768, ("hidden_size",)),
    Key("depth", "n_layer", 12, ("num_hidden_layers",)),
    Key("num_heads", "n_head", 12, ("num_attention_heads",)),
    Key("dropout", "resid_pdrop", 0.1),
    Key("attention_dropout", "attn_pdrop", 0.1),
    Key("epsilon", "layer_norm_epsilon", 1e-5),
    Fixed("afn", "gelu"),  # their name for the tanh approximation
    Fixed("tie_word_embeddings", True),
)
BODY = ("transformer.", "lm_head.")
BUFFERS = (  # masks, and 0, 1, 2 ...
    *("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
    "transformer.position_ids",
)


# The classes that transformers does not have.
LACKING: Mapping[HeadClass, None] = dict.fromkeys(
    ("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
)


def describe_settings(config: GptConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json. Raises as `check_mlp_width`."""
    check_mlp_width(config)
    # A released vocabulary has no end of text, one that is trained here does.
    end = {} if vocabulary.eos is None else {"eos_token_id": vocabulary.eos}
    return {"embd_pdrop": config.embedding_dropout_rate, "initializer_range": 0.02} | end


def read_dropout(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return our fields with the dropout rate of the embeddings, where it is one of its own."""
    rate = theirs.get("embd_pdrop", 0.1)
    if type(rate) not in (int, float):
        raise ValueError(f"embd_pdrop is {rate!r}; expected float")
    return ours | {"embedding_dropout": None if rate == ours["dropout"] else float(rate)}


def check_mlp_width(config: GptConfig) -> None:
    """Raise ValueError unless the MLPs are 4 times as wide as the model, as theirs always are."""
    if config.mlp != 4 * config.width:
        raise ValueError(
            f"model.mlp={config.mlp}: an OpenAIGPTLMHeadModel has MLPs of 4 x {config.width} "
            "(model.width) and no others"
        )


FAMILY = Family(
    name="gpt",
    config=GptConfig,
    objectives=(CausalLm,),
    # The vocabulary has no token that ends a text.
    make_import_objective=lambda config: CausalLm(length=config.length, end_of_text=False),
    predictor="text_generation:ContinuationWriter",
    title="GPT decoder",
    task="text-generation",
    token_roles=("unk",),
    template="none",
    hugging_face=HuggingFaceMap(
        model_type="openai-gpt",
        architecture="OpenAIGPTLMHeadModel",
        rules=RULES,
        stacks={"decoder": "depth"},
        body=BODY,
        before_import=(add_prefix("transformer."), tie({"lm_head.weight": WORDS})),
        buffers=BUFFERS,
        keys=KEYS,
        settings=describe_settings,
        read=lambda theirs, ours: read_dropout(theirs, ours) | {"mlp": 4 * ours["width"]},
        head_map=HeadMap(
            prefix="OpenAIGPT",
            classes=LACKING,
            rules={"ForSequenceClassification": map_scores("classifier/out", "score")},
            dropout=None,
        ),
    ),
)
