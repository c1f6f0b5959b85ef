"""T5Gemma: models/t5gemma.py, and `T5GemmaForConditionalGeneration` of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.prefix_lm import PrefixLm
from data.objectives.span_corruption import SpanCorruption
from data.objectives.text2text import Text2Text
from models.config.t5gemma import T5GemmaConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import TANH_GELU, Fixed, Key, Same, read_rotary_base
from pretrain.families.rules import KERNEL_OUT, SAME, Index, Rules, map_scores
from pretrain.families.tensor_steps import tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

PARTS = ("encoder", "decoder")  # of config.json
OUTPUT = "model.decoder.embed_tokens.weight"
# (our field, their key in both parts, the meaning of an absent key)
SIZES = (
    ("vocab", "vocab_size", 256_000),
    ("length", "max_position_embeddings", 8192),
    ("width", "hidden_size", 2304),
    ("num_heads", "num_attention_heads", 8),
    ("num_key_heads", "num_key_value_heads", 4),
    ("head_width", "head_dim", 256),
    ("mlp", "intermediate_size", 9216),
    ("window", "sliding_window", 4096),
    ("rotary_base", "rope_theta", 10_000.0),
    ("epsilon", "rms_norm_eps", 1e-6),
)
ABSENT = {
    **{key: absent for _, key, absent in SIZES},
    "num_hidden_layers": 26,
    "query_pre_attn_scalar": 256,
}
KEYS = (
    *(Key(field, f"decoder.{key}", absent) for field, key, absent in SIZES),
    Key("depth", "encoder.num_hidden_layers", 26),
    Key("decoder_depth", "decoder.num_hidden_layers", 26),
    Key("start", "decoder.bos_token_id", 2),
    Key("dropout", "dropout_rate", 0.0),
    Fixed("attention_dropout", 0.0),
    Fixed("is_encoder_decoder", True),
    Fixed("tie_word_embeddings", True),
    *(
        rule
        for part in PARTS
        for rule in (
            Fixed(f"{part}.hidden_activation", "gelu_pytorch_tanh", also=("gelu_new", *TANH_GELU)),
            Fixed(f"{part}.attention_bias", False),
            Fixed(f"{part}.attn_logit_softcapping", T5GemmaConfig.attention_cap),
            Fixed(f"{part}.final_logit_softcapping", T5GemmaConfig.logit_cap),
            # Scores are divided by the root of the head's width.
            Same(f"{part}.query_pre_attn_scalar", "decoder.head_dim"),
        )
    ),
    *(Same(f"encoder.{key}", f"decoder.{key}") for _, key, _ in SIZES),
)
# (our sublayer, theirs)
NORMS = (("attention", "self_attn"), ("mlp", "feedforward"))


def map_attention(ours: str, theirs: str) -> Rules:
    """Return the rules of the four kernels of an attention."""
    parts = (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"))
    inputs = (map_scores(f"{ours}/{own}", f"{theirs}.{name}") for own, name in parts)
    out = (f"{ours}/out/kernel", f"{theirs}.o_proj.weight", KERNEL_OUT)
    return (*(rule for rules in inputs for rule in rules), out)


def map_layer(ours: str, theirs: str, *, cross: bool) -> Rules:
    """Return the rules of a layer, with cross-attention in the decoder."""
    norms = (*NORMS, *((("cross", "cross_attn"),) if cross else ()))
    return (
        *map_attention(f"{ours}/attention", f"{theirs}.self_attn"),
        *(map_attention(f"{ours}/cross", f"{theirs}.cross_attn") if cross else ()),
        *(
            rule
            for name in ("gate", "up", "down")
            for rule in map_scores(f"{ours}/mlp/{name}", f"{theirs}.mlp.{name}_proj")
        ),
        *(
            (f"{ours}/{own}{end}/scale", f"{theirs}.{place}_{name}_layernorm.weight", SAME)
            for own, name in norms
            for end, place in (("_norm", "pre"), ("_out_norm", "post"))
        ),
    )


def map_stack(name: str, depth: int) -> Rules:
    """Return the rules of the encoder or the decoder; an odd depth ends with half a pair."""
    theirs, cross = f"model.{name}.layers", name == "decoder"
    layers = [
        map_layer(f"{name}/layers/{kind}", f"{theirs}.{Index(i, 2)}", cross=cross)
        for i, kind in enumerate(("local", "global"))
    ]
    if depth % 2:
        layers.append(map_layer(f"{name}/last/local", f"{theirs}.{depth - 1}", cross=cross))
    return (
        *(rule for layer in layers for rule in layer),
        (f"{name}_norm/scale", f"model.{name}.norm.weight", SAME),
    )


def make_rules(config: T5GemmaConfig) -> Rules:
    """Return the rules of all parameters."""
    return (
        ("token_embedding/embedding", "model.encoder.embed_tokens.weight", SAME),
        ("target_embedding/embedding", OUTPUT, SAME),
        *map_stack("encoder", config.depth),
        *map_stack("decoder", config.decoder_depth),
    )


def list_layer_types(depth: int) -> list[str]:
    """Return the kind of each layer by its name in transformers."""
    return ["full_attention" if i % 2 else "sliding_attention" for i in range(depth)]


def describe_settings(config: T5GemmaConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json.

    Raises:
      ValueError: the decoder begins with the padding, which transformers would not attend to.
    """
    if vocabulary.pad == config.start:
        raise ValueError(
            f"the decoder begins with {config.start} (model.start), which is the padding of this "
            "vocabulary: transformers would hide it. Train with the id of <bos> or </s>"
        )
    settings: dict[str, Any] = {
        "vocab_size": config.vocab,
        "initializer_range": 0.02,
        "decoder_start_token_id": config.start,
    }
    for part, depth in zip(PARTS, config.depths):
        settings |= {
            f"{part}.layer_types": list_layer_types(depth),
            f"{part}.rope_parameters": {
                "rope_type": "default",
                "rope_theta": config.rotary_base,
            },
            f"{part}.initializer_range": 0.02,
        }
    for prefix in ("", "encoder.", "decoder."):
        settings |= {
            f"{prefix}pad_token_id": vocabulary.pad,
            f"{prefix}bos_token_id": config.start,
            f"{prefix}eos_token_id": vocabulary.eos,
        }
    return settings


