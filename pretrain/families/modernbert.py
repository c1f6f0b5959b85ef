"""ModernBERT: models/modernbert.py, and `ModernBertForMaskedLM` of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from data.objectives.masked_lm import MaskedLm
from models.config.modernbert import ModernBertConfig, ModernBertSizes
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Fixed, Key, read_rotary_base
from pretrain.families.rules import (
    KERNEL,
    KERNEL_OUT,
    SAME,
    Index,
    JoinLayout,
    Rules,
    map_linear,
    map_scores,
)
from pretrain.families.tensor_steps import add_prefix, tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

WORDS = "model.embeddings.tok_embeddings.weight"
POOLING = Key("pooling", "classifier_pooling", "cls")
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 50368),
    Key("length", "max_position_embeddings", 8192),
    Key("width", "hidden_size", 768),
    Key("depth", "num_hidden_layers", 22),
    Key("num_heads", "num_attention_heads", 12),
    Key("mlp", "intermediate_size", 1152),
    Key("global_every", "global_attn_every_n_layers", 3),
    Key("window", "local_attention", 128),
    Key("global_rotary_base", "global_rope_theta", 160_000.0),
    Key("local_rotary_base", "local_rope_theta", 10_000.0),
    Key("dropout", "attention_dropout", 0.0),
    POOLING,
    Key("epsilon", "norm_eps", 1e-5),
    Fixed("hidden_activation", "gelu", also=EXACT_GELU),
    Fixed("classifier_activation", "gelu", also=EXACT_GELU),
    Fixed("norm_bias", False),
    Fixed("attention_bias", False),
    Fixed("mlp_bias", False),
    Fixed("classifier_bias", False),
    Fixed("decoder_bias", True),
    Fixed("embedding_dropout", 0.0),
    Fixed("mlp_dropout", 0.0),
    Fixed("tie_word_embeddings", True),
)
SHARED_KEYS = tuple(rule for rule in KEYS if rule is not POOLING)  # the twin's
# {kind of layer: our name in their older keys}
KINDS = {"full_attention": "global", "sliding_attention": "local"}


def map_joined_projections(ours: str, theirs: str) -> Rules:
    """Return the rule of queries, keys and values in one matrix."""
    projections = tuple(f"{ours}/{part}/kernel" for part in ("query", "key", "value"))
    return ((projections, f"{theirs}.Wqkv.weight", JoinLayout(KERNEL)),)


def make_rules(
    config: ModernBertSizes,
    map_projections: Callable[[str, str], Rules] = map_joined_projections,
    head: str = "head",
) -> Rules:
    """Return the rules of all parameters; the last layers may be less than a group.

    Args:
      config: the model's sizes.
      map_projections: (our path, their name of an attention) -> rules of queries, keys and values.
      head: their name of the layer before the decoder.
    """

    def map_layer(ours: str, theirs: str) -> Rules:
        gated = tuple(f"{ours}/mlp/{part}/kernel" for part in ("gate", "up"))
        return (
            *map_projections(f"{ours}/attention", f"{theirs}.attn"),
            (f"{ours}/attention/out/kernel", f"{theirs}.attn.Wo.weight", KERNEL_OUT),
            (gated, f"{theirs}.mlp.Wi.weight", JoinLayout(KERNEL)),
            *map_scores(f"{ours}/mlp/down", f"{theirs}.mlp.Wo"),
            (f"{ours}/mlp_norm/scale", f"{theirs}.mlp_norm.weight", SAME),
        )

    def map_normed_layer(ours: str, theirs: str) -> Rules:
        norm = (f"{ours}/attention_norm/scale", f"{theirs}.attn_norm.weight", SAME)
        return (*map_layer(ours, theirs), norm)

    period = config.global_every
    names = [*(f"local_{i}" for i in range(period - 1)), "global"]
    groups = [
        map_normed_layer(f"encoder/layers/{name}", f"model.layers.{Index(i, period)}")
        for i, name in enumerate(names, 1)
    ]
    rest = [
        map_normed_layer(f"encoder/last/local_{i}", f"model.layers.{number}")
        for i, number in enumerate(range(1 + config.num_groups * period, config.depth))
    ]
    return (
        ("token_embedding/embedding", WORDS, SAME),
        ("embedding_norm/scale", "model.embeddings.norm.weight", SAME),
        *map_layer("encoder/first/global", "model.layers.0"),  # its input is normed already
        *(rule for layer in (*groups, *rest) for rule in layer),
        ("final_norm/scale", "model.final_norm.weight", SAME),
        *map_head(head),
        ("mlm_head/bias", "decoder.bias", SAME),
    )


def map_head(theirs: str) -> Rules:
    """Return the rules of the layer between the states and the decoder."""
    norm = ("head/norm/scale", f"{theirs}.norm.weight", SAME)
    return (*map_scores("head/transform", f"{theirs}.dense"), norm)


def list_layer_types(depth: int, global_every: int) -> list[str]:
    """Return the kind of each layer by its name in transformers."""
    return ["sliding_attention" if i % global_every else "full_attention" for i in range(depth)]


def describe_settings(config: ModernBertSizes, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json: what transformers 5 reads instead of older keys."""
    bases = {"global": config.global_rotary_base, "local": config.local_rotary_base}
    return {
        "layer_types": list_layer_types(config.depth, config.global_every),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": bases[name]}
            for kind, name in KINDS.items()
        },
        "initializer_range": 0.02,
        "initializer_cutoff_factor": 2.0,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "cls_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
        "sep_token_id": vocabulary.sep,
    }


