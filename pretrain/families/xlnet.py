"""XLNet: models/xlnet.py, and `XLNetLMHeadModel` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.permutation_lm import PermutationLm
from models.config.xlnet import XLNetConfig
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Fixed, Key
from pretrain.families.rules import SAME, Layout, map_linear, map_norm
from pretrain.families.tensor_steps import add_prefix, tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

# [H, K, D] <-> [D, H, K]
OUT = Layout(
    theirs=lambda a: a.transpose(2, 0, 1), ours=lambda a, shape: a.transpose(1, 2, 0).reshape(shape)
)
VECTOR = Layout(  # [D] <-> [1, 1, D]
    theirs=lambda a: a.reshape(1, 1, -1), ours=lambda a, shape: a.reshape(shape)
)
OURS, THEIRS = "encoder/layers", "transformer.layer.{i}"
ATTENTION, THEIR_ATTENTION = f"{OURS}/attention", f"{THEIRS}.rel_attn"
RULES = (
    ("token_embedding/embedding", "transformer.word_embedding.weight", SAME),
    ("query_embedding", "transformer.mask_emb", VECTOR),
    *(
        (f"{ATTENTION}/{part}/kernel", f"{THEIR_ATTENTION}.{letter}", SAME)
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("position", "r"))
    ),
    (f"{ATTENTION}/out/kernel", f"{THEIR_ATTENTION}.o", OUT),
    *(
        (f"{ATTENTION}/{name}", f"{THEIR_ATTENTION}.{theirs}", SAME)
        for name, theirs in (
            ("content_bias", "r_w_bias"),
            ("position_bias", "r_r_bias"),
            ("text_bias", "r_s_bias"),
            ("text_embedding", "seg_embed"),
        )
    ),
    *map_norm(f"{OURS}/attention_norm", f"{THEIR_ATTENTION}.layer_norm"),
    *map_linear(f"{OURS}/mlp/up", f"{THEIRS}.ff.layer_1"),
    *map_linear(f"{OURS}/mlp/down", f"{THEIRS}.ff.layer_2"),
    *map_norm(f"{OURS}/mlp_norm", f"{THEIRS}.ff.layer_norm"),
    ("lm_head/bias", "lm_loss.bias", SAME),
)
KEYS = (  # our field, their key, the meaning of an absent key: large
    Key("vocab", "vocab_size", 32_000, ("n_token",)),
    Key("width", "d_model", 1_024, ("hidden_size",)),
    Key("depth", "n_layer", 24, ("num_hidden_layers",)),
    Key("num_heads", "n_head", 16, ("num_attention_heads",)),
    Key("mlp", "d_inner", 4_096),
    Key("dropout", "dropout", 0.1),
    Key("epsilon", "layer_norm_eps", 1e-12),
    Fixed("ff_activation", "gelu", also=EXACT_GELU),
    Fixed("attn_type", "bi"),
    Fixed("untie_r", True),
    Fixed("bi_data", False),
    Fixed("same_length", False),
    Fixed("reuse_len", None),
    Fixed("tie_word_embeddings", True),
    Fixed("summary_type", "last"),
    Fixed("summary_use_proj", True),
    Fixed("summary_activation", "tanh"),
)
CLASSIFIER_RULES = (
    *map_linear("classifier/transform", "sequence_summary.summary"),
    *map_linear("classifier/scores/out", "logits_proj"),
)


def describe_settings(config: XLNetConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "d_head": config.width // config.num_heads,
        "mem_len": config.memory,
        "clamp_len": -1 if config.clamp_len is None else config.clamp_len,
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
    }


def read_settings(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return our fields with the memory, the longest distance and the attention's dropout.

    Raises:
      ValueError: a key has a value of another type, or the width of a head is not D / H.
    """
    # The released configurations have null, which is absent here.
    memory, clamp_len = theirs.get("mem_len", 0), theirs.get("clamp_len", -1)
    for key, value in {"mem_len": memory, "clamp_len": clamp_len}.items():
        if type(value) is not int:
            raise ValueError(f"{key} is {value!r:.80}; expected int")
    width, num_heads = ours["width"], ours["num_heads"]
    if theirs.get("d_head") not in (None, width // num_heads):
        raise ValueError(
            f"d_head is {theirs['d_head']!r:.80}; it must be d_model / n_head, {width} / "
            f"{num_heads}"
        )
    return ours | {
        "memory": memory if memory > 0 else None,
        "clamp_len": clamp_len if clamp_len > 0 else None,
        "attention_dropout": ours["dropout"],
    }


def make_import_objective(config: XLNetConfig) -> PermutationLm:
    """Return the objective of an imported model: windows of 128 tokens."""
    return PermutationLm(length=min(128, config.length), rows="windows")


FAMILY = Family(
    name="xlnet",
    config=XLNetConfig,
    objectives=(PermutationLm,),
    make_import_objective=make_import_objective,
    predictor="fill_mask:MaskFiller",
    title="XLNet",
    task="text-generation",
    use="fill-mask by a query",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_last",
    token_types=True,
    hugging_face=HuggingFaceMap(
        model_type="xlnet",
        architecture="XLNetLMHeadModel",
        rules=RULES,
        stacks={"encoder": "depth"},
        body=("transformer.",),
        heads=("lm_loss.",),
        before_import=(
            add_prefix("transformer.", ("word_embedding.", "mask_emb", "layer.")),
            tie({"lm_loss.weight": "transformer.word_embedding.weight"}),
        ),
        keys=KEYS,
        settings=describe_settings,
        read=read_settings,
        head_map=HeadMap(
            prefix="XLNet",
            classes={"ForQuestionAnswering": "ForQuestionAnsweringSimple"},
            rules={"ForSequenceClassification": CLASSIFIER_RULES},
            dropout=("summary_last_dropout", 0.1),
            fixed_dropout={"ForTokenClassification": False},
        ),
        refused={
            "XLNetForQuestionAnswering": "it searches an answer's end for each start, with a beam; "
            "XLNetForQuestionAnsweringSimple is imported"
        },
    ),
)
