"""T5 and T5 v1.1: models/t5.py, and `T5ForConditionalGeneration` of Hugging Face transformers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data.objectives.prefix_lm import PrefixLm
from data.objectives.span_corruption import SpanCorruption
from data.objectives.text2text import Text2Text
from models.config.t5 import T5Config
from pretrain.families.array_map import ArrayMap, ArrayPlace
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import TANH_GELU, Fixed, Key
from pretrain.families.rules import KERNEL, KERNEL_OUT, SAME, Rules
from pretrain.families.tensor_steps import RenamedTensors, Tensors, tie
from pretrain.settings import Adafactor

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

ACTIVATIONS = {"relu": False, "gated-gelu": True}  # their feed_forward_proj: our `gated`
FUNCTIONS = {False: "relu", True: "gelu_new"}  # our `gated`: their dense_act_fn


def map_attention(ours: str, theirs: str) -> Rules:
    """Return the rules of the four kernels of an attention."""
    kernels = (
        ("query", "q", KERNEL),
        ("key", "k", KERNEL),
        ("value", "v", KERNEL),
        ("out", "o", KERNEL_OUT),
    )
    return tuple(
        (f"{ours}/{name}/kernel", f"{theirs}.{letter}.weight", layout)
        for name, letter, layout in kernels
    )


def map_mlp(ours: str, theirs: str, gated: bool) -> Rules:
    """Return the rules of the two kernels of an MLP, or of the three of a gated one."""
    names = (
        (("gate", "wi_0"), ("up", "wi_1"), ("down", "wo"))
        if gated
        else (("up", "wi"), ("down", "wo"))
    )
    return tuple(
        (f"{ours}/{name}/kernel", f"{theirs}.{letters}.weight", KERNEL) for name, letters in names
    )


def map_stack(name: str, config: T5Config, *, cross: bool) -> Rules:
    """Return the rules of the encoder, or of the decoder with its cross-attention."""
    ours, theirs = f"{name}/layers", f"{name}.block.{{i}}.layer"
    bias = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    last = 2 if cross else 1
    stack_rules = (
        (f"{name}_bias/table", bias, SAME),
        *map_attention(f"{ours}/attention", f"{theirs}.0.SelfAttention"),
        (f"{ours}/attention_norm/scale", f"{theirs}.0.layer_norm.weight", SAME),
        *map_mlp(f"{ours}/mlp", f"{theirs}.{last}.DenseReluDense", config.gated),
        (f"{ours}/mlp_norm/scale", f"{theirs}.{last}.layer_norm.weight", SAME),
        (f"{name}_norm/scale", f"{name}.final_layer_norm.weight", SAME),
    )
    cross_rules = (
        *map_attention(f"{ours}/cross", f"{theirs}.1.EncDecAttention"),
        (f"{ours}/cross_norm/scale", f"{theirs}.1.layer_norm.weight", SAME),
    )
    return stack_rules + cross_rules if cross else stack_rules


def make_rules(config: T5Config) -> Rules:
    """Return the rules of a T5, which depend on its MLPs and its output."""
    return (
        ("token_embedding/embedding", "shared.weight", SAME),
        *map_stack("encoder", config, cross=False),
        *map_stack("decoder", config, cross=True),
        *(() if config.tied else (("lm_head/kernel", "lm_head.weight", KERNEL),)),
    )


def list_copies(config: T5Config) -> dict[str, str]:
    """Return {name: original} of the copies of the embeddings."""
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    return dict.fromkeys((*names, *(("lm_head.weight",) if config.tied else ())), "shared.weight")


def score_by_words(config: T5Config, tensors: Tensors) -> Tensors:
    """Read the embeddings as the output's table if the folder lacks it, as transformers does."""
    names = {name: name for name in tensors}
    if config.tied or "lm_head.weight" in names:
        return tensors
    return RenamedTensors(tensors, names | {"lm_head.weight": "shared.weight"})


KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 32128),
    Key("width", "d_model", 512, ("hidden_size",)),
    Key("depth", "num_layers", 6, ("num_hidden_layers",)),
    Key("decoder_depth", "num_decoder_layers", lambda theirs: theirs.get("num_layers", 6)),
    Key("num_heads", "num_heads", 8, ("num_attention_heads",)),
    Key("head_width", "d_kv", 64, ("head_dim",)),
    Key("mlp", "d_ff", 2048),
    Key("buckets", "relative_attention_num_buckets", 32),
    Key("max_distance", "relative_attention_max_distance", 128),
    Key("dropout", "dropout_rate", 0.1),
    Key("epsilon", "layer_norm_epsilon", 1e-6),
    Fixed("is_encoder_decoder", True),
    Fixed("is_decoder", False),
    Fixed("pad_token_id", 0),
    Fixed("decoder_start_token_id", 0),  # what models/t5.py shifts in
)


