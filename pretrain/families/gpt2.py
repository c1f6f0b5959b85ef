"""GPT-2: models/gpt2.py, and `GPT2LMHeadModel` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.causal_lm import CausalLm
from data.objectives.masked_next_token import MaskedNextToken
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from pretrain.families import gpt
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import TANH_GELU, Fixed, Key
from pretrain.families.rules import SAME, Rule, Rules, map_norm, map_scores
from pretrain.families.tensor_steps import add_prefix, tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

WORDS = "transformer.wte.weight"


def make_gpt2_rules(*layers: Rule) -> Rules:
    """Return the rules of a model, given the rules of its layers."""
    return (
        ("embeddings/token_embedding/embedding", WORDS, SAME),
        ("embeddings/position_embedding/embedding", "transformer.wpe.weight", SAME),
        *layers,
        *map_norm("norm", "transformer.ln_f"),
    )


KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 50257),
    Key("length", "n_positions", 1024, ("max_position_embeddings",)),
    Key("width", "n_embd", 768, ("hidden_size",)),
    Key("depth", "n_layer", 12, ("num_hidden_layers",)),
    Key("num_heads", "n_head", 12, ("num_attention_heads",)),
    Key("mlp", "n_inner", lambda theirs: 4 * theirs.get("n_embd", 768)),
    Key("dropout", "resid_pdrop", 0.1),
    Key("attention_dropout", "attn_pdrop", 0.1),
    Key("epsilon", "layer_norm_epsilon", 1e-5),
    Fixed("activation_function", "gelu_new", also=TANH_GELU),
    Fixed("scale_attn_weights", True),
    Fixed("scale_attn_by_inverse_layer_idx", False),
    Fixed("add_cross_attention", False),
    Fixed("tie_word_embeddings", True),
)


def describe_settings(config: GptConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "embd_pdrop": config.embedding_dropout_rate,
        "initializer_range": 0.02,
        "bos_token_id": vocabulary.eos,
        "eos_token_id": vocabulary.eos,
    }


MAP = HuggingFaceMap(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    rules=make_gpt2_rules(*gpt.map_fused_layer("decoder/layers", "transformer.h.{i}")),
    stacks={"decoder": "depth"},
    body=gpt.BODY,
    before_import=(add_prefix("transformer."), tie({"lm_head.weight": WORDS})),
    buffers=gpt.BUFFERS,
    keys=KEYS,
    settings=describe_settings,
    read=gpt.read_dropout,
    head_map=HeadMap(
        prefix="GPT2",
        classes=gpt.LACKING,
        rules={"ForSequenceClassification": map_scores("classifier/out", "score")},
        dropout=None,
    ),
)
FAMILY = Family(
    name="gpt2",
    config=Gpt2Config,
    extends=("gpt",),
    objectives=(CausalLm, MaskedNextToken),
    make_import_objective=lambda config: CausalLm(length=config.length),
    predictor="text_generation:ContinuationWriter",
    title="GPT-2 decoder",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    hugging_face=MAP,
)