def fill_older_keys(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return their configuration with the keys of transformers 4 for what 5 alone has written.

    Where both are there, `rope_parameters` holds, and `rope_scaling` before it, as in
    transformers 5.

    Raises:
      ValueError: rotary positions with scaling, or layers in another order.
    """
    theirs = dict(theirs)
    parts, scaling = theirs.get("rope_parameters") or {}, theirs.get("rope_scaling")
    if not isinstance(parts, dict):
        raise ValueError(f"rope_parameters is {parts!r:.80}; expected an object")
    if others := [kind for kind in parts if kind not in KINDS]:
        raise ValueError(
            f"rope_parameters has {others[0]!r}; expected entries of {', '.join(KINDS)}"
        )
    for kind, name in KINDS.items():
        read = {f"rope_parameters.{kind}": parts.get(kind), "rope_scaling": scaling}
        for key, parameters in read.items():
            base = read_rotary_base(key, parameters)
            if base is not None:
                theirs[f"{name}_rope_theta"] = base
    types = theirs.get("layer_types")
    if types is None:
        return theirs
    if not isinstance(types, list) or len(types) != theirs.get("num_hidden_layers", 22):
        raise ValueError("layer_types does not have one entry for each of num_hidden_layers")
    later = [i for i, kind in enumerate(types) if i and kind == "full_attention"]
    period = theirs.setdefault("global_attn_every_n_layers", later[0] if later else len(types))
    if type(period) is int and period > 0 and types != list_layer_types(len(types), period):
        raise ValueError(
            f"layer_types does not repeat a full_attention layer every {period} layers "
            "(global_attn_every_n_layers); no other order is supported"
        )
    return theirs


FAMILY = Family(
    name="modernbert",
    config=ModernBertConfig,
    extends=("bert",),
    objectives=(MaskedLm,),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="ModernBERT encoder",
    task="fill-mask",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    same_to_tile=("global_every",),
    hugging_face=HuggingFaceMap(
        model_type="modernbert",
        architecture="ModernBertForMaskedLM",
        rules=make_rules,
        stacks={"encoder": "num_groups"},
        body=("model.",),
        heads=("head.", "decoder."),
        before_import=(
            add_prefix("model.", ("embeddings.", "layers.", "final_norm.")),
            tie({"decoder.weight": WORDS}),
        ),
        keys=KEYS,
        settings=describe_settings,
        prepare=fill_older_keys,
        head_map=HeadMap(
            prefix="ModernBert",
            rules={"ForQuestionAnswering": map_linear("span/out", "classifier")},
            dropout=("classifier_dropout", 0.0),
            own_dropout={"ForQuestionAnswering": ("classifier_dropout", 0.0)},
            shared=("head.",),
        ),
    ),
)