def describe_settings(config: T5Config, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json. Raises as `check_pad_token`."""
    check_pad_token(vocabulary)
    return {
        "feed_forward_proj": next(
            name for name, gated in ACTIVATIONS.items() if gated == config.gated
        ),
        "tie_word_embeddings": config.tied,
        "initializer_factor": 1.0,
        "eos_token_id": vocabulary.eos,
    }


def read_fields(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return our fields with `gated` and `tied`.

    `dense_act_fn` and `is_gated_act` precede `feed_forward_proj` in transformers.

    Raises:
      ValueError: their activation is neither T5's nor T5 v1.1's, or two of the keys
        contradict each other.
    """
    activation = theirs.get("feed_forward_proj", "relu")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"feed_forward_proj is {activation!r}; T5Config knows {' and '.join(ACTIVATIONS)}"
        )
    gated = ACTIVATIONS[activation]
    for key, expected in (("dense_act_fn", FUNCTIONS[gated]), ("is_gated_act", gated)):
        value = theirs.get(key, expected)
        is_same = key == "dense_act_fn" and gated and value in TANH_GELU
        if value != expected and not is_same:
            raise ValueError(
                f"{key} is {value!r:.80}, and feed_forward_proj is {activation!r}, which T5Config "
                f"computes with {expected!r}"
            )
    # transformers 5 always writes tie_word_embeddings = true; the actual value is the other key.
    tied = theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True))
    return ours | {"gated": gated, "tied": bool(tied)}


def check_pad_token(vocabulary: Vocabulary) -> None:
    """Raise ValueError unless the vocabulary's padding is id 0, with which the decoder begins."""
    if vocabulary.pad != 0:
        raise ValueError(
            "T5's decoder begins with the padding id, which must be 0; this vocabulary's is "
            f"{vocabulary.pad}"
        )


# ---- checkpoints of T5X --------------------------------------------------------
#
# T5X (Roberts et al. 2022) names an array `encoder.layers_0.attention.query.kernel`. A model that
# is scanned over its layers has `encoder.encoder.attention.query.kernel` for all of them.

Shapes = Mapping[str, tuple[int, ...]]
ATTENTIONS = {  # {stack: {theirs: (sublayer, name) in transformers}}
    "encoder": {"attention": "0.SelfAttention"},
    "decoder": {
        "self_attention": "0.SelfAttention",
        "encoder_decoder_attention": "1.EncDecAttention",
    },
}
KERNELS = {"query": "q", "key": "k", "value": "v", "out": "o"}
NORMS = {  # {stack: the norms before its sublayers, in order}
    "encoder": ("attention", "mlp"),
    "decoder": ("self_attention", "cross_attention", "mlp"),
}
LAYER = re.compile(r"(encoder|decoder)\.layers_(\d{1,4})\.")
MOST_LAYERS = 1000


def is_scanned(shapes: Shapes, stack: str) -> bool:
    """Return whether the arrays of a stack have all of its layers, as their second axis."""
    return f"{stack}.{stack}.mlp.wo.kernel" in shapes


def count_layers(shapes: Shapes, stack: str) -> int:
    """Return the number of layers of a stack; raise ValueError for none or too many."""
    if is_scanned(shapes, stack):
        shape = shapes[f"{stack}.{stack}.mlp.wo.kernel"]
        depth = shape[1] if len(shape) == 3 else 0
    else:
        found = (match for match in map(LAYER.match, shapes) if match and match[1] == stack)
        depth = max((int(match[2]) for match in found), default=-1) + 1
    if not 1 <= depth <= MOST_LAYERS:
        raise ValueError(f"the {stack} has {depth} layers; from 1 to {MOST_LAYERS} are read")
    return depth


