"""The Reformer: models/reformer.py, and `ReformerModelWithLMHead` of Hugging Face transformers.

Their rotations are of torch's random numbers and ours of JAX's: the same weights give the same
logits only for rows of one chunk, or with the same rotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.causal_lm import CausalLm
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Fixed, Key
from pretrain.families.rules import (
    KERNEL,
    KERNEL_OUT,
    SAME,
    Index,
    Layout,
    Rules,
    map_linear,
    map_norm,
)
from pretrain.families.tensor_steps import add_prefix, copy, drop

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

POSITIONS = "reformer.embeddings.position_embeddings.weights"
# a table [R, W] <-> [R, 1, W] of the first axis, [1, C, W] of the second
ROWS, COLUMNS = (
    Layout(
        theirs=lambda a, axis=axis: a[:, None] if axis else a[None],
        ours=lambda a, shape: a.reshape(shape),
    )
    for axis in (1, 0)
)
MAX_LAYERS, MAX_BUCKETS = 1_000, 1 << 20  # of a config.json


def map_layer(ours: str, theirs: str, kind: str) -> Rules:
    """Return the rules of a layer of "lsh", whose keys are its queries, or of "local"."""
    attention, their_attention = f"{ours}/attention", f"{theirs}.attention.self_attention"
    parts = {"lsh": {"query": "query_key"}, "local": {"query": "query", "key": "key"}}[kind]
    return (
        *(
            (f"{attention}/{part}/kernel", f"{their_attention}.{name}.weight", KERNEL)
            for part, name in {**parts, "value": "value"}.items()
        ),
        (f"{attention}/out/kernel", f"{theirs}.attention.output.dense.weight", KERNEL_OUT),
        *map_norm(f"{ours}/attention_norm", f"{theirs}.attention.layer_norm"),
        *map_linear(f"{ours}/mlp/up", f"{theirs}.feed_forward.dense.dense"),
        *map_linear(f"{ours}/mlp/down", f"{theirs}.feed_forward.output.dense"),
        *map_norm(f"{ours}/mlp_norm", f"{theirs}.feed_forward.layer_norm"),
    )


def make_rules(config: ReformerConfig) -> Rules:
    """Return the rules of a model, whose group i has the layers i n to i n + n - 1."""
    layers = [
        map_layer(
            f"decoder/layers/block_{j}",
            f"reformer.encoder.layers.{Index(j, len(config.layers))}",
            kind,
        )
        for j, kind in enumerate(config.layers)
    ]
    return (
        (
            "embeddings/token_embedding/embedding",
            "reformer.embeddings.word_embeddings.weight",
            SAME,
        ),
        ("embeddings/row_embedding/embedding", f"{POSITIONS}.0", ROWS),
        ("embeddings/column_embedding/embedding", f"{POSITIONS}.1", COLUMNS),
        *(rule for rules in layers for rule in rules),
        *map_norm("norm", "reformer.encoder.layer_norm"),
        *map_linear("lm_head", "lm_head.decoder"),
    )


KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 320),
    Key("width", "hidden_size", 256),
    Key("num_heads", "num_attention_heads", 12),
    Key("head_width", "attention_head_size", 64),
    Key("mlp", "feed_forward_size", 512),
    Key("dropout", "hidden_dropout_prob", 0.05),
    Key("epsilon", "layer_norm_eps", 1e-12),
    Fixed("is_decoder", True, absent=False),
    Fixed("hidden_act", "relu"),
    Fixed("axial_pos_embds", True),
    Fixed("lsh_num_chunks_before", 1),
    Fixed("lsh_num_chunks_after", 0),
    Fixed("local_num_chunks_before", 1),
    Fixed("local_num_chunks_after", 0),
    Fixed("tie_word_embeddings", False),
)


def describe_settings(config: ReformerConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    hashing, buckets = config.hashing, list(config.hashing.buckets)
    return {
        "attn_layers": list(config.layers) * (config.depth // len(config.layers)),
        "chunk_size_feed_forward": config.mlp_chunk or 0,
        "axial_pos_shape": list(config.axial_shape),
        "axial_pos_embds_dim": list(config.axial_widths),
        "max_position_embeddings": config.length,
        "num_hashes": hashing.rounds,
        "num_buckets": (buckets if len(buckets) > 1 else buckets[0]) if buckets else None,
        "lsh_attn_chunk_length": hashing.chunk,
        "lsh_attention_probs_dropout_prob": hashing.dropout,
        "local_attn_chunk_length": config.local.chunk,
        "local_attention_probs_dropout_prob": config.local.dropout,
        "initializer_range": 0.02,
        "axial_norm_std": 0.02,
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.eos,
    }


def read_list(theirs: dict[str, Any], key: str, default: Any, kind: type) -> tuple[Any, ...]:
    """Return the list at a key as a tuple, one value as a tuple of one."""
    value = theirs.get(key, default)
    values = value if type(value) in (list, tuple) else [value]
    if any(type(one) is not kind for one in values):
        raise ValueError(f"{key} is {value!r:.80}; expected a list of {kind.__name__}")
    return tuple(values)


def read_number(theirs: dict[str, Any], key: str, default: Any) -> Any:
    """Return the number at a key. Raises ValueError for a value of another type."""
    value = theirs.get(key, default)
    if type(value) is not type(default) and not (type(value) is int and type(default) is float):
        raise ValueError(f"{key} is {value!r:.80}; expected {type(default).__name__}")
    return type(default)(value)


def find_period(layers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the shortest part of which the layers are repetitions."""
    n = len(layers)
    return next(
        layers[:size]
        for size in range(1, n + 1)
        if n % size == 0 and layers[:size] * (n // size) == layers
    )


def read_settings(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return our fields with the layers, the chunks and the positions.

    Raises:
      ValueError: a key has a value of another type, or one that this model does not have.
    """
    layers = read_list(theirs, "attn_layers", ["local", "lsh"] * 3, str)
    if not 1 <= len(layers) <= MAX_LAYERS or not set(layers) <= {"local", "lsh"}:
        raise ValueError(
            f"attn_layers is {list(layers)!r:.80}; expected 1 to {MAX_LAYERS:,} of local and lsh"
        )
    buckets = read_list(theirs, "num_buckets", [], int)
    if any(not 2 <= factor <= MAX_BUCKETS for factor in buckets):
        raise ValueError(f"num_buckets is {buckets}; each must be from 2 to {MAX_BUCKETS:,}")
    shape = read_list(theirs, "axial_pos_shape", [64, 64], int)
    config = ours | {
        "depth": len(layers),
        "layers": find_period(layers),
        "mlp_chunk": read_number(theirs, "chunk_size_feed_forward", 0) or None,
        "axial_shape": shape,
        "axial_widths": read_list(theirs, "axial_pos_embds_dim", [64, 192], int),
        "hashing": Hashing(
            chunk=read_number(theirs, "lsh_attn_chunk_length", 64),
            rounds=read_number(theirs, "num_hashes", 1),
            buckets=buckets,
            dropout=read_number(theirs, "lsh_attention_probs_dropout_prob", 0.0),
        ),
        "local": LocalChunks(
            chunk=read_number(theirs, "local_attn_chunk_length", 64),
            dropout=read_number(theirs, "local_attention_probs_dropout_prob", 0.05),
        ),
    }
    length = read_number(theirs, "max_position_embeddings", 4_096)
    if len(shape) != 2 or shape[0] * shape[1] != length:
        raise ValueError(
            f"axial_pos_shape is {list(shape)} and max_position_embeddings {length}; the two sizes "
            "of the shape must multiply to it"
        )
    return config


FAMILY = Family(
    name="reformer",
    config=ReformerConfig,
    objectives=(CausalLm,),
    make_import_objective=lambda config: CausalLm(length=config.length),
    predictor="text_generation:ContinuationWriter",
    title="Reformer",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    describe_card_rows=lambda config: [
        ("attention", " ".join(config.layers)),
        ("hashing", f"{config.hashing.rounds} rounds, chunks of {config.hashing.chunk} tokens"),
    ],
    hugging_face=HuggingFaceMap(
        model_type="reformer",
        architecture="ReformerModelWithLMHead",
        rules=make_rules,
        stacks={"decoder": "num_groups"},
        body=("reformer.", "lm_head."),
        before_import=(add_prefix("reformer."), drop("lm_head.bias")),
        after_export=(copy({"lm_head.bias": "lm_head.decoder.bias"}),),
        buffers=("*.self_mask_value_float*", "*.mask_value_float*"),
        keys=KEYS,
        settings=describe_settings,
        read=read_settings,
    ),
)