def fill_parts(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return their configuration with the keys that a part leaves out, and one key for the base.

    transformers 5 writes the base into `rope_parameters`, and leaves out what is a default.

    Raises:
      ValueError: rotary positions with scaling, layers in another order, or scores without a cap.
    """
    theirs = dict(theirs)
    for part in PARTS:
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if theirs.get(f"{part}.{key}", 0) is None:
                raise ValueError(f"{part}.{key} is null; only scores with a soft cap are supported")
        for key, absent in ABSENT.items():
            if theirs.get(f"{part}.{key}") is None:
                theirs[f"{part}.{key}"] = absent
        for key in ("rope_parameters", "rope_scaling"):
            base = read_rotary_base(f"{part}.{key}", theirs.get(f"{part}.{key}"))
            if base is not None:
                theirs[f"{part}.rope_theta"] = base
        types, depth = theirs.get(f"{part}.layer_types"), theirs[f"{part}.num_hidden_layers"]
        if types is not None and (
            type(depth) is not int or types != list_layer_types(min(depth, len(types) + 1))
        ):
            raise ValueError(
                f"{part}.layer_types does not alternate sliding_attention and full_attention over "
                f"{depth} layers (num_hidden_layers); no other order is supported"
            )
    return theirs


FAMILY = Family(
    name="t5gemma",
    config=T5GemmaConfig,
    objectives=(SpanCorruption, PrefixLm, Text2Text),
    make_import_objective=lambda config: SpanCorruption(inputs=min(512, config.length)),
    predictor="text_generation:SpanWriter",
    title="T5Gemma encoder-decoder",
    task="text2text-generation",
    token_roles=("pad", "eos", "unk"),
    template="eos",
    hugging_face=HuggingFaceMap(
        model_type="t5gemma",
        architecture="T5GemmaForConditionalGeneration",
        rules=make_rules,
        stacks={"encoder": "num_pairs", "decoder": "decoder_num_pairs"},
        body=("model.", "lm_head."),
        before_import=(tie({"lm_head.out_proj.weight": OUTPUT}),),
        keys=KEYS,
        settings=describe_settings,
        prepare=fill_parts,
    ),
)