def read_sizes(shapes: Shapes) -> dict[str, Any]:
    """Return our fields of the arrays of T5X, whose shapes they are.

    Raises:
      KeyError: an array is missing.
      ValueError: sizes do not fit each other.
    """
    tables = {
        name: shapes[name]
        for name in ("token_embedder.embedding", "encoder.relpos_bias.rel_embedding")
    }
    for name, shape in tables.items():
        if len(shape) != 2 or not all(shape):
            raise ValueError(f"{name} is {list(shape)}, not a matrix")
    (vocab, width), (num_heads, buckets) = tables.values()
    gated = any(name.endswith("mlp.wi_0.kernel") for name in shapes)
    start = "encoder.encoder" if is_scanned(shapes, "encoder") else "encoder.layers_0"
    key, up = shapes[f"{start}.attention.key.kernel"], shapes[f"{start}.mlp.wo.kernel"]
    if len(key) < 2 or len(up) < 2:
        raise ValueError(f"the first layer's key has the shape {list(key)}, its wo {list(up)}")
    inner = math.prod(key) // max(1, width * (key[1] if start == "encoder.encoder" else 1))
    if inner % num_heads or not up:
        raise ValueError(f"keys of {inner} do not divide into {num_heads} heads")
    return {
        "vocab": vocab,
        "width": width,
        "depth": count_layers(shapes, "encoder"),
        "decoder_depth": count_layers(shapes, "decoder"),
        "num_heads": num_heads,
        "head_width": inner // num_heads,
        "mlp": up[0],
        "gated": gated,
        "tied": "decoder.logits_dense.kernel" not in shapes,
        "buckets": buckets,
    }


def locate_tensors(config: T5Config, shapes: Shapes) -> dict[str, ArrayPlace]:
    """Return {name in transformers: its place among the arrays of T5X}."""
    found = {"shared.weight": ArrayPlace("token_embedder.embedding", transposed=False)}
    if not config.tied:
        found["lm_head.weight"] = ArrayPlace("decoder.logits_dense.kernel")
    wide = ("wi_0", "wi_1", "wo") if config.gated else ("wi", "wo")
    for stack, depth in (("encoder", config.depth), ("decoder", config.decoder_depth)):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found[bias] = ArrayPlace(f"{stack}.relpos_bias.rel_embedding")
        norm = ArrayPlace(f"{stack}.{stack}_norm.scale", axes=1, transposed=False)
        found[f"{stack}.final_layer_norm.weight"] = norm
        whole = is_scanned(shapes, stack)
        for i in range(depth):
            ours = f"{stack}.{stack}" if whole else f"{stack}.layers_{i}"
            theirs, layer = f"{stack}.block.{i}.layer", i if whole else None
            for number, name in enumerate(NORMS[stack]):
                scale = ArrayPlace(f"{ours}.pre_{name}_layer_norm.scale", layer, 1, None, False)
                found[f"{theirs}.{number}.layer_norm.weight"] = scale
            for name, place in ATTENTIONS[stack].items():
                for kernel, letter in KERNELS.items():
                    joined = 0 if kernel == "out" else 1
                    array = ArrayPlace(f"{ours}.{name}.{kernel}.kernel", layer, 2, joined)
                    found[f"{theirs}.{place}.{letter}.weight"] = array
            for name in wide:
                mlp = f"{theirs}.{len(NORMS[stack]) - 1}.DenseReluDense.{name}.weight"
                found[mlp] = ArrayPlace(f"{ours}.mlp.{name}.kernel", layer)
    return found


FAMILY = Family(
    name="t5",
    config=T5Config,
    objectives=(SpanCorruption, PrefixLm, Text2Text),
    arrays=ArrayMap("T5X", read_sizes, locate_tensors),
    make_import_objective=lambda config: SpanCorruption(),
    predictor="text_generation:SpanWriter",
    title="T5 encoder-decoder",
    task="text2text-generation",
    token_roles=("pad", "eos", "unk"),
    template="eos",
    optimizer=Adafactor(learning_rate=1e-3, decay="linear"),
    hugging_face=HuggingFaceMap(
        model_type="t5",
        architecture="T5ForConditionalGeneration",
        rules=make_rules,
        stacks={"encoder": "depth", "decoder": "decoder_depth"},
        body=("shared.", "encoder.", "decoder.", "lm_head."),
        before_import=(tie(list_copies), score_by_words),
        # The first releases have one more table, which their code no longer reads.
        buffers=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
        keys=KEYS,
        settings=describe_settings,
        read=read_fields,
        refused={
            "T5EncoderModel": "it has no decoder, which T5 is trained with; import the whole "
            "T5ForConditionalGeneration"
        },
    ),
)
