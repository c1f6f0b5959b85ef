"""GPT-2: models/gpt2.py, and `GPT2LMHeadModel` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.causal_lm import CausalLm
from data.objectives.masked_next_token import MaskedNextToken
from models.config.gpt2 import Gpt2Config
from pretrain.families import gpt
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.rules import SAME, TANH_GELU, Rule, Rules, map_norm, map_scores

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


FIELDS = (  # our field, their key, the meaning of an absent key
    ("vocab", "vocab_size", 50257),
    ("length", "n_positions", 1024),
    ("width", "n_embd", 768),
    ("depth", "n_layer", 12),
    ("num_heads", "n_head", 12),
    ("mlp", "n_inner", None),
    ("dropout", "resid_pdrop", 0.1),
    ("attention_dropout", "attn_pdrop", 0.1),
    ("epsilon", "layer_norm_epsilon", 1e-5),
)
FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def describe_settings(config: Gpt2Config, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "embd_pdrop": config.embedding_dropout_rate,
        "initializer_range": 0.02,
        "bos_token_id": vocabulary.eos,
        "eos_token_id": vocabulary.eos,
    }


def fill_defaults(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return their configuration with the default width of the MLPs."""
    return {"n_inner": 4 * theirs.get("n_embd", 768)} | theirs


MAP = HuggingFaceMap(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    rules=make_gpt2_rules(*gpt.map_fused_layer("decoder/layers", "transformer.h.{i}")),
    stacks={"decoder": "depth"},
    prefix="transformer.",
    body=gpt.BODY,
    copies={"lm_head.weight": WORDS},
    buffers=gpt.BUFFERS,
    fields=FIELDS,
    aliases=gpt.ALIASES,
    fixed=FIXED,
    same_values={"activation_function": TANH_GELU},
    settings=describe_settings,
    prepare=fill_defaults,
    read=gpt.read_dropout,
    head_map=HeadMap(
        classes="GPT2",
        classifier=map_scores("classifier/out", "score"),
        dropout=None,
        lacking=gpt.LACKING,
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
